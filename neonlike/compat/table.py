"""The table of neon's module paths and names, with the places of names that this library defines elsewhere.

A key is a neon path without the leading ``neon.`` (``""`` is ``neon`` itself). A row lists the names that scripts
import from there. The module ``neonlike.<key>`` provides them; ``homes`` are further modules of this library, searched
in order for names that it does not define. Missing names are not listed: they are the names found in none of these
modules.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A module path of neon: the ``names`` that it exports, and the ``homes`` that may define them."""

    names: frozenset[str]
    homes: tuple[str, ...] = ()


def _row(names: str = "", homes: str = "") -> Row:
    return Row(frozenset(names.split()), tuple(homes.split()))


_LEAF_LAYERS = """
    Linear Bias Affine Conv Convolution GeneralizedCost Dropout Pooling Activation DataTransform BatchNorm
    BatchNormAutodiff ShiftBatchNorm Deconv Deconvolution GeneralizedCostMask LookupTable BranchNode SkipNode
    LRN BinaryAffine BinaryLinear Reshape RoiPooling GeneralizedGANCost"""
_RECURRENT_LAYERS = """
    Recurrent LSTM GRU RecurrentSum RecurrentMean RecurrentLast BiRNN BiBNRNN BiLSTM DeepBiRNN DeepBiLSTM"""
_CONTAINERS = """
    Tree Sequential MergeMultistream MergeBroadcast Multicost MergeSum SingleOutputTree Seq2Seq SkipThought"""
_INITIALIZERS = "Array Constant Gaussian GlorotUniform IdentityInit Kaiming Orthonormal Uniform Xavier"
_ACTIVATIONS = """
    Identity Explin Rectlin Rectlinclip Sign Softmax Tanh Logistic Normalizer PixelwiseSoftmax"""
_COSTS = """
    CrossEntropyBinary CrossEntropyMulti SumSquared MeanSquared SmoothL1Loss SquareHingeLoss GANCost
    LogLoss Misclassification TopKMisclassification Accuracy PrecisionRecall ObjectDetection BLEUScore"""
_OPTIMIZERS = """
    GradientDescentMomentum RMSProp Adagrad Adadelta Adam ShiftAdaMax MultiOptimizer
    Schedule StepSchedule PowerSchedule ExpSchedule PolySchedule ShiftSchedule"""
_CALLBACKS = """
    Callbacks Callback TrainCostCallback TrainMulticostCallback LossCallback MetricCallback
    MultiLabelStatsCallback SerializeModelCallback RunTimerCallback ProgressBarCallback TrainLoggerCallback
    SaveBestStateCallback EarlyStopCallback HistCallback DeconvCallback BatchNormTuneCallback
    WatchTickerCallback GANCostCallback"""
_ITERATORS = "NervanaDataIterator ArrayIterator"
_HDF5_ITERATORS = "HDF5Iterator HDF5IteratorOneHot HDF5IteratorAutoencoder"
_TEXTS = "Text Shakespeare PTB HutterPrize IMDB SICK"
_QUESTIONS = "BABI QA"
_TICKERS = "Ticker CopyTask RepeatCopyTask PrioritySortTask"
_CAPTIONS = "ImageCaption ImageCaptionTest Flickr8k Flickr30k Coco"
_IMAGES = "MNIST CIFAR10 DUMMY"
_LAYER_RECORDS = "ConvLayer DeconvLayer PoolLayer"

CONTRACT: dict[str, Row] = {
    "": _row("NervanaObject logger get_args display DISPLAY_LEVEL_NUM __version__", "nervanaobject logger version"),
    "backends": _row("gen_backend cleanup_backend Autodiff"),
    "backends.backend": _row("Tensor Backend OpTreeNode OpCollection Block", "backends compat.op_collection"),
    "backends.abstract_backend": _row("AbstractBackend Backend_ABC_Meta", "backends.backend"),
    "backends.nervanacpu": _row(
        "NervanaCPU CPUTensor CustomNumpy", "backends.cpu.backend backends.cpu.tensor compat.numpy_names"
    ),
    "backends.nervanagpu": _row("NervanaGPU GPUTensor"),
    "backends.nervanamkl": _row("NervanaMKL MKLTensor", "backends.cpu.backend"),
    "backends.autodiff": _row("Autodiff GradUtil GradNode grad_map", "optree.autodiff"),
    "backends.layer_cpu": _row(_LAYER_RECORDS, "compat.layer_gpu"),
    "backends.layer_gpu": _row(_LAYER_RECORDS + " DataLayer FullLayer Inception BatchNorm Layer", "compat.layer_gpu"),
    "backends.layer_mkl": _row(_LAYER_RECORDS, "compat.layer_gpu"),
    "backends.util": _row(),
    "backends.util.check_gpu": _row("get_compute_capability get_device_count ensure_gpu_capability"),
    "backends.util.check_mkl": _row("get_mkl_lib"),
    "layers": _row(_LEAF_LAYERS + _RECURRENT_LAYERS + _CONTAINERS),
    "layers.layer": _row(
        _LEAF_LAYERS + " Layer ParameterLayer CompoundLayer Convolution_bias interpret_in_shape", "layers"
    ),
    "layers.container": _row(
        _CONTAINERS + " DeltasTree LayerContainer Broadcast Encoder Decoder GenerativeAdversarial flatten pairwise",
        "layers",
    ),
    "layers.recurrent": _row(
        _RECURRENT_LAYERS + " BiSum RecurrentOutput get_steps interpret_in_shape", "layers layers.layer"
    ),
    "initializers": _row(_INITIALIZERS),
    "initializers.initializer": _row(_INITIALIZERS + " Initializer", "initializers"),
    "transforms": _row(_ACTIVATIONS + _COSTS),
    "transforms.activation": _row(_ACTIVATIONS, "transforms"),
    "transforms.cost": _row(_COSTS + " Cost Metric MultiMetric", "transforms"),
    "transforms.transform": _row("Transform", "transforms transforms.activation"),
    "optimizers": _row(_OPTIMIZERS),
    "optimizers.optimizer": _row(_OPTIMIZERS + " Optimizer get_param_list", "optimizers"),
    "models": _row("Model"),
    "models.model": _row("Model GAN", "models"),
    "callbacks": _row(_CALLBACKS + " GANPlotCallback", "callbacks.callbacks callbacks.plotting_callbacks"),
    "callbacks.callbacks": _row(_CALLBACKS + " get_progress_string"),
    "callbacks.plotting_callbacks": _row("GANPlotCallback"),
    "data": _row(
        "Dataset " + " ".join((_ITERATORS, _HDF5_ITERATORS, _TEXTS, _QUESTIONS, _TICKERS, _CAPTIONS, _IMAGES))
    ),
    "data.datasets": _row("Dataset", "data"),
    "data.dataiterator": _row(_ITERATORS, "data"),
    "data.hdf5iterator": _row(_HDF5_ITERATORS, "data"),
    "data.image": _row(_IMAGES, "data"),
    "data.text": _row(_TEXTS + " TextNMT", "data"),
    "data.text_preprocessing": _row("clean_string pad_sentences pad_data get_paddedXY get_google_word2vec_W"),
    "data.questionanswer": _row(_QUESTIONS, "data"),
    "data.ticker": _row(_TICKERS + " Task", "data"),
    "data.imagecaption": _row(_CAPTIONS, "data"),
    "data.dataloader_transformers": _row(
        "DataLoaderTransformer OneHot PixelWiseOneHot TypeCast Retuple BGRMeanSubtract ValueNormalize DumpImage"
    ),
    "data.dataloaderadapter": _row("DataLoaderAdapter"),
    "data.aeon_shim": _row("AeonDataLoader"),
    "data.indexer": _row("Indexer"),
    "data.convert_manifest": _row("convert_manifest"),
    "util": _row(),
    "util.argparser": _row("NeonArgparser extract_valid_args", "experiments.argparser"),
    "util.persist": _row(
        "save_obj load_obj load_class serialize ensure_dirs_exist get_cache_dir get_data_cache_dir "
        "get_data_cache_or_nothing"
    ),
    "util.beamsearch": _row("BeamSearch", "models.beam"),
    "util.compat": _row("PY3 xrange pickle pickle_load"),
    "util.modeldesc": _row("ModelDescription"),
    "util.yaml_parse": _row("create_objects format_yaml_dict", "experiments.yaml_parse"),
    "util.load_experiment": _row("deserialize", "experiments.load_experiment"),
    "util.shelver": _row("atomic_shelve"),
    "util.display_information": _row("display_model_params display_cpu_information display_platform_information"),
    "util.update_dataset_cache": _row(),
    "benchmark": _row("Benchmark"),
    "benchmark.benchmark": _row("Benchmark", "benchmark"),
    "visualizations": _row(),
    "visualizations.data": _row(
        "h5_cost_data h5_hist_data h5_deconv_data create_minibatch_x create_epoch_x convert_rgb_to_bokehrgba"
    ),
    "visualizations.figure": _row(),
}
"""neon's public modules in the order of its documentation; submodules have keys of their own."""
