"""An iterator of each class of neonlike.data over few samples, each different, for ranks to share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from PIL import Image
from scipy.io import savemat

from neonlike.data import (
    QA,
    ArrayIterator,
    CopyTask,
    HDF5Iterator,
    HDF5IteratorAutoencoder,
    HDF5IteratorOneHot,
    ImageCaption,
    ImageCaptionTest,
    ImageFolder,
    Prefetch,
    PrioritySortTask,
    RepeatCopyTask,
    Text,
    TextNMT,
    Ticker,
)
from neonlike.data.dataloader_transformers import (
    BGRMeanSubtract,
    DumpImage,
    OneHot,
    PixelWiseOneHot,
    Retuple,
    TypeCast,
    ValueNormalize,
)
from neonlike.data.dataloaderadapter import DataLoaderAdapter

BATCH = 6
"""Samples in a batch of all ranks: two or three share it."""
WORDS = "a cat dog in on runs sees the sun under".split()


def vectors(ndata: int, features: int = 3) -> np.ndarray:
    return np.arange(ndata)[:, None] + np.arange(features) / 8


class Loader:
    """Batches of all ranks as an external loader has them: images, labels and labels of pixels, N first."""

    ndata, nbatches = 3 * BATCH, 3

    def shapes(self) -> list[tuple[int, ...]]:
        return [(3, 2, 2), (1,), (2, 2)]

    def reset(self) -> None:
        """Each epoch starts at the first sample."""

    def __iter__(self) -> Iterator[Any]:
        for number in range(self.nbatches):
            rng = np.random.default_rng(number)
            yield (
                rng.integers(0, 255, (BATCH, 3, 2, 2)).astype(np.uint8),
                rng.integers(0, 9, (BATCH, 1)).astype(np.int32),
                rng.integers(0, 9, (BATCH, 2, 2)).astype(np.int32),
            )


def array_file(folder: Path, ndata: int = 13) -> Path:
    path = folder / f"{ndata}.h5"
    if not path.exists():
        with h5py.File(path, "w") as file:
            file.create_dataset("input", data=vectors(ndata).astype(np.float32)).attrs["lshape"] = (3, 1, 1)
            file.create_dataset("output", data=np.arange(ndata)[:, None] % 7).attrs["nclass"] = 7
            file.create_dataset("mean", data=[1.0, 2.0, 3.0])
    return path


def pictures(folder: Path, ndata: int = 13) -> Path:
    root = folder / "pictures"
    for number in range(ndata):
        pixels = np.random.default_rng(number).integers(0, 255, (6, 7, 3)).astype(np.uint8)
        (root / "ab"[number % 2]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels).save(root / "ab"[number % 2] / f"{number:02}.png")
    return root


def story(folder: Path) -> Path:
    path = folder / "story.txt"
    path.write_text("".join(map(chr, 97 + np.random.default_rng(0).integers(0, 26, 3 * 4 * BATCH + 5))))
    return path


def translations(folder: Path) -> Path:
    with h5py.File(folder / "toy-train.h5", "w") as file:
        for name, seed in (("X", 1), ("y", 2)):
            file[name] = np.random.default_rng(seed).integers(0, 9, (2 * BATCH + 1, 4))
            file[f"{name.replace('X', 's').replace('y', 't')}_vocab"] = [word.encode() for word in WORDS]
    return folder


def captions(folder: Path, ndata: int = 2 * BATCH + 3) -> Path:
    rng = np.random.default_rng(0)
    images = [
        {"imgid": i, "split": split, "sentences": [{"tokens": list(rng.choice(WORDS, rng.integers(1, 5)))}]}
        for i, split in enumerate(["train"] * ndata + ["test"] * (BATCH + 1))
    ]
    (folder / "dataset.json").write_text(json.dumps({"images": images}))
    savemat(folder / "vgg_feats.mat", {"feats": rng.random((5, len(images))).astype(np.float32)})
    return folder


def questions() -> QA:
    rng = np.random.default_rng(0)
    story, query = (rng.integers(0, 50, (2 * BATCH + 3, words)) for words in (4, 2))
    return QA(story, query, vectors(2 * BATCH + 3))


def adapter() -> DataLoaderAdapter:
    return DataLoaderAdapter(Loader())


def texts(folder: Path, **options: Any) -> Text:
    return Text(4, story(folder), **options)


def translated(folder: Path, **options: Any) -> TextNMT:
    return TextNMT(4, translations(folder), split="train", dataset="toy", **options)


DRAWN = {
    "scale": (0.5, 1), "center": False, "flip_enable": True, "brightness": (0.5, 1), "saturation": (0.5, 1),
}  # fmt: skip

CASES: dict[type, list[Callable[[Path], Any]]] = {
    ArrayIterator: [
        lambda folder: ArrayIterator(vectors(13), np.arange(13) % 7, nclass=7),
        lambda folder: ArrayIterator([vectors(19), vectors(19, 2)], vectors(19, 1), make_onehot=False),
        lambda folder: ArrayIterator(vectors(12)),
        lambda folder: ArrayIterator(vectors(4), np.arange(4), nclass=4),
        lambda folder: ArrayIterator(vectors(1), np.arange(1), nclass=2),
    ],
    HDF5Iterator: [
        lambda folder: HDF5Iterator(array_file(folder)),
        lambda folder: HDF5Iterator(array_file(folder, 5)),
    ],
    HDF5IteratorOneHot: [lambda folder: HDF5IteratorOneHot(array_file(folder))],
    HDF5IteratorAutoencoder: [lambda folder: HDF5IteratorAutoencoder(array_file(folder))],
    ImageFolder: [
        lambda folder: ImageFolder(pictures(folder), 4),
        lambda folder: ImageFolder(pictures(folder), 4, make_onehot=False, shuffle=True),
        lambda folder: ImageFolder(pictures(folder), 4, shuffle=True, **DRAWN),
        lambda folder: ImageFolder(pictures(folder, 4), 4, shuffle=True, **DRAWN),
    ],
    Text: [
        lambda folder: texts(folder),
        lambda folder: texts(folder, onehot_input=False, get_prev_target=True, reverse_target=True),
        lambda folder: texts(folder, get_prev_target=True),
    ],
    TextNMT: [
        lambda folder: translated(folder),
        lambda folder: translated(folder, onehot_input=True, get_prev_target=True),
    ],
    QA: [lambda folder: questions()],
    ImageCaption: [lambda folder: ImageCaption(captions(folder))],
    ImageCaptionTest: [lambda folder: ImageCaptionTest(captions(folder))],
    Ticker: [lambda folder: Ticker(CopyTask(3, 2))],
    CopyTask: [lambda folder: Ticker(CopyTask(4, 3))],
    RepeatCopyTask: [lambda folder: Ticker(RepeatCopyTask(2, 2, 3))],
    PrioritySortTask: [lambda folder: Ticker(PrioritySortTask(3, 3))],
    Prefetch: [
        lambda folder: Prefetch(ImageFolder(pictures(folder), 4, shuffle=True, **DRAWN)),
        lambda folder: Prefetch(HDF5Iterator(array_file(folder))),
    ],
    DataLoaderAdapter: [lambda folder: adapter()],
    OneHot: [lambda folder: OneHot(adapter(), 1, nclasses=9)],
    PixelWiseOneHot: [lambda folder: PixelWiseOneHot(adapter(), 2, nclasses=9)],
    TypeCast: [lambda folder: TypeCast(ImageFolder(pictures(folder), 4), 0, np.int32)],
    Retuple: [lambda folder: Retuple(adapter(), data=(0, 2), target=(1,))],
    BGRMeanSubtract: [lambda folder: BGRMeanSubtract(adapter(), 0)],
    ValueNormalize: [lambda folder: ValueNormalize(Prefetch(ImageFolder(pictures(folder), 4)), 0)],
    DumpImage: [lambda folder: DumpImage(adapter(), 0, 4, (3, 2, 2), folder / "saved")],
}
"""What makes an iterator of each class, or one that has a task of the class, with files in a folder."""
