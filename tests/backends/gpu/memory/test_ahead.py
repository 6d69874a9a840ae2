"""Batches that begin to cross to the GPU before their turn: values, order, waits, memory, and loops that are left."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from typing import Any

import h5py
import numpy as np
import pytest

from neonlike.data import HDF5Iterator, HostIterator, Prefetch
from neonlike.errors import DeviceError
from tests.support.gpu.gpu_env import run_on_gpu

pytestmark = [pytest.mark.engines("gpu", batch_size=4), pytest.mark.usefixtures("gpu_driver")]


@pytest.fixture(autouse=True)
def late(monkeypatch: pytest.MonkeyPatch, gpu_driver: object) -> None:
    """The GPU runs work late unless something waits for it; these batches are large enough to be sent ahead."""
    monkeypatch.setenv("CUEMU_ASYNC", "1")
    monkeypatch.setattr("neonlike.backends.gpu.memory.transfer.OVERLAPPED_BYTES", 1024)


class Numbers(HostIterator):
    """Batches ``(features, 4)`` and ``(300, 4)`` of random numbers; ``features`` has the sizes in turn."""

    def __init__(self, nbatches: int = 9, features: tuple[int, ...] = (500,), fails: int | None = None) -> None:
        super().__init__()
        self.nbatches, self.ndata, self.shape = nbatches, 4 * nbatches, max(features)
        self.features, self.fails = features, fails
        self.asked, self.skipped, self.targets = [0], 0, True

    def made(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Batch ``number``."""
        rng = np.random.default_rng(number)
        features = self.features[number % len(self.features)]
        return rng.random((features, 4), np.float32), rng.random((300, 4), np.float32)

    def allocate_buffers(self) -> None:
        self.buffers = {size: self.be.zeros((size, 4)) for size in (*self.features, 300)}

    def host_batches(self) -> Iterator[Any]:
        for number in range(self.nbatches):
            if number == self.fails:
                raise OSError("disk gone")
            yield (number, *self.made(number))

    def send_ahead(self, batch: Any, send: Any) -> Any:
        number, inputs, targets = batch
        return number, send(inputs), send(targets)

    def load(self, batch: Any) -> Any:
        number, inputs, targets = batch
        assert inputs.flags.writeable == (inputs.nbytes < 1024)
        if number < self.skipped:
            return number, None, None
        filled = self.buffers[len(inputs)].set(inputs)
        return number, filled, self.buffers[300].set(targets) if self.targets else None

    def reset(self) -> None:
        """Does nothing."""


def compare(be: Any, source: Numbers, loop: Any = None) -> None:
    """Each batch is right when a kernel of its step reads it; nobody waits before the end."""
    kept = []
    for number, inputs, targets in Prefetch(source) if loop is None else loop:
        doubled = be.empty(inputs.shape)
        doubled[:] = inputs * 2
        kept.append((number, doubled, targets * 1 if targets is None else be.empty(targets.shape).copy(targets)))
    assert [number for number, *_ in kept] == list(range(source.nbatches))
    for number, doubled, targets in kept:
        inputs, wanted = source.made(number)
        np.testing.assert_array_equal(doubled.get(), inputs * 2, err_msg=f"batch {number}")
        np.testing.assert_array_equal(targets.get(), wanted, err_msg=f"targets of batch {number}")


@pytest.mark.checked
@pytest.mark.parametrize("depth", [1, 3])
def test_batches_are_those_that_were_read(be: Any, depth: int) -> None:
    source = Numbers()
    for _ in range(2):
        compare(be, source, Prefetch(source, depth))


def test_sizes_may_change_from_batch_to_batch(be: Any) -> None:
    compare(be, Numbers(features=(500, 400, 900)))
    compare(be, Numbers(features=(500, 10)))  # some too small to be worth it


@pytest.mark.emulator  # which runs each stream as late as it may
def test_the_next_batch_is_there_before_this_one_was_trained_with(be: Any) -> None:
    import pycuda.driver as driver

    source = Numbers()
    loop = iter(Prefetch(source, depth=1))
    _, inputs, _ = next(loop)
    ahead = be.device.transfer.aheads[-1]
    total = be.zeros(inputs.shape)
    for _ in range(3000):  # until the thread has sent the batch that follows
        if len(ahead._known) >= 2:
            break
        threading.Event().wait(0.01)
    total[:] = total + inputs
    trained = driver.Event()
    be.record_mark(trained)
    ahead._stream.synchronize()
    assert not trained.query()
    there = [
        np.array_equal(driver.from_device(sent.part.memory, (500, 4), np.float32), source.made(1)[0])
        for lane, sent in ahead._known.values()
        if lane is ahead._lanes[0] and sent.part is not None
    ]
    assert True in there
    loop.close()
    np.testing.assert_array_equal(total.get(), source.made(0)[0])


def test_the_training_neither_waits_nor_copies(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from neonlike.backends.gpu.memory import ahead, transfer

    waited, copied = [], []
    wait, queue_up = transfer.Buffer.wait, transfer.Transfer._queue_up

    def noted(buffer: Any) -> None:
        if buffer.pending:
            waited.append(threading.current_thread())
        wait(buffer)

    def queued(self: Any, data: Any, address: int) -> None:
        copied.append(len(data))
        queue_up(self, data, address)

    monkeypatch.setattr(transfer.Buffer, "wait", noted)
    monkeypatch.setattr(transfer.Transfer, "_queue_up", queued)
    made = []
    monkeypatch.setattr(ahead, "Part", lambda nbytes: made.append(nbytes) or transfer.Part(nbytes))
    for _ in Prefetch(Numbers(20)):
        pass
    assert threading.main_thread() not in waited and copied == []
    assert len(made) <= 4  # two buffers for each array


@pytest.mark.parametrize("lacking", ["mem_alloc", "pagelocked_empty"])
def test_without_memory_for_it_copies_take_longer(be: Any, lacking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import pycuda.driver as driver

    source, real = Numbers(), getattr(driver, lacking)

    def none_left(size: int, *arguments: Any) -> Any:
        if threading.current_thread() is threading.main_thread():
            return real(size, *arguments)
        raise driver.MemoryError(f"{lacking} failed: out of memory")

    monkeypatch.setattr(driver, lacking, none_left)
    compare(be, source)


def test_what_is_not_asked_for_is_forgotten(be: Any) -> None:
    source = Numbers(14)
    source.skipped, source.targets = 9, False
    seen = [
        (number, be.empty(inputs.shape).copy(inputs)) for number, inputs, _ in Prefetch(source) if inputs is not None
    ]
    assert [number for number, _ in seen] == list(range(9, 14))
    for number, inputs in seen:
        np.testing.assert_array_equal(inputs.get(), source.made(number)[0])


def test_buffers_and_addresses_of_what_is_not_asked_for_are_used_again(be: Any) -> None:
    ahead, arrays = be.upload_ahead(3), [np.full((400 + 100 * k, 4), k, np.float32) for k in range(5)]
    hosts = []
    for array in arrays:
        ahead.begin()
        hosts.append(ahead.send(array))
    (lane,) = ahead._lanes
    assert list(ahead._known) == [host.ctypes.data for host in hosts[2:]]
    ((_, last),) = (known for address, known in ahead._known.items() if address == hosts[4].ctypes.data)
    assert lane.made == 2 and list(lane.waiting) == [last]
    found = [be.zeros(hosts[2].shape).set(hosts[2])]
    assert not lane.waiting and last.part is not None
    found += [be.zeros(host.shape).set(host) for host in hosts[3:]]
    for number, t in enumerate(found, 2):
        np.testing.assert_array_equal(t.get(), arrays[number])
    ahead.close()
    assert ahead.send(arrays[0]) is arrays[0]  # nothing begins any more


def free_bytes(be: Any) -> int:
    """Free bytes of the device after all kept memory was released."""
    import pycuda.driver as driver

    gc.collect()
    be.release_memory()
    return int(driver.mem_get_info()[0])


@pytest.mark.parametrize("how", ["end", "break", "interrupt", "error", "twice"])
def test_memory_comes_back_however_the_loop_ends(be: Any, how: str) -> None:
    source = Numbers(9, fails=5 if how == "error" else None)
    source.allocate()
    before, transfer = free_bytes(be), be.device.transfer
    loop = Prefetch(source)
    try:
        for number, *_ in loop:
            assert transfer.aheads
            if how == "break" and number == 3:
                break
            if how == "interrupt" and number == 2:
                raise KeyboardInterrupt
            if how == "twice" and number == 4:
                compare(be, source, Prefetch(source, depth=1))  # a loop in the loop
    except (KeyboardInterrupt, OSError):
        assert how in ("interrupt", "error")
    loop.close()
    assert transfer.aheads == [] and free_bytes(be) == before


def test_idle_buffers_make_room_for_tensors(be: Any) -> None:
    source = Numbers(20)
    numbers = iter(Prefetch(source))
    next(numbers)
    ahead = be.device.transfer.aheads[-1]
    for lane in ahead._lanes:  # as when reading takes longer than training
        assert lane.made <= 2
    before = len(ahead._parts)
    idle = sum(len(lane.free) for lane in ahead._lanes)
    be.release_memory()
    assert len(ahead._parts) == before - idle
    compare_rest = [inputs.get() for _, inputs, _ in numbers]
    assert all(np.array_equal(found, source.made(k + 1)[0]) for k, found in enumerate(compare_rest))


def test_a_driver_that_fails_is_reported_in_the_training(be: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import pycuda.driver as driver

    real = driver.memcpy_htod_async

    def failing(*arguments: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            real(*arguments)
        else:
            raise driver.LogicError("memcpy_htod_async failed: made up")

    source = Numbers()
    with monkeypatch.context() as patch:
        patch.setattr(driver, "memcpy_htod_async", failing)
        with pytest.raises(DeviceError, match="made up"):
            compare(be, source)
    compare(be, source)


def test_hdf5_files_are_sent_ahead_unless_a_subclass_changes_the_inputs(be: Any, tmp_path: Any) -> None:
    inputs = np.random.default_rng(0).random((18, 600)).astype(np.float32)
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file.create_dataset("input", data=inputs).attrs["lshape"] = (1, 20, 30)

    class Shifted(HDF5Iterator):
        def gen_input(self, mb: Any) -> Any:
            mb -= 1  # in place: the array is its own
            return super().gen_input(mb)

    for kind, shift, sent in ((HDF5Iterator, 0, 4), (Shifted, 1, 0)):
        iterator, seen, found = kind(tmp_path / "data.h5"), [], []
        for x, _ in Prefetch(iterator):
            seen.append(len(be.device.transfer.aheads[-1]._lanes))
            found.append(be.empty(x.shape).copy(x))
        assert max(seen) == min(sent, 1)
        for first, x in zip((0, 4, 8, 12, 16), found):
            np.testing.assert_array_equal(x.get(), inputs[np.arange(first, first + 4) % 18].T - np.float32(shift))
        iterator.cleanup()


@pytest.mark.parametrize("fails", [False, True])
def test_the_reading_thread_leaves_the_context(be: Any, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """Each time that it has sent an array, and where that fails: it may end at any moment."""
    ahead, left = be.upload_ahead(2), []
    leave = ahead._leave
    monkeypatch.setattr(ahead, "_leave", lambda: (leave(), left.append(threading.current_thread())))
    if fails:
        monkeypatch.setattr(ahead, "_sent", lambda *given: 1 / 0)

    def send() -> None:
        try:
            ahead.send(np.ones((500, 4), np.float32))
        except ZeroDivisionError:
            left.append("failed")

    thread = threading.Thread(target=send)
    thread.start()
    thread.join()
    assert left == [thread, *["failed"] * fails]


@pytest.mark.parametrize("held", ["", "endings._found = None"], ids=["held", "not held"])
def test_a_program_may_end_in_the_middle_of_a_loop(held: str) -> None:
    """Where threads cannot be held at the end, as on Windows, too: the reading thread has no context by then."""
    done = run_on_gpu(
        f"""
import builtins
import numpy as np
from neonlike.backends import gen_backend
from neonlike.backends.gpu.device import endings
from neonlike.backends.gpu.memory import transfer
from neonlike.data import HostIterator, Prefetch
{held}
transfer.OVERLAPPED_BYTES = 1024
class Numbers(HostIterator):
    def allocate_buffers(self):
        self.buffer = self.be.zeros((5000, 4))
    def host_batches(self):
        while True:
            yield np.ones((5000, 4), np.float32)
    def send_ahead(self, batch, send):
        return send(batch)
    def load(self, batch):
        return self.buffer.set(batch), None
be = gen_backend("gpu", batch_size=4)
loop = iter(Prefetch(Numbers()))
for _ in range(9):
    next(loop)
builtins.kept = loop
raise SystemExit(7)
"""
    )
    assert (done.returncode, done.stderr) == (7, "")
