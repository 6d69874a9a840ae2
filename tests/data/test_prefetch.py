"""Reading ahead on a thread: order, errors, and no thread left behind."""

from __future__ import annotations

import signal
import threading

import numpy as np
import pytest
from PIL import Image

from neonlike.backends import gen_backend
from neonlike.callbacks import Callbacks
from neonlike.callbacks.callbacks import Callback
from neonlike.data import ArrayIterator, HostIterator, ImageFolder, Prefetch
from neonlike.errors import ArgumentError, ArgumentTypeError
from neonlike.initializers import GlorotUniform
from neonlike.layers import Affine, Dropout, GeneralizedCost
from neonlike.models import Model
from neonlike.optimizers import Adam
from neonlike.transforms import CrossEntropyMulti, Softmax

pytestmark = pytest.mark.engines("any", batch_size=2)


class Counting(HostIterator):
    """Batches of numbers; raises ``error`` in place of batch ``fails``."""

    def __init__(self, nbatches, fails=None, error=None):
        super().__init__()
        self.nbatches, self.ndata, self.shape = nbatches, 2 * nbatches, 1
        self.fails, self.error = fails, error
        self.made = 0
        self.threads = set()
        self.resets = 0

    def reset(self):
        self.resets += 1

    def allocate_buffers(self):
        self.buffer = self.be.iobuf(1)

    def host_batches(self):
        for number in range(self.nbatches):
            self.threads.add(threading.current_thread())
            if number == self.fails:
                raise self.error
            self.made += 1
            yield np.full((1, 2), number, np.float32)

    def load(self, batch):
        assert threading.current_thread() is threading.main_thread()
        return self.buffer.set(batch), None


def readers():
    return [thread for thread in threading.enumerate() if thread.name == "neonlike-prefetch"]


@pytest.fixture(autouse=True)
def no_thread_is_left():
    yield
    assert readers() == []


@pytest.mark.parametrize("depth", [1, 2, 50])
def test_all_batches_come_in_order_and_the_thread_ends(be, depth):
    source = Counting(7)
    ahead = Prefetch(source, depth)
    for _ in range(2):
        assert [x.get()[0, 0] for x, _ in ahead] == list(range(7))
        assert readers() == []
    assert source.made == 14 and threading.main_thread() not in source.threads


def test_no_more_is_read_than_was_asked_for(be):
    source = Counting(100)
    loop = iter(Prefetch(source, depth=3))
    next(loop)
    settled = threading.Event()
    for _ in range(3000):
        if source.made >= 5:
            break
        settled.wait(0.01)
    settled.wait(0.05)
    # One is handed out, three wait, and one is ready for the place of the next.
    assert source.made == 5
    loop.close()
    assert readers() == []


def test_leaving_the_loop_early_ends_the_thread(be):
    for x, _ in Prefetch(Counting(100)):
        assert x.get()[0, 0] == 0
        break
    assert readers() == []


def test_what_the_iterator_opened_is_closed_then(be):
    class Opening(Counting):
        opened = 0

        def host_batches(self):
            self.reading = self.read()  # kept, so that only closing it ends it
            return self.reading

        def read(self):
            self.opened += 1
            try:
                yield from super().host_batches()
            finally:
                self.opened -= 1

    source = Opening(100)
    kept = iter(Prefetch(source))
    next(kept)
    assert source.opened == 1
    kept.close()
    assert source.opened == 0


def test_an_error_in_the_thread_is_raised_in_its_place(be):
    seen = []
    with pytest.raises(OSError, match="disk gone"):
        for x, _ in Prefetch(Counting(9, fails=3, error=OSError("disk gone"))):
            seen.append(x.get()[0, 0])
    assert seen == [0, 1, 2]


def test_an_error_of_the_caller_ends_the_thread(be):
    loop = Prefetch(Counting(100))
    with pytest.raises(KeyboardInterrupt):
        for number, _ in enumerate(loop):
            if number == 2:
                raise KeyboardInterrupt
    loop.close()
    assert readers() == []


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="needs signals between threads")
def test_ctrl_c_while_a_batch_is_waited_for_ends_the_thread(be):
    class Slow(Counting):
        def host_batches(self):
            yield np.zeros((1, 2))
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            released.wait(30)
            yield np.ones((1, 2))

    released, loop = threading.Event(), iter(Prefetch(Slow(2)))
    threading.Timer(0.3, released.set).start()
    with pytest.raises(KeyboardInterrupt):
        list(loop)
    assert readers() == []


def test_close_ends_a_loop_that_is_kept(be):
    ahead = Prefetch(Counting(100))
    kept = iter(ahead)
    next(kept)
    assert len(readers()) == 1
    ahead.close()
    assert readers() == []
    assert list(kept) == []


def test_attributes_are_the_iterators(be):
    source = Counting(3)
    ahead = Prefetch(source)
    assert (ahead.nbatches, ahead.ndata, ahead.shape) == (3, 6, 1)
    ahead.reset()
    assert source.resets == 1
    assert not hasattr(ahead, "lshape")


def test_what_cannot_be_read_ahead_is_refused(be):
    with pytest.raises(ArgumentTypeError, match=r"ArrayIterator .*HDF5Iterator"):
        Prefetch(ArrayIterator(np.zeros((4, 2))))
    with pytest.raises(ArgumentError, match="depth=0"):
        Prefetch(Counting(3), depth=0)


# Trainings ------------------------------------------------------------------------------------------------------------


class Stop(Callback):
    """Interrupts the training once, in the middle of an epoch."""

    def on_minibatch_end(self, callback_data, model, epoch, minibatch):
        if (epoch, minibatch) == (1, 1):
            raise KeyboardInterrupt


def experiment(be, folder, saved=None, **options):
    """A model, its data, drawn at random and read ahead, and its training."""
    gen_backend(be.backend_name, rng_seed=0, batch_size=2)
    images = Prefetch(ImageFolder(folder, 4, shuffle=True, center=False, scale=(0.3, 1), flip_enable=True))
    layers = [Dropout(0.8), Affine(2, GlorotUniform(), activation=Softmax())]
    model = Model(saved) if saved else Model(layers)
    callbacks = Callbacks(model, progress_bar=False, **options)

    def train(epochs):
        model.fit(images, GeneralizedCost(CrossEntropyMulti()), Adam(), epochs, callbacks)

    return model, callbacks, train


def test_a_training_that_was_interrupted_within_an_epoch_goes_on_bit_for_bit(be, tmp_path):
    rng = np.random.default_rng(0)
    for number in range(9):
        folder = tmp_path / "images" / "ab"[number % 2]
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (9, 8, 3), dtype=np.uint8)).save(folder / f"{number}.png")
    whole, _, train = experiment(be, tmp_path / "images")
    train(3)
    expected = [layer.W.get() for layer in whole.layers_to_optimize]

    path = str(tmp_path / "model.prm")
    _, callbacks, train = experiment(be, tmp_path / "images", save_path=path, serialize=1)
    callbacks.add_callback(Stop())
    with pytest.raises(KeyboardInterrupt):
        train(3)
    assert readers() == []
    again, _, train = experiment(be, tmp_path / "images", saved=path)
    train(3)
    np.testing.assert_array_equal(expected, [layer.W.get() for layer in again.layers_to_optimize])
