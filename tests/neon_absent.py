"""What neon has and this library has not, or has in another form: dotted names of neon's, and why. Tests read it.

The reasons are checked to be needed: a name that is there after all is no row.
"""

from __future__ import annotations

_MKL = "a hook of Intel MKL's engine, which neon called on no other"
_OWN = "a step of the constructor, whose results are attributes"
_TEXT = "a step of another class, offered by neonlike.data.text_preprocessing"
_CAPTIONS = "a step of reading a data set, whose results are attributes"
_VIEWS = "made views of buffers, which fprop makes here, and keeps"
_NAMES = "made names of the parts of a compound layer, which the parts have here"
_GROUPS = "a step of a callback, in functions of its module here"


def _rows(reason: str, prefix: str, names: str) -> dict[str, str]:
    return {f"{prefix}.{name}": reason for name in names.split()}


ABSENT: dict[str, str] = {
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
    **_rows("of the images to test with alone", "data.imagecaption", "ImageCaption.predict"),
    **_rows(_OWN, "data.questionanswer", "BABI.compute_statistics BABI.data_to_list BABI.flatten"),
    **_rows(_OWN, "data.questionanswer", "BABI.vectorize_stories"),
    **_rows("names of files that are attributes", "data.text", "PTB.gen_filename SICK.gen_filename SICK.gen_zipname"),
    **_rows(_TEXT, "data.text", "Text.pad_data Text.pad_sentences TextNMT.pad_data TextNMT.pad_sentences"),
    **_rows("no description: it makes a file", "data.indexer", "Indexer.classnm Indexer.gen_class Indexer.modulenm"),
    **_rows("no description: it makes a file", "data.indexer", "Indexer.get_description Indexer.recursive_gen"),
    **_rows("a step of a metric's call", "transforms.cost", "ObjectDetection.smoothL1"),
    **_rows("a step of the constructor", "util.argparser", "NeonArgparser.setup_default_args"),
    **_rows("a step of display_model_params", "util.display_information", "add_param_to_output"),
}
"""Methods and functions."""

OTHERWISE: dict[str, str] = {
    "backends.autodiff.Autodiff": "a class here, whose call neon's function is",
    "data.questionanswer.BABI.load_data": "reads what the constructor was told; another task is another BABI",
    "display": "neon's is a method of its logger, with a self",
    "layers.container.LayerContainer.get_description": "keeps states unless told not to, as neon's models do",
    "layers.recurrent.BiRNN.bprop": "beta=1 there: each direction adds to deltas; here both replace them",
    "util.modeldesc.ModelDescription.find_layers": "gives descriptions; layers(field, regex) gives neon's list",
    "data.dataloader_transformers.OneHot.__init__": "neon hands further arguments to a base class that takes none",
    "transforms.cost.MultiMetric.__call__": "calcrange is the one further argument that metrics take",
    "layers.layer.SkipNode.fprop": "a forward pass without inputs has none to pass on",
}
"""Functions that are there, and take other arguments or mean something else."""
