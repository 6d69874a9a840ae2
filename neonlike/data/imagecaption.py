"""Image captions: sentences that describe images given by precomputed features (Karpathy, Fei-Fei 2015).

A folder has ``dataset.json`` with the sentences of each image and ``vgg_feats.mat`` with its 4096 features; or both in
``features.pkl.gz``, as in neon's archives.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from neonlike.data.datasets import Dataset, unpack
from neonlike.data.drawing import DrawsEachEpoch
from neonlike.data.protocol import ArrayShapeError, Batches, DamagedData, HostIterator, MissingData, Predictor, columns
from neonlike.errors import MissingExtra
from neonlike.logger import logger
from neonlike.optree.functions import onehot
from neonlike.transforms.bleu import BLEUScore
from neonlike.util.persist import TEXT, expand, load_obj

__all__ = ["Coco", "Flickr8k", "Flickr30k", "ImageCaption", "ImageCaptionTest"]

END = "."
"""Token that ends each sentence."""
SENTENCES, FEATURES, PICKLED = "dataset.json", "vgg_feats.mat", "features.pkl.gz"
LEAST_USES = 5
"""Minimum count of a word in the training sentences of ``features.pkl.gz`` for the vocabulary, as in neon."""


class _Captions(HostIterator):
    """Base of both iterators: files, vocabulary, and conversion of probabilities to words.

    Attributes
    ----------
    vocab : list of str
        Words of the training sentences, end token first; for ``features.pkl.gz`` the frequent ones.
    end_token : str
    sent_data : list of dict
        ``split``, ``row`` of the features, and ``sentences`` (lists of words) of each image in the part.
    vocab_size, image_size, max_sentence_length : int
    word_to_index, index_to_word : dict
    bias_init : ndarray
        ``(vocab_size, 1)``: log-frequencies of the words minus the largest, as initial values of the last bias.
    """

    from_description = False  # construction reads files
    end_token = END

    def __init__(self, path: str | os.PathLike[str], max_images: int = -1) -> None:
        super().__init__()
        self.path, self.max_images = os.fspath(path), max_images
        folder = expand(path)
        is_neons = os.path.exists(os.path.join(folder, PICKLED))
        images = self._read(folder, is_neons)
        training = [image for image in images if image["split"] in ("train", "restval")]
        if not training:
            raise DamagedData(f"{os.path.join(folder, SENTENCES)} has no images to train with (split 'train')")
        counts = Counter(word for image in training for words in image["sentences"] for word in words)
        if is_neons:
            counts = Counter({word: uses for word, uses in counts.items() if uses >= LEAST_USES})
        self.vocab = [END, *sorted(set(counts) - {END})]
        self.vocab_size, self.image_size = len(self.vocab), self.features.shape[1]
        self.word_to_index = {word: index for index, word in enumerate(self.vocab)}
        self.index_to_word = dict(enumerate(self.vocab))
        self.max_sentence_length = max(len(words) for image in training for words in image["sentences"])
        counts[END] = sum(len(image["sentences"]) for image in training)
        frequencies = np.log(np.array([counts[word] for word in self.vocab], np.float32) / counts.total())
        self.bias_init = (frequencies - frequencies.max()).reshape(-1, 1)
        image: Any = self.image_size if is_neons else (self.image_size, 1)
        self.shape = [image, (self.vocab_size, self.max_sentence_length)]
        self.images = self.sent_data = self._chosen(images)[: max_images if max_images >= 0 else None]

    def _read(self, folder: str, is_neons: bool) -> list[dict[str, Any]]:
        """Read the images of a folder; their features are stored in ``features``."""
        if is_neons:
            images, self.features = _read_pickled(os.path.join(folder, PICKLED))
        else:
            images = _read_sentences(os.path.join(folder, SENTENCES))
            self.features = _read_features(os.path.join(folder, FEATURES))
        if not all(0 <= image["row"] < len(self.features) for image in images):
            raise DamagedData(f"{folder}: there are images that the features, of {len(self.features)}, lack")
        return images

    def iterSentences(self) -> Iterator[dict[str, Any]]:  # noqa: N802  neon's name, as of the next two
        """Yield ``{"tokens": words}`` for each sentence."""
        return ({"tokens": words} for image in self.images for words in image["sentences"])

    def iterImageSentencePair(self) -> Iterator[dict[str, Any]]:  # noqa: N802
        """Yield ``{"image": features, "sentence": {"tokens": words}}`` for each sentence."""
        for group in self.iterImageSentenceGroup():
            for sentence in group["sentences"]:
                yield {"image": group["image"], "sentence": sentence}

    def iterImageSentenceGroup(self) -> Iterator[dict[str, Any]]:  # noqa: N802
        """Yield ``{"image": features, "sentences": [{"tokens": words}, ...]}`` for each image."""
        for image in self.images:
            sentences = [{"tokens": words} for words in image["sentences"]]
            yield {"image": self.features[image["row"]], "sentences": sentences}

    def _chosen(self, images: list[Any]) -> list[Any]:
        raise NotImplementedError

    def _numbers(self, words: Sequence[str]) -> np.ndarray:
        """Numbers of a sentence's known words, cut to the maximum length."""
        known = [self.word_to_index[word] for word in words if word in self.word_to_index]
        return np.array(known[: self.max_sentence_length], np.int32)

    def reset(self) -> None:
        """Restart at the first sample, as each epoch does."""

    def allocate_buffers(self) -> None:
        """Allocate the buffers on the current backend, for its batch size."""
        steps = self.max_sentence_length
        self.dev_image = self.be.iobuf(self.image_size)
        self.dev_sentence = self.be.iobuf((self.vocab_size, steps))
        self.dev_numbers = self.be.iobuf(steps, dtype=np.int32)

    def _set_words(self, buffer: Any, numbers: Any, host: np.ndarray) -> None:
        """Write one-hot columns of word numbers ``(steps, N)``; negative numbers give zeros."""
        numbers.set(np.ascontiguousarray(host))
        buffer[:] = onehot(numbers.reshape((1, host.size)), 0, self.be, checked=False)

    def prob_to_word(self, prob: np.ndarray) -> list[str]:
        """Convert probabilities ``(vocab_size, T*N)`` to sentences: the likeliest words up to the end token."""
        best = np.asarray(prob).argmax(axis=0).reshape(-1, self.be.bsz)
        return [self._sentence(column) for column in best.T]

    def _sentence(self, numbers: Sequence[int]) -> str:
        words = []
        for number in numbers:
            if number == 0:
                break
            words.append(self.index_to_word[int(number)])
        return " ".join(words)

    def bleu_score(self, sents: Sequence[str], targets: Sequence[Sequence[str]]) -> list[float]:
        """Compute and show BLEU-1 to BLEU-4 (0 to 100) of sentences against references (Papineni et al. 2002).

        Parameters
        ----------
        sents : list of str
            Generated sentences.
        targets : list of lists of str
            References of each.
        """
        metric = BLEUScore()
        metric(sents, targets, brevity_penalty=True)
        scores = metric.bleu_n
        logger.display("BLEU-1 to BLEU-%d: %s", len(scores), ", ".join(f"{score:.2f}" for score in scores))
        return scores


class ImageCaption(DrawsEachEpoch, _Captions):
    """Training batches ``(image, sentence), (targets, mask)``, one sample per sentence.

    The image is the first step of the sequence, followed by the words; the target of a step is the next word, or the
    end token. So targets have one step more than the sentence, like the result of ``MergeMultistream([...],
    merge="recurrent")`` for the two inputs. Steps after the end do not count: their mask is zero.

    Parameters
    ----------
    path : folder
        Folder with ``dataset.json`` and ``vgg_feats.mat``, or with ``features.pkl.gz``.
    max_images : int
        Maximum number of images; −1: all.

    Attributes
    ----------
    shape : list
        ``[(4096, 1), (vocab_size, max_sentence_length)]``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import ImageCaption
    >>> be = gen_backend("cpu", batch_size=2)
    >>> data = ImageCaption("data/flickr8k")  # doctest: +SKIP
    >>> for (image, sentence), (targets, mask) in data:  # doctest: +SKIP
    ...     print(image.shape, targets.shape)
    """

    shares = True

    def __init__(self, path: str | os.PathLike[str], max_images: int = -1) -> None:
        super().__init__(path, max_images)
        self._samples = [(image["row"], words) for image in self.images for words in image["sentences"]]
        self.ndata = len(self._samples)
        self._check_size(self.ndata)

    def _chosen(self, images: list[Any]) -> list[Any]:
        return [image for image in images if image["split"] in ("train", "restval")]

    @property
    def nbatches(self) -> Batches:
        """Batches per epoch; an incomplete last batch is dropped."""
        return Batches(self.ndata // self._batch_size())

    def allocate_buffers(self) -> None:
        """Allocate the buffers on the current backend, for its batch size."""
        super().allocate_buffers()
        steps = self.max_sentence_length + 1
        self.dev_targets = self.be.iobuf((self.vocab_size, steps))
        self.dev_mask = self.be.iobuf((self.vocab_size, steps))
        self._target_numbers = self.be.iobuf(steps, dtype=np.int32)
        self._step_mask = self.be.iobuf(steps)

    def host_batches(self) -> Iterator[Any]:
        """Features, and word numbers of inputs and targets ``(T, N)``, −1 for no word."""
        order = np.random.RandomState(self.epoch_seed).permutation(self.ndata)
        size, own, longest = self._batch_size(), self.be.own_columns, self.max_sentence_length
        for batch in range(self.nbatches):
            chosen = [self._samples[i] for i in order[batch * size :][own]]
            inputs = np.full((longest, len(chosen)), -1, np.int32)
            targets = np.full((longest + 1, len(chosen)), -1, np.int32)
            for column, (_, words) in enumerate(chosen):
                numbers = self._numbers(words)
                inputs[: len(numbers), column] = targets[: len(numbers), column] = numbers
                targets[len(numbers), column] = 0
            yield self.features[[row for row, _ in chosen]], inputs, targets

    def load(self, batch: Any) -> tuple[Any, Any]:
        """Inputs and targets on the backend."""
        features, inputs, targets = batch
        self.dev_image.set(columns(features, self.dev_image.dtype))
        self._set_words(self.dev_sentence, self.dev_numbers, inputs)
        self._set_words(self.dev_targets, self._target_numbers, targets)
        self._step_mask.set((targets >= 0).astype(self._step_mask.dtype))
        self.dev_mask[:] = self._step_mask.reshape((1, targets.size))
        return (self.dev_image, self.dev_sentence), (self.dev_targets, self.dev_mask)


class ImageCaptionTest(_Captions):
    """Test batches ``(image, sentence), [sentences]`` with all sentences of each image.

    The sentence on the backend is empty; :meth:`predict` generates it word by word.

    Parameters
    ----------
    path : folder
        Folder as of :class:`ImageCaption`.
    max_images : int
        Maximum number of images; −1: all.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import ImageCaptionTest
    >>> be = gen_backend("cpu", batch_size=2)
    >>> data = ImageCaptionTest("data/flickr8k")  # doctest: +SKIP
    >>> sentences, references = data.predict(model)  # doctest: +SKIP
    """

    shares = True

    def __init__(self, path: str | os.PathLike[str], max_images: int = -1) -> None:
        super().__init__(path, max_images)
        self.ndata = len(self.images)
        if not self.ndata:
            raise ArrayShapeError(f"ImageCaptionTest: {path} has no images to test with (split 'test')")

    def _chosen(self, images: list[Any]) -> list[Any]:
        return [image for image in images if image["split"] == "test"]

    @property
    def nbatches(self) -> Batches:
        """Batches per epoch; the last one is padded with zeros."""
        return Batches(math.ceil(self.ndata / self._batch_size()))

    def host_batches(self) -> Iterator[Any]:
        """Features, and the reference sentences of each image."""
        own = self.be.own_columns
        for first in range(0, self.ndata, self._batch_size()):
            chosen = self.images[first + own.start : first + own.stop]
            features = np.zeros((own.stop - own.start, self.image_size), np.float32)
            features[: len(chosen)] = self.features[[image["row"] for image in chosen]]
            yield features, [[" ".join(words) for words in image["sentences"]] for image in chosen]

    def load(self, batch: Any) -> tuple[Any, Any]:
        """Copy the inputs to the backend, and return them with the sentences."""
        features, sentences = batch
        self.dev_image.set(columns(features, self.dev_image.dtype))
        self.dev_sentence.fill(0)
        return (self.dev_image, self.dev_sentence), sentences

    def predict(self, model: Predictor) -> tuple[list[str], list[list[str]]]:
        """Describe each image with the likeliest word at each step; several ranks tell each other their sentences.

        Parameters
        ----------
        model : Model
            A trained model.

        Returns
        -------
        sents, targets
            A generated sentence for each image, and its reference sentences.
        """
        batches: list[list[tuple[str, list[str]]]] = []
        for inputs, sentences in self:
            sents = map(self._sentence, self._describe(model, inputs))
            batches.append(list(zip(sents, sentences)))
        by_rank = self.be.ranks.tell(batches, "captions")
        found = [pair for parts in zip(*by_rank, strict=True) for part in parts for pair in part]
        return [sentence for sentence, _ in found], [references for _, references in found]

    def _describe(self, model: Predictor, inputs: Any) -> np.ndarray:
        """Word numbers ``(N, T)`` for a batch."""
        bsz = self.be.bsz
        numbers = np.full((self.max_sentence_length, bsz), -1, np.int32)
        for step in range(self.max_sentence_length):
            self._set_words(self.dev_sentence, self.dev_numbers, numbers)
            prob = model.fprop(inputs, inference=True)[:, step * bsz : (step + 1) * bsz]
            numbers[step] = prob.get().argmax(axis=0)
        return numbers.T


class _CaptionDataset(Dataset):
    """Base of the three data sets.

    Parameters
    ----------
    path : folder
        Folder that contains a folder of the data set's name with the two files, or an archive of that name.
    max_images : int
        Maximum number of images per part; −1: all.
    """

    NAME: str

    def __init__(self, path: str | os.PathLike[str] = ".", max_images: int = -1) -> None:
        super().__init__(f"{self.NAME}.zip", "https://cs.stanford.edu/people/karpathy/deepimagesent", 0, path)
        self.max_images = max_images

    def load_data(self) -> str:
        """Path of the folder with the two files, or with neon's file."""
        pickled, *paths = self._valid_path_append(
            self.path, *(os.path.join(self.NAME, file) for file in (PICKLED, SENTENCES, FEATURES))
        )
        if not any(map(os.path.exists, (pickled, *paths))):
            unpack(self.load_zip(self.filename, 0))
        if not os.path.exists(pickled):
            for file in (SENTENCES, FEATURES):
                self.find(f"{self.NAME}/{file}", self.filename)
        return os.path.dirname(pickled)

    def gen_iterators(self) -> dict[str, Any]:
        """``train`` and ``test``."""
        folder = self.load_data()
        return {"train": ImageCaption(folder, self.max_images), "test": ImageCaptionTest(folder, self.max_images)}


class Flickr8k(_CaptionDataset):
    """8,000 photographs with five sentences each (Hodosh, Young, Hockenmaier 2013).

    Parameters
    ----------
    path : folder
        Folder that contains the folder ``flickr8k``, or an archive of that name.
    max_images : int
        Maximum number of images per part; −1: all.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import Flickr8k
    >>> be = gen_backend("cpu", batch_size=2)
    >>> flickr = Flickr8k("data")
    >>> train, test = flickr.train_iter, flickr.test_iter  # doctest: +SKIP
    """

    NAME = "flickr8k"


class Flickr30k(_CaptionDataset):
    """31,000 photographs with five sentences each (Young et al. 2014).

    Parameters
    ----------
    path : folder
        Folder that contains the folder ``flickr30k``, or an archive of that name.
    max_images : int
        Maximum number of images per part; −1: all.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import Flickr30k
    >>> be = gen_backend("cpu", batch_size=2)
    >>> flickr = Flickr30k("data")
    >>> train, test = flickr.train_iter, flickr.test_iter  # doctest: +SKIP
    """

    NAME = "flickr30k"


class Coco(_CaptionDataset):
    """123,000 photographs with five sentences each (Lin et al. 2014).

    Parameters
    ----------
    path : folder
        Folder that contains the folder ``coco``, or an archive of that name.
    max_images : int
        Maximum number of images per part; −1: all.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import Coco
    >>> be = gen_backend("cpu", batch_size=2)
    >>> coco = Coco("data", max_images=1000)
    >>> train, test = coco.train_iter, coco.test_iter  # doctest: +SKIP
    """

    NAME = "coco"


def _read_sentences(path: str) -> list[dict[str, Any]]:
    """Images of ``dataset.json``: ``split``, ``row`` of the features, and ``sentences`` as lists of words."""
    if not os.path.exists(path):
        raise MissingData(f"there is no file {path}")
    try:
        with open(path, encoding=TEXT) as file:
            images = json.load(file)["images"]
        return [_image(image["split"], row, image) for row, image in enumerate(images)]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedData(
            f"{path} is no list of images with sentences and a split, or not a whole one ({error!r})"
        ) from error


def _image(split: str, row: int, image: Any) -> dict[str, Any]:
    return {
        "split": split,
        "row": int(image.get("imgid", row)),
        "sentences": [[str(word) for word in sentence["tokens"]] for sentence in image["sentences"]],
    }


def _read_pickled(path: str) -> tuple[list[dict[str, Any]], np.ndarray]:
    """Read images and features ``(images, 4096)`` from a file of neon.

    It is a pickled dictionary: ``sents`` has lists of images by split, ``feats`` has a column per image.
    """
    try:
        content = load_obj(path)
        images = [
            _image(split, row, image) for split, part in content["sents"].items() for row, image in enumerate(part)
        ]
        return images, np.ascontiguousarray(np.asarray(content["feats"]).T, dtype=np.float32)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError) as error:
        raise DamagedData(f"{path} has no sents by split and feats, or is not a whole file ({error!r})") from error


def _read_features(path: str) -> np.ndarray:
    """Features of ``vgg_feats.mat``, ``(images, 4096)``; needs SciPy."""
    if not os.path.exists(path):
        raise MissingData(f"there is no file {path}")
    try:
        from scipy.io import loadmat
    except ImportError as error:
        raise MissingExtra(f"reading {path} needs SciPy; install it with: pip install scipy") from error
    try:
        return np.ascontiguousarray(loadmat(path)["feats"].T, dtype=np.float32)
    except Exception as error:  # a damaged file can raise any exception in SciPy's reader
        raise DamagedData(f"{path} is no MATLAB file with 'feats', or not a whole one ({error!r})") from error
