"""Synthetic sequence tasks that test the memory of recurrent networks (Graves et al. 2014)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from neonlike.checks import shown
from neonlike.data.protocol import NervanaDataIterator
from neonlike.data.sharing import shares_batches
from neonlike.errors import ArgumentError, ArgumentTypeError, NotDefined
from neonlike.nervanaobject import NervanaObject

__all__ = ["CopyTask", "PrioritySortTask", "RepeatCopyTask", "Task", "Ticker"]

BATCHES = 100
"""Number of minibatches per epoch."""


class Task(NervanaObject):
    """Base of tasks: generates minibatches of sequences with equal lengths within each minibatch.

    Random draws come from ``be.rng``, which is in one state on all ranks. Each rank draws the numbers of the whole
    batch and keeps its columns, as a task of yours has to do that says ``shares = True``.

    Attributes
    ----------
    shares : bool
        Whether :meth:`synthesize` makes the columns of this rank; a subclass that defines it has to say so again.
    nin, nout : int
        Number of values of an input and of an output per step.
    time_steps_max : int
        Number of steps of the longest sequence.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import Task, Ticker
    >>> be = gen_backend("cpu", batch_size=2)
    >>> class Echo(Task):
    ...     shares, nin, nout, time_steps_max = True, 1, 1, 3
    ...     def synthesize(self, in_tensor, out_tensor, mask):
    ...         inputs, outputs = self.fetch_io(3)
    ...         inputs[:] = outputs[:] = 1
    ...         self.fill_buffers(3, inputs, outputs, in_tensor, out_tensor, mask)
    >>> x, (t, mask) = next(iter(Ticker(Echo())))
    >>> x.tolist() == t.tolist() == mask.tolist() == [[1.0] * 6]  # 3 steps of 2 samples
    True
    """

    shares: bool = False
    nin: int
    nout: int
    time_steps_max: int

    def fetch_io(self, time_steps: int) -> tuple[np.ndarray, np.ndarray]:
        """Create zeros for a minibatch's inputs and outputs, ``(nin, time_steps*N)`` and ``(nout, time_steps*N)``.

        Parameters
        ----------
        time_steps : int
            Steps of the minibatch.
        """
        steps = time_steps * self.be.bsz
        return np.zeros((self.nin, steps), np.float32), np.zeros((self.nout, steps), np.float32)

    def fill_buffers(
        self, time_steps: int, inputs: np.ndarray, outputs: np.ndarray, in_tensor: Any, out_tensor: Any, mask: Any
    ) -> None:
        """Copy a minibatch to the backend, padded with zeros; the mask is 1 up to its last step.

        Parameters
        ----------
        time_steps : int
            Steps of the minibatch.
        inputs, outputs : ndarray
            ``(nin, time_steps * N)`` and ``(nout, time_steps * N)``.
        in_tensor, out_tensor, mask : Tensor
            Tensors as :meth:`synthesize` takes them.
        """
        used = time_steps * self.be.bsz
        for tensor, values in ((in_tensor, inputs), (out_tensor, outputs)):
            padded = np.zeros(tensor.shape, np.float32)
            padded[:, :used] = values
            tensor.set(padded)
        mask[:] = 0
        mask[:, :used] = 1

    def synthesize(self, in_tensor: Any, out_tensor: Any, mask: Any) -> None:
        """Draw a minibatch into tensors ``(nin, time_steps_max*N)`` and, twice, ``(nout, time_steps_max*N)``.

        Parameters
        ----------
        in_tensor : Tensor
            Inputs ``(nin, time_steps_max * N)``, overwritten.
        out_tensor, mask : Tensor
            Targets and mask, ``(nout, time_steps_max * N)`` each, overwritten.
        """
        raise NotDefined(f"{self.classnm} does not define synthesize")

    def _length(self, most: int) -> int:
        return int(self.be.rng.randint(1, most + 1))

    def _bits(self, length: int, size: int) -> np.ndarray:
        """Draw random bits, ``(length, size, N)``."""
        drawn = self.be.rng.randint(0, 2, (length, size, self.be.global_bsz))
        return drawn[:, :, self.be.own_columns].astype(np.float32)


def _positive(task: Task, **sizes: int) -> None:
    for name, size in sizes.items():
        if size < 1:
            raise ArgumentError(f"{task.classnm}: {name}={size}; expected 1 or more")


def _by_steps(buffer: np.ndarray, time_steps: int) -> np.ndarray:
    """View ``(time_steps, features, N)`` of ``(features, time_steps*N)``."""
    return buffer.reshape(len(buffer), time_steps, -1).swapaxes(0, 1)


class CopyTask(Task):
    """Copy task: repeat a sequence of random bits after its end.

    Inputs have two more channels, which mark the beginning and the end. A sequence of length L takes 2·L + 2 steps.

    Parameters
    ----------
    seq_len_max : int
        Length of the longest sequence.
    vec_size : int
        Bits per step.

    Raises
    ------
    ArgumentError
        If a size is below 1.

    References
    ----------
    Graves et al., "Neural Turing machines" (2014), section 4.1.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import CopyTask
    >>> be = gen_backend("cpu", batch_size=2)
    >>> task = CopyTask(seq_len_max=3, vec_size=2)
    >>> task.nin, task.nout, task.time_steps_max
    (4, 2, 8)
    """

    shares = True

    def __init__(self, seq_len_max: int, vec_size: int) -> None:
        super().__init__()
        _positive(self, seq_len_max=seq_len_max, vec_size=vec_size)
        self.seq_len_max, self.vec_size = seq_len_max, vec_size
        self.nin, self.nout = vec_size + 2, vec_size
        self.time_steps_max = 2 * seq_len_max + 2

    def synthesize(self, in_tensor: Any, out_tensor: Any, mask: Any) -> None:
        """Draw a minibatch.

        Parameters
        ----------
        in_tensor, out_tensor, mask : Tensor
            As of :meth:`Task.synthesize`.
        """
        length = self._length(self.seq_len_max)
        steps, size = 2 * length + 2, self.vec_size
        inputs, outputs = self.fetch_io(steps)
        shown, wanted = _by_steps(inputs, steps), _by_steps(outputs, steps)
        bits = self._bits(length, size)
        shown[0, size] = 1
        shown[1 : length + 1, :size] = bits
        shown[length + 1, size + 1] = 1
        wanted[length + 2 :] = bits
        self.fill_buffers(steps, inputs, outputs, in_tensor, out_tensor, mask)


class RepeatCopyTask(Task):
    """Repeat copy task: as :class:`CopyTask`, with several repetitions and an end mark.

    Inputs have two more channels: one marks the beginning, the other holds the number of repetitions as a fraction of
    ``repeat_count_max``. Outputs have one more channel, which marks the end. A sequence of length L with R repetitions
    takes L·(R + 1) + 3 steps.

    Parameters
    ----------
    seq_len_max : int
        Length of the longest sequence.
    repeat_count_max : int
        Maximum number of repetitions.
    vec_size : int
        Bits per step.

    Raises
    ------
    ArgumentError
        If a size is below 1.

    References
    ----------
    Graves et al., "Neural Turing machines" (2014), section 4.2.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import RepeatCopyTask
    >>> be = gen_backend("cpu", batch_size=2)
    >>> task = RepeatCopyTask(seq_len_max=3, repeat_count_max=2, vec_size=2)
    >>> task.nin, task.nout, task.time_steps_max
    (4, 3, 12)
    """

    shares = True

    def __init__(self, seq_len_max: int, repeat_count_max: int, vec_size: int) -> None:
        super().__init__()
        _positive(self, seq_len_max=seq_len_max, repeat_count_max=repeat_count_max, vec_size=vec_size)
        self.seq_len_max, self.repeat_count_max, self.vec_size = seq_len_max, repeat_count_max, vec_size
        self.nin, self.nout = vec_size + 2, vec_size + 1
        self.time_steps_max = seq_len_max * (repeat_count_max + 1) + 3

    def synthesize(self, in_tensor: Any, out_tensor: Any, mask: Any) -> None:
        """Draw a minibatch.

        Parameters
        ----------
        in_tensor, out_tensor, mask : Tensor
            As of :meth:`Task.synthesize`.
        """
        length, count = self._length(self.seq_len_max), self._length(self.repeat_count_max)
        steps, size = length * (count + 1) + 3, self.vec_size
        inputs, outputs = self.fetch_io(steps)
        shown, wanted = _by_steps(inputs, steps), _by_steps(outputs, steps)
        bits = self._bits(length, size)
        shown[0, size] = 1
        shown[1 : length + 1, :size] = bits
        shown[length + 1, size + 1] = count / self.repeat_count_max
        wanted[length + 2 : -1, :size] = np.tile(bits, (count, 1, 1))
        wanted[-1, size] = 1
        self.fill_buffers(steps, inputs, outputs, in_tensor, out_tensor, mask)


class PrioritySortTask(Task):
    """Priority sort task: return a sequence of random bits sorted by a priority from −1 to 1 per step.

    The step of highest priority comes first. Inputs have three more channels: the priority, and marks of the beginning
    and the end. A sequence of length L takes 2·L + 2 steps.

    Parameters
    ----------
    seq_len_max : int
        Length of the longest sequence.
    vec_size : int
        Bits per step.

    Raises
    ------
    ArgumentError
        If a size is below 1.

    References
    ----------
    Graves et al., "Neural Turing machines" (2014), section 4.5.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import PrioritySortTask
    >>> be = gen_backend("cpu", batch_size=2)
    >>> task = PrioritySortTask(seq_len_max=3, vec_size=2)
    >>> task.nin, task.nout, task.time_steps_max
    (5, 2, 8)
    """

    shares = True

    def __init__(self, seq_len_max: int, vec_size: int) -> None:
        super().__init__()
        _positive(self, seq_len_max=seq_len_max, vec_size=vec_size)
        self.seq_len_max, self.vec_size = seq_len_max, vec_size
        self.nin, self.nout = vec_size + 3, vec_size
        self.time_steps_max = 2 * seq_len_max + 2

    def synthesize(self, in_tensor: Any, out_tensor: Any, mask: Any) -> None:
        """Draw a minibatch.

        Parameters
        ----------
        in_tensor, out_tensor, mask : Tensor
            As of :meth:`Task.synthesize`.
        """
        length = self._length(self.seq_len_max)
        steps, size = 2 * length + 2, self.vec_size
        inputs, outputs = self.fetch_io(steps)
        shown, wanted = _by_steps(inputs, steps), _by_steps(outputs, steps)
        bits = self._bits(length, size)
        priorities = self.be.rng.uniform(-1, 1, (length, self.be.global_bsz))[:, self.be.own_columns]
        shown[0, size + 1] = 1
        shown[1 : length + 1, :size] = bits
        shown[1 : length + 1, size] = priorities
        shown[length + 1, size + 2] = 1
        order = np.argsort(-priorities, axis=0, kind="stable")
        wanted[length + 2 :] = np.take_along_axis(bits, order[:, None, :], axis=0)
        self.fill_buffers(steps, inputs, outputs, in_tensor, out_tensor, mask)


class Ticker(NervanaDataIterator):
    """Yields new minibatches ``X, (y, mask)`` of a task; the mask is 1 at the steps of the sequences.

    Parameters
    ----------
    task : Task
        Generator of the minibatches.

    Attributes
    ----------
    nin, nout : int
        Sizes of the task.
    shape : tuple
        ``(nin, time_steps_max)``.
    nbatches : int
        100.
    batch_index : int
        Number of batches already yielded in the epoch.

    Raises
    ------
    ArgumentTypeError
        If ``task`` is no task.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.data import CopyTask, Ticker
    >>> be = gen_backend("cpu", batch_size=2)
    >>> data = Ticker(CopyTask(seq_len_max=3, vec_size=2))
    >>> x, (t, mask) = next(iter(data))
    >>> x.shape, t.shape, mask.shape  # 8 steps of 2 samples
    ((4, 16), (2, 16), (2, 16))
    """

    def __init__(self, task: Task) -> None:
        super().__init__()
        if not all(hasattr(task, name) for name in ("nin", "nout", "time_steps_max", "synthesize")):
            raise ArgumentTypeError(f"Ticker: task must be a task, such as CopyTask(10, 8), got {shown(task)}")
        self.task = task
        self.nbatches, self.batch_index = BATCHES, 0
        self.nin, self.nout = task.nin, task.nout
        self.shape = (task.nin, task.time_steps_max)
        self._allocate()

    @property
    def ndata(self) -> int:
        """Number of sequences per epoch, of all ranks together."""
        return self.nbatches * self._batch_size()

    @property
    def shares(self) -> bool:  # type: ignore[override]
        """Whether the task makes the columns of this rank alone."""
        return shares_batches(self.task)

    def _allocate(self) -> None:
        self._batch_size()
        self._made_for = self.be, self.be.bsz
        steps = self.task.time_steps_max
        self.dev_X = self.be.iobuf((self.task.nin, steps))
        self.dev_y = self.be.iobuf((self.task.nout, steps))
        self.mask = self.be.iobuf((self.task.nout, steps))

    def reset(self) -> None:
        """Do nothing: there is no first sequence."""

    def __iter__(self) -> Iterator[tuple[Any, tuple[Any, Any]]]:
        if self._made_for[0] is not self.be or self._made_for[1] != self.be.bsz:
            self._allocate()
        for batch in range(self.nbatches):
            self.batch_index = batch + 1
            self.task.synthesize(self.dev_X, self.dev_y, self.mask)
            yield self.dev_X, (self.dev_y, self.mask)
