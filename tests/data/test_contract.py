"""neon's names, arguments and module paths of data, as scripts use them."""

from __future__ import annotations

import importlib
import inspect

import pytest

from neonlike.compat import contract
from neonlike.nervanaobject import NervanaObject, load_class

ARGUMENTS = {
    "dataiterator.NervanaDataIterator": "name=None",
    "dataiterator.ArrayIterator": "X, y=None, nclass=None, lshape=None, make_onehot=True, name=None",
    "hdf5iterator.HDF5Iterator": "hdf_filename, name=None",
    "hdf5iterator.HDF5IteratorOneHot": "hdf_filename, name=None",
    "hdf5iterator.HDF5IteratorAutoencoder": "hdf_filename, name=None",
    "datasets.Dataset": "filename, url, size, path='.', subset_pct=100",
    "datasets.Dataset.fetch_dataset": "url, sourcefile, destfile, totalsz",
    "image.MNIST": "path='.', subset_pct=100, normalize=True, sym_range=False, size=28, shuffle=False",
    "image.CIFAR10": "path='.', subset_pct=100, normalize=True, contrast_normalize=False, whiten=False, "
    "pad_classes=False",
    "image.DUMMY": "path='.', subset_pct=100, normalize=True, contrast_normalize=False, whiten=False, "
    "pad_classes=False, batch_size=128",
    "text.Shakespeare": "timesteps, path='.'",
    "text.PTB": "timesteps, path='.', onehot_input=True, tokenizer=None, reverse_target=False, get_prev_target=False",
    "text.HutterPrize": "path='.'",
    "text.IMDB": "vocab_size, sentence_length, path='.'",
    "text.SICK": "path='SICK_data/'",
    "text.Text": "time_steps, path, vocab=None, tokenizer=None, onehot_input=True, reverse_target=False, "
    "get_prev_target=False",
    "text.Text.create_valid_file": "path, valid_split=0.1",
    "text.TextNMT": "time_steps, path, tokenizer=None, onehot_input=False, get_prev_target=False, split=None, "
    "dataset='un2000', subset_pct=100",
    "text_preprocessing.clean_string": "base",
    "text_preprocessing.pad_sentences": "sentences, sentence_length=None, dtype=<class 'numpy.int32'>, pad_val=0.0",
    "text_preprocessing.pad_data": "path, vocab_size=20000, sentence_length=100, oov=2, start=1, index_from=3, "
    "seed=113, test_split=0.2",
    "text_preprocessing.get_paddedXY": "X, y, vocab_size=20000, sentence_length=100, oov=2, start=1, index_from=3, "
    "seed=113, shuffle=True",
    "text_preprocessing.get_google_word2vec_W": "fname, vocab, vocab_size=1000000, index_from=3",
    "questionanswer.BABI": "path='.', task='qa1_single-supporting-fact', subset='en'",
    "questionanswer.QA": "story, query, answer",
    "imagecaption.ImageCaption": "path, max_images=-1",
    "imagecaption.ImageCaptionTest": "path, max_images=-1",
    "imagecaption.Flickr8k": "path='.', max_images=-1",
    "imagecaption.Flickr30k": "path='.', max_images=-1",
    "imagecaption.Coco": "path='.', max_images=-1",
    "ticker.CopyTask": "seq_len_max, vec_size",
    "ticker.RepeatCopyTask": "seq_len_max, repeat_count_max, vec_size",
    "ticker.PrioritySortTask": "seq_len_max, vec_size",
    "ticker.Ticker": "task",
    "dataloader_transformers.DataLoaderTransformer": "dataloader, index=None",
    "dataloader_transformers.OneHot": "dataloader, index, nclasses",
    "dataloader_transformers.PixelWiseOneHot": "dataloader, index, nclasses",
    "dataloader_transformers.TypeCast": "dataloader, index, dtype",
    "dataloader_transformers.Retuple": "dataloader, data=(0,), target=(1,)",
    "dataloader_transformers.BGRMeanSubtract": "dataloader, index, pixel_mean=(127, 119, 104)",
    "dataloader_transformers.ValueNormalize": "dataloader, index, source_range=(0.0, 255.0), target_range=(0.0, 1.0)",
    "dataloader_transformers.DumpImage": "dataloader, index, image_index, outshape, output_directory=None",
    "dataloaderadapter.DataLoaderAdapter": "dataloader",
    "aeon_shim.AeonDataLoader": "config, adapter=True",
}
MEMBERS = {
    "Dataset": "load_data gen_iterators data_dict get_iterator train_iter valid_iter test_iter load_zip fetch_dataset "
    "serialize _valid_path_append",
    "Text": "create_valid_file get_tokens get_vocab",
    "HDF5Iterator": "allocate allocate_inputs allocate_outputs gen_input gen_output cleanup reset",
    "CIFAR10": "zca_whiten global_contrast_normalize",
    "ImageCaption": "prob_to_word bleu_score",
    "ImageCaptionTest": "predict prob_to_word bleu_score",
    "Task": "fetch_io fill_buffers synthesize",
    "SICK": "load_eval_data",
    "PTB": "newline_tokenizer",
}


def arguments(thing):
    return ", ".join(
        name if p.default is p.empty else f"{name}={p.default!r}"
        for name, p in inspect.signature(thing).parameters.items()
    )


@pytest.mark.parametrize("path", ARGUMENTS)
def test_arguments_are_neons(path):
    assert arguments(contract.resolve(f"neon.data.{path}") if path.count(".") == 1 else member(path)) == ARGUMENTS[path]


def member(path):
    cls, _, name = path.rpartition(".")
    return getattr(contract.resolve(f"neon.data.{cls}"), name)


@pytest.mark.parametrize("name", MEMBERS)
def test_members_are_there(name):
    found = contract.resolve(f"neon.data.{name}")
    assert [member for member in MEMBERS[name].split() if not hasattr(found, member)] == []


def test_every_class_is_where_its_public_path_says():
    """Saved experiments name data sets by these paths, and neon's by theirs."""
    classes = [contract.resolve(f"neon.data.{path}") for path in ARGUMENTS if path.count(".") == 1]
    described = [cls for cls in classes if isinstance(cls, type) and issubclass(cls, NervanaObject)]
    assert len(described) > 25
    for cls in described:
        path = next(path for path in ARGUMENTS if path.endswith(f".{cls.__name__}"))
        module = importlib.import_module(f"neonlike.data.{path.rpartition('.')[0]}")
        assert vars(module).get(cls.__name__) is cls, path
        assert (
            f"{getattr(inspect.getmodule(cls), '__public_module__', cls.__module__)}.{cls.__name__}"
            == f"neonlike.data.{path}"
        )
        if cls.from_description:
            assert load_class(f"neon.data.{path}") is cls
