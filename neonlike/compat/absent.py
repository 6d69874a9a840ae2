"""Names of neon that this library lacks or has in another form: dotted names, with reasons.

The page of neon's names shows them (:mod:`neonlike.compat.page`), and tests check that each reason is needed: a name
that is there after all is no row.
"""

from __future__ import annotations

_MKL = "a hook of Intel MKL's engine, which neon called on no other"
_OWN = "a step of the constructor, whose results are attributes"
_TEXT = "a step of another class, offered by neonlike.data.text_preprocessing"
_CAPTIONS = "a step of reading a data set, whose results are attributes"
_VIEWS = "made views of buffers, which fprop makes here, and keeps"
_NAMES = "made names of the parts of a compound layer, which the parts have here"
_GRADIENTS = "a node of its table of gradients, which has owner and total here"
_SIZES = "a step of a convolution by slices; the record has sizes alone, for kernels"
_ACTS = "of the layer that create makes; this class is the record of sizes"
_GROUPS = "a step of a callback, in functions of its module here"


def _rows(reason: str, prefix: str, names: str) -> dict[str, str]:
    return {f"{prefix}.{name}": reason for name in names.split()}


ABSENT: dict[str, str] = {
    **_rows("of Text alone: the file has numbers", "data.text", "TextNMT.create_valid_file TextNMT.get_tokens"),
    **_rows("of Text alone: the file has a vocabulary", "data.text", "TextNMT.get_vocab"),
    **_rows(_MKL, "layers.container", "LayerContainer.fusion_pass Broadcast.fusion_pass Sequential.fusion_pass"),
    **_rows(_VIEWS, "layers.recurrent", "Recurrent.init_buffers RecurrentOutput.init_buffers BiRNN.init_buffers"),
    **_rows(_VIEWS, "layers.recurrent", "BiSum.init_buffers LSTM.init_buffers GRU.init_buffers BiBNRNN.init_buffers"),
    **_rows(_VIEWS, "layers.layer", "RoiPooling.init_buffers"),
    **_rows(_NAMES, "layers.layer", "CompoundLayer.init_base_name Affine.init_base_name Conv.init_base_name"),
    **_rows("set by the container: decoder_connections", "layers.container", "Encoder.set_connections"),
    **_rows("set by the container: decoder_connections", "layers.container", "Decoder.set_connections"),
    **_rows("a private cut of a tensor: branches have views", "layers.container", "MergeBroadcast.get_partitions"),
    **_rows("made by allocate, with make(name, value)", "layers.layer", "BatchNorm.init_params"),
    **_rows("files of all formats are read as they are", "layers.layer", "Convolution_bias.convert_format"),
    **_rows("handled around Model.fit, for all callbacks", "callbacks.callbacks", "Callbacks.on_sigint_catch"),
    **_rows(_GROUPS, "callbacks.callbacks", "DeconvCallback.get_layer_acts DeconvCallback.store_images"),
    **_rows(_GROUPS, "callbacks.callbacks", "DeconvCallback.scale_to_rgb DeconvCallback.visualize_layer"),
    **_rows(_GROUPS, "callbacks.callbacks", "SerializeModelCallback.save_history"),
    **_rows(_GROUPS, "callbacks.callbacks", "TrainMulticostCallback.multicost_recurse"),
    **_rows(_GROUPS, "callbacks.callbacks", "TrainMulticostCallback.recursive_multicost_len"),
    **_rows(_GROUPS, "callbacks.callbacks", "TrainMulticostCallback.separate_branch_costs"),
    **_rows("an argument that is kept under no name", "data.dataloader_transformers", "DumpImage.filename"),
    **_rows("a step of iterating, private here", "data.dataloaderadapter", "DataLoaderAdapter.transform"),
    **_rows(_CAPTIONS, "data.imagecaption", "ImageCaption.load_vocab ImageCaption.read_images"),
    **_rows(_CAPTIONS, "data.imagecaption", "ImageCaptionTest.load_vocab ImageCaptionTest.read_images"),
    **_rows("of the images to test with alone", "data.imagecaption", "ImageCaption.predict"),
    **_rows(_OWN, "data.questionanswer", "BABI.compute_statistics BABI.data_to_list BABI.flatten"),
    **_rows(_OWN, "data.questionanswer", "BABI.vectorize_stories"),
    **_rows("names of files that are attributes", "data.text", "PTB.gen_filename SICK.gen_filename SICK.gen_zipname"),
    **_rows(_TEXT, "data.text", "Text.pad_data Text.pad_sentences TextNMT.pad_data TextNMT.pad_sentences"),
    **_rows("no description: it makes a file", "data.indexer", "Indexer.classnm Indexer.gen_class Indexer.modulenm"),
    **_rows("no description: it makes a file", "data.indexer", "Indexer.get_description Indexer.recursive_gen"),
    **_rows(_GRADIENTS, "backends.autodiff", "GradNode.ad GradNode.build_grad GradNode.cleanup GradNode.grad_op_tree"),
    **_rows(_GRADIENTS, "backends.autodiff", "GradNode.left GradNode.op_tree GradNode.right"),
    **_rows("gradients are rules of the table of ops", "backends.autodiff", "GradUtil.get_grad_back"),
    **_rows("a decorator: Autodiff itself remembers", "backends.autodiff", "memoize_autodiff"),
    **_rows("methods of a tuple: as_tuple() is one", "backends.backend", "OpTreeNode.count OpTreeNode.index"),
    **_rows("in the tensors of each backend", "backends.backend", "Tensor.raw"),
    **_rows(_SIZES, "backends.layer_cpu", "ConvLayer.bprop_slice ConvLayer.compound_ops ConvLayer.fprop_slice"),
    **_rows(_SIZES, "backends.layer_cpu", "ConvLayer.update_conv ConvLayer.xprop_conv PoolLayer.pool_slice"),
    **_rows(_SIZES, "backends.layer_cpu", "DeconvLayer.bprop_slice DeconvLayer.fprop_slice ceil_div"),
    **_rows(_ACTS, "backends.layer_gpu", "ConvLayer.bprop ConvLayer.fprop ConvLayer.init_activations"),
    **_rows(_ACTS, "backends.layer_gpu", "PoolLayer.bprop PoolLayer.fprop PoolLayer.init_activations"),
    **_rows("what its convolutions did with bits of 16", "backends.layer_gpu", "Layer.scale_weights Layer.bprop_relu"),
    **_rows(_MKL, "backends.layer_mkl", "BatchNormLayerMKL BiBNRNNLayerMKL ConvLayerMKL DeconvLayerMKL PoolLayerMKL"),
    **_rows(_MKL, "backends.layer_mkl", "MergeBroadcastLayerMKL MergeSumLayerMKL ReluLayerMKL"),
    **_rows(_MKL, "backends.nervanamkl", "MKLTensor.clean_mkl MKLTensor.get_prim MKLTensor.set_mkl"),
    **_rows("a step of a metric's call", "transforms.cost", "ObjectDetection.smoothL1"),
    **_rows("a step of the constructor", "util.argparser", "NeonArgparser.setup_default_args"),
    **_rows("a step of display_model_params", "util.display_information", "add_param_to_output"),
}
"""Methods and functions."""

OTHERWISE: dict[str, str] = {
    "backends.autodiff.Autodiff": "a class here, whose call neon's function is",
    **dict.fromkeys(
        (f"backends.nervanacpu.NervanaCPU.{name}" for name in (
            "bprop_conv", "fprop_conv", "update_conv", "fprop_pool", "compound_fprop_bn", "compound_bprop_bn"
        )),
        "as NervanaGPU's, where the arguments of neon's two backends differ behind the common ones",
    ),
    **dict.fromkeys(
        (f"backends.nervanamkl.NervanaMKL.{name}" for name in (
            "bprop_mergebroadcast", "bprop_skipnode", "bprop_transform", "compound_fprop_bn", "compound_bprop_bn",
            "compound_rnn_unroll_fprop_bibnrnn", "compound_rnn_unroll_bprop_bibnrnn", "fprop_pool", "fprop_transform",
            "sum_tensor", "trans2d",
        )),
        "the CPU's method with its arguments: nothing is kept in MKL's layout",
    ),
    "backends.backend.Backend.__init__": "as NervanaCPU's and NervanaGPU's, where neon's base class differs from them",
    "backends.backend.Backend.binarize": "as NervanaGPU's, where neon's classes differ in names and order",
    "backends.backend.Backend.execute": "by the name that neon's backends have; its base class says node",
    "backends.backend.Backend.shift": "by the names that neon's backends have; its base class says a and b",
    "backends.backend.Tensor.__init__": "tensors are made by be.empty and the like",
    **dict.fromkeys(
        (f"backends.{module}.{name}.__init__" for module in ("layer_cpu", "layer_gpu") for name in (
            "ConvLayer", "DeconvLayer", "PoolLayer"
        )),
        "made by be.conv_layer, be.deconv_layer and be.pool_layer, which take neon's arguments",
    ),
    **dict.fromkeys(
        (f"backends.layer_gpu.{name}.fprop" for name in ("BatchNorm", "DataLayer", "FullLayer", "Inception", "Layer")),
        "scale_weights drew weights of 16 bits into their range, layer by layer",
    ),
    "backends.autodiff.GradNode.__init__": "made by Autodiff, of the node or tensor that the gradient belongs to",
    "backends.gen_backend": "max_devices left out is None, in neon 0: one device in both",
    "backends.layer_gpu.BatchNorm.__init__": "bsum was a sum of cuDNN's time; sizes left out are 0, in neon None",
    "backends.layer_gpu.DataLayer.init_data": "data that are left out would leave the tensor as it was",
    "backends.layer_gpu.Layer.__init__": "gradients have the dtype of weights: there is no dtypeU",
    "backends.nervanacpu.CPUTensor.__setitem__": "called by brackets, which have no names",
    "backends.nervanacpu.NervanaCPU.zeros_like": "other, as NervanaGPU's; ary by name is taken too",
    "data.imagecaption.ImageCaption.nbatches": "a number, which gives itself when it is called, as in neon",
    "data.questionanswer.QA.nbatches": "a number, which gives itself when it is called, as in neon",
    "util.argparser.NeonArgparser.parse_args": "args first, as argparse has it; False first is taken for gen_be too",
    "backends.layer_gpu.Inception.__init__": "sizes of the output follow from the chains",
    "backends.nervanacpu.CPUTensor.__getitem__": "called by brackets, which have no names",
    "backends.nervanacpu.CPUTensor.__init__": "made by be.empty and the like, and by be.tensor_cls(be, array)",
    "backends.nervanacpu.NervanaCPU.empty_like": "other, as NervanaGPU's; ary by name is taken too",
    "data.questionanswer.BABI.load_data": "reads what the constructor was told; another task is another BABI",
    "display": "neon's is a method of its logger, with a self",
    "layers.container.LayerContainer.get_description": "keeps states unless told not to, as neon's models do",
    "layers.container.Seq2Seq.get_description": "keeps states unless told not to, as neon's models do",
    "layers.recurrent.BiRNN.bprop": "beta=1 there: each direction adds to deltas; here both replace them",
    "util.modeldesc.ModelDescription.find_layers": "gives descriptions; layers(field, regex) gives neon's list",
    **dict.fromkeys(
        (f"data.dataloader_transformers.{name}.__init__" for name in (
            "BGRMeanSubtract", "DumpImage", "OneHot", "PixelWiseOneHot", "Retuple", "TypeCast", "ValueNormalize"
        )),
        "neon hands further arguments to a base class that takes none",
    ),
    "transforms.cost.MultiMetric.__call__": "calcrange is the one further argument that metrics take",
    "layers.layer.SkipNode.fprop": "a forward pass without inputs has none to pass on",
}
"""Functions that are there, and take other arguments or mean something else."""

_BUFFERS = "an iterator's own buffers: what it yields is on the backend"
ATTRIBUTES: dict[str, dict[str, str]] = {
    "ArrayIterator": {"dbuf": _BUFFERS, "hbuf": _BUFFERS, "unpack_func": _BUFFERS},
    "BatchNorm": {
        "error_view": _VIEWS,
        "relu": "an argument of the primitive; the rectifier is the layer behind",
        "x": "inputs is what it was given; views are made where they are needed",
        "xhat": "computed again in the backward pass",
    },
    "Benchmark": {"end": "times of calls are given back", "start": "times of calls are given back"},
    "BiBNRNN": {
        "allparams": "parameter_names says which attributes are parameters",
        "ngLayer": _MKL,
        "params": "get_params gives them, with gradients and states",
        "xmean": "made in the primitive, from the sum",
        "xvar": "of the batch alone: gvar is the running one",
    },
    "Callbacks": {
        "epoch_marker": "counted in the store of records",
        "epoch_minibatches": "counted in the store of records",
    },
    "Encoder": {
        "accumulate_updates": "an argument of allocate, which hands it on to layers",
        "global_deltas": "handed to layers where error buffers are made",
    },
    "GeneralizedCost": {"parallelism": "costs are computed on one device"},
    "GRU": {"h_ff_buffer": "gates take its place: rzhcan_buffer"},
    "LSTM": {"h_ff_buffer": "gates take its place: ifog_buffer"},
    "LookupTable": {
        "accumulate_updates": "its gradient replaces the one before, in neon too",
        "nsteps": "a second size, which neon does not use either",
    },
    "LRN": {"J": "depth is its size", "lrnparams": "nglayer has the sizes"},
    "MergeSum": {"ngLayer": _MKL},
    "MergeBroadcast": {"ngLayer": _MKL},
    "Model": {
        "params": "those of its layers: model.layers.get_params()",
        "states": "those of its layers, beside the parameters",
    },
    "Multicost": {"inputs": "those of its costs, which neon leaves None"},
    "ProgressBarCallback": {
        "last_update": "a private time, kept while a bar is drawn",
        "nbatches": "those of the model in training",
        "start_epoch": "a private time, kept while a bar is drawn",
    },
    "Sequential": {
        "accumulate_updates": "an argument of allocate, which hands it on to layers",
        "global_deltas": "handed to layers where error buffers are made",
    },
}
"""Attributes of living objects, by the class."""

_TRUE_GRADIENT = "has its true gradient after every activation, in neon's dialect y - t, with a warning"
_DOWNLOAD = "many addresses of that time are no longer served: the message says where to put the file"
MEANT: dict[str, str] = {
    "backends.backend.OpTreeNode": "a tuple in neon's dialect alone; as_tuple() makes one",
    "backends.nervanagpu.NervanaGPU": "on PyCUDA, with kernels of this library; its speed on a real GPU is unknown",
    "backends.nervanamkl.MKLTensor": "the CPU's tensor under another name",
    "backends.nervanamkl.NervanaMKL": "the CPU backend under another name: there is no MKL engine",
    "backends.util.check_mkl.get_mkl_lib": "0 always, as there is no MKL engine",
    "layers.BatchNormAutodiff": "gives the results of BatchNorm; neon's raises an error",
    "layers.BiBNRNN": "its gradient is that of its outputs; neon's is not",
    "layers.MergeBroadcast": "alphas count; neon's CPU backend drops them",
    "layers.Pooling": 'op="l2" has a gradient, too',
    "initializers.Orthonormal": "draws from be.rng, so that rng_seed counts; neon draws from NumPy's global numbers",
    "transforms.CrossEntropyBinary": _TRUE_GRADIENT,
    "transforms.CrossEntropyMulti": _TRUE_GRADIENT,
    "optimizers.PolySchedule": "decays; neon divides whole numbers, so that its rate stays",
    "models.Model": "reads files without running anything in them; writes arrays and JSON, but for names such as m.p",
    "data.ArrayIterator": "begins anew after an epoch that ended exactly; neon's leaves the first samples out then",
    **{f"data.{name}": _DOWNLOAD for name in (
        "MNIST", "CIFAR10", "Shakespeare", "PTB", "HutterPrize", "IMDB", "SICK", "BABI", "Flickr8k", "Flickr30k", "Coco"
    )},
    "data.aeon_shim.AeonDataLoader": "needs aeon, which this library does not install",
    "util.persist.load_obj": "reads arrays, numbers and plain containers; a pickle that would run code is refused",
}  # fmt: skip
"""Names that take neon's arguments and do something else with them."""
