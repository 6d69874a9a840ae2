"""Several ranks share each batch: their columns side by side are the batches of a process alone."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import neonlike.data
from neonlike.data import HDF5Iterator, HostIterator, ImageCaptionTest, ImageFolder, NervanaDataIterator, Task
from neonlike.data.dataloader_transformers import DataLoaderTransformer, DumpImage
from neonlike.data.dataloaderadapter import DataLoaderAdapter
from neonlike.data.drawing import DrawsEachEpoch
from neonlike.data.images import Augmentation
from neonlike.data.protocol import CyclicIterator
from neonlike.data.sequences import TokenSequences
from neonlike.data.sharing import require_shares
from neonlike.errors import ShapeError
from tests.data import rank_cases
from tests.data.rank_cases import BATCH, CASES
from tests.support.ranks import OneOf

pytestmark = pytest.mark.engines("any", batch_size=BATCH)

BASES = {
    NervanaDataIterator, CyclicIterator, HostIterator, DrawsEachEpoch, TokenSequences, DataLoaderTransformer, Task,
}  # fmt: skip
"""Classes that have no batches of their own."""
MOST = 5
"""Batches of an epoch that are compared."""


def kinds() -> list[type]:
    """All classes of iterators and of tasks in the modules of neonlike.data."""
    found: list[type] = []
    for info in pkgutil.iter_modules(neonlike.data.__path__, "neonlike.data."):
        module = importlib.import_module(info.name)
        found += [
            kind
            for name, kind in inspect.getmembers(module, inspect.isclass)
            if kind.__module__ == info.name and issubclass(kind, NervanaDataIterator | Task)
            if not name.startswith("_") and kind not in BASES
        ]
    return found


ALL = [pytest.param(make, id=f"{kind.__name__}-{number}") for kind in CASES for number, make in enumerate(CASES[kind])]


@contextmanager
def rank_of(be: Any, rank: int, size: int) -> Iterator[None]:
    """Let the process be a rank of several in the block."""
    be.ranks, be.bsz = OneOf(rank, size), BATCH // size
    yield
    del be.ranks
    be.bsz = BATCH


def copies(thing: Any, bsz: int) -> list[np.ndarray]:
    """Copies of all tensors of a batch, ``(features, steps, N)``; lists of sentences by sample ``(N,)``."""
    if isinstance(thing, tuple):
        return [array for part in thing for array in copies(part, bsz)]
    if isinstance(thing, list) and all(isinstance(part, list) for part in thing):
        return [np.array(["/".join(sentences) for sentences in thing], object)]
    if isinstance(thing, list):
        return copies(tuple(thing), bsz)
    host = thing.get()
    return [host.reshape(len(host), -1, bsz).copy()]


def facts(be: Any, data: Any) -> tuple[Any, ...]:
    """Facts that ranks and a process alone have in common before each epoch."""
    masked = data.masked_to if isinstance(data, CyclicIterator) else None
    return data.nbatches, data.ndata, data.shape, masked, pickle.dumps(data.progress()), str(be.rng.get_state())


def epoch(be: Any, data: Any) -> list[list[np.ndarray]]:
    """The batches of an epoch, or the first of many."""
    return [copies(batch, be.bsz) for batch in islice(data, MOST)]


def two_epochs(be: Any, make: Any, folder: Path) -> tuple[list[Any], list[Any]]:
    """Facts before, between and after two epochs from the same seed; batches of both."""
    be.rng_reset()
    data = make(folder)
    known, batches = [facts(be, data)], []
    for _ in range(2):
        batches.append(epoch(be, data))
        known.append(facts(be, data))
    return known, batches


def beside(by_rank: list[Any]) -> list[Any]:
    """The columns of all ranks side by side, for each array of each batch."""
    return [
        [np.concatenate(parts, axis=-1) for parts in zip(*batch, strict=True)] for batch in zip(*by_rank, strict=True)
    ]


def equal(one: list[Any], other: list[Any]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(np.array_equal(a, b) for first, second in pairs for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_each_class_has_a_case(be: Any, tmp_path: Path, kind: type) -> None:
    for make in CASES[kind]:
        data = make(tmp_path)
        assert type(data) is kind or type(data.task) is kind


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("make", ALL)
def test_ranks_share_the_batches_of_a_process_alone(be: Any, tmp_path: Path, make: Any, size: int) -> None:
    known, alone = two_epochs(be, make, tmp_path)
    shares = []
    for rank in range(size):
        with rank_of(be, rank, size):
            found, batches = two_epochs(be, make, tmp_path)
            require_shares(make(tmp_path))
        assert found == known
        assert all(array.shape[-1] <= BATCH // size for batch in batches[0] for array in batch)
        shares.append(batches)
    for number in range(2):
        assert alone[number] and equal(alone[number], beside([batches[number] for batches in shares]))


@pytest.mark.parametrize("make", ALL)
def test_ranks_go_on_where_a_process_alone_was(be: Any, tmp_path: Path, make: Any) -> None:
    be.rng_reset()
    data = make(tmp_path)
    for _ in data:
        pass
    progress, state = copy.deepcopy(data.progress()), be.rng_get_state()
    alone, shares = epoch(be, data), []
    for rank in range(3):
        with rank_of(be, rank, 3):
            be.rng_set_state(state)
            again = make(tmp_path)
            again.set_progress(progress)
            shares.append(epoch(be, again))
    assert equal(alone, beside(shares))


@pytest.mark.parametrize("make", [case for case in ALL if case.id != "ArrayIterator-4"])
def test_the_comparison_sees_that_a_rank_is_dropped(be: Any, tmp_path: Path, make: Any) -> None:
    """All ranks have the columns of the first: only a single sample would hide it."""
    _, (alone, _) = two_epochs(be, make, tmp_path)
    with rank_of(be, 0, 2):
        _, (first, _) = two_epochs(be, make, tmp_path)
    assert not equal(alone, beside([first, first]))


# Only this rank's samples are read ------------------------------------------------------------------------------------


def test_a_rank_decodes_its_images_alone(be: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, by_rank = Augmentation.read, []

    def noted(self: Any, path: str, rng: Any) -> Any:
        by_rank[-1].append(path)
        return read(self, path, rng)

    monkeypatch.setattr(Augmentation, "read", noted)
    folder = rank_cases.pictures(tmp_path)
    for rank in range(3):
        by_rank.append([])
        with rank_of(be, rank, 3):
            be.rng_reset()
            for _ in ImageFolder(folder, 4, shuffle=True):
                pass
    assert [len(paths) for paths in by_rank] == [3 * BATCH // 3] * 3
    assert len({path for paths in by_rank for path in paths}) == 13


@pytest.mark.parametrize(
    "options",
    [{}, {"center": False}, {"flip_enable": True}, {"contrast": (0, 1), "brightness": (1, 2)}, rank_cases.DRAWN],
)
@pytest.mark.parametrize("channels", [1, 3])
def test_as_many_numbers_are_skipped_as_an_image_draws(tmp_path: Path, options: Any, channels: int) -> None:
    path = next(rank_cases.pictures(tmp_path).glob("*/*.png"))
    augmentation = Augmentation(4, 4, channels=channels, **options)
    one, other = np.random.RandomState(0), np.random.RandomState(0)
    for _ in range(3):
        augmentation.read(str(path), one)
    augmentation.skip(3, other)
    assert one.uniform() == other.uniform()


def test_a_rank_reads_its_rows_alone(be: Any, tmp_path: Path) -> None:
    class Rows:
        """A dataset that remembers which rows were read."""

        def __init__(self, dataset: Any) -> None:
            self.dataset, self.read = dataset, []

        def __getitem__(self, rows: slice) -> Any:
            self.read += range(*rows.indices(len(self.dataset)))
            return self.dataset[rows]

    for rank, expected in enumerate([[0, 1, 2, 6, 7, 8, 12, 0, 1], [3, 4, 5, 9, 10, 11, 2, 3, 4]]):
        with rank_of(be, rank, 2):
            data = HDF5Iterator(rank_cases.array_file(tmp_path))
            data.inp = rows = Rows(data.inp)
            for _ in data:
                pass
            assert rows.read == expected


# Other loaders, pictures, sentences -----------------------------------------------------------------------------------


def test_a_loader_may_share_by_itself_or_has_batches_of_all_ranks(be: Any) -> None:
    class Own(rank_cases.Loader):
        """A rank's rows."""

        shares = True

        def __iter__(self) -> Iterator[Any]:
            return (tuple(array[be.own_columns] for array in batch) for batch in super().__iter__())

    class Short(rank_cases.Loader):
        """Batches of one rank, without saying of which."""

        def __iter__(self) -> Iterator[Any]:
            return (tuple(array[: be.bsz] for array in batch) for batch in super().__iter__())

    with rank_of(be, 1, 2):
        assert equal(epoch(be, DataLoaderAdapter(Own())), epoch(be, rank_cases.adapter()))
        with pytest.raises(ShapeError, match=r"has 3 samples, but 2 ranks share be.global_bsz=6.*shares = True"):
            next(iter(DataLoaderAdapter(Short())))


@pytest.mark.parametrize("index", [1, 4, -1])
def test_the_rank_that_has_it_saves_an_image(be: Any, tmp_path: Path, index: int) -> None:
    def save(name: str) -> list[str]:
        for _ in DumpImage(rank_cases.adapter(), 0, index, (3, 2, 2), tmp_path / name):
            pass
        return sorted(path.name for path in (tmp_path / name).glob("*"))

    names, shared = save("alone"), []
    for rank in range(2):
        with rank_of(be, rank, 2):
            shared.append(save(str(rank)))
    assert shared == ([names, []] if index == 1 else [[], names])
    for name in names:
        saved = tmp_path / ("0" if index == 1 else "1") / name
        assert saved.read_bytes() == (tmp_path / "alone" / name).read_bytes()


def test_ranks_tell_each_other_their_sentences(be: Any, tmp_path: Path) -> None:
    class Told(OneOf):
        """Has heard before what each rank tells."""

        def tell(self, thing: Any, what: str = "") -> list[Any]:
            told[self.rank] = thing
            return [told.get(rank, thing) for rank in range(self.size)]

    class Sees:
        """A network whose words follow from the first feature of an image."""

        def fprop(self, inputs: Any, inference: bool) -> Any:
            image, sentence = (tensor.get() for tensor in inputs)
            words = np.rint(image[0] * 1000).astype(int) % len(sentence)
            return be.array(np.tile(np.eye(len(sentence))[words].T, sentence.shape[1] // len(words) + 1))

    data, told = ImageCaptionTest(rank_cases.captions(tmp_path)), {}
    alone = data.predict(Sees())
    assert len(alone[0]) == len(alone[1]) == BATCH + 1 and len(set(alone[0])) > 2
    for _ in range(2):  # in the second round each has heard the others
        found = []
        for rank in range(3):
            with rank_of(be, rank, 3):
                be.ranks = Told(rank, 3)
                found.append(data.predict(Sees()))
    assert found == [alone] * 3
