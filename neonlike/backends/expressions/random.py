"""Random numbers: the host generator ``be.rng`` for initializers and masks, Philox for ``rand`` in expressions."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np
import numpy.typing as npt

from neonlike.backends.family import Family
from neonlike.checks import brief
from neonlike.errors import ArgumentError
from neonlike.kernels.run.trace import call_again
from neonlike.optree import functions
from neonlike.optree.functions import F as Functions
from neonlike.optree.node import adapt

F: Any = Functions
_STATE_PARTS = (3, 5)
"""Lengths of a state of NumPy's generator: the last two parts may be left out."""
_KEYS = 2**64 - 1
_GOLDEN = 0x9E3779B97F4A7C15
"""Distance between the keys of two ranks' streams of ``rand``."""


class RngState(tuple[Any, ...]):
    """NumPy's 5-tuple, or on a GPU a pair of it and :func:`pool_of`, with the ``rand`` stream as an attribute.

    Attributes
    ----------
    stream : (int, int)
        Philox key, and number of ``rand`` calls so far.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> state = gen_backend("cpu", rng_seed=7).rng_get_state()
    >>> state[0], state.stream
    ('MT19937', (7, 0))
    """

    stream: tuple[int, int]

    def __reduce__(self) -> Any:
        return make_state, (tuple(self), self.stream)


def make_state(state: Any, stream: tuple[int, int]) -> RngState:
    """Attach the ``rand`` stream to ``state``."""
    made = RngState(state)
    made.stream = stream
    return made


def pool_of(stream: tuple[int, int]) -> npt.NDArray[np.uint32]:
    """State of the ``rand`` stream in the format of neon's GPU generators: uint32 (196608, 1).

    Key and number of calls take two words each, low words first, followed by ones.
    """
    pool = np.ones((3 * 65536, 1), np.uint32)
    pool[:4, 0] = [number >> shift & 0xFFFFFFFF for number in stream for shift in (0, 32)]
    return pool


def _stream_of(pool: Any) -> tuple[int, int] | None:
    """The stream encoded by :func:`pool_of` in ``pool``; None for another origin."""
    words = np.asarray(pool).reshape(-1)
    if words.dtype.kind != "u" or words.size <= 4 or not (words[4:] == 1).all():
        return None
    key_low, key_high, call_low, call_high = map(int, words[:4])
    return key_high << 32 | key_low, call_high << 32 | call_low


class RandomFamily(Family):
    """Equal seeds give equal numbers; ``rng_reset`` and ``rng_set_state`` replay exactly.

    Attributes
    ----------
    rng : numpy.random.RandomState
        Host generator.
    rng_seed : int or None
    deterministic : bool
        True if a seed was set.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> one, other = (gen_backend("cpu", rng_seed=5).rng.randint(1000) for _ in range(2))
    >>> one == other
    True
    """

    def _init_random(self, seed: int | None) -> None:
        self.rng_seed = seed
        self.deterministic = seed is not None
        self.gen_rng(seed)

    def gen_rng(self, seed: int | None = None) -> np.random.RandomState:
        """Start ``be.rng`` and the ``rand`` stream from ``seed`` (None: system entropy) and return ``be.rng``.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> first = be.gen_rng(3).randint(1000)
        >>> first == be.gen_rng(3).randint(1000)
        True
        """
        try:
            rng = np.random.RandomState(seed)
            entropy = np.random.SeedSequence(seed).entropy
            key = operator.index(entropy) & _KEYS  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise ArgumentError(f"gen_rng: expected a seed in [0, 2**32) or None, got {brief(seed)}") from None
        self.rng = rng
        self._rand_stream = (key, 0)
        self.init_rng_state = self._host_state()
        return rng

    def _host_state(self) -> RngState:
        return make_state(self.rng.get_state(), self._rand_stream)

    def rng_get_state(self) -> RngState:
        """State of both generators: a 5-tuple as in ``RandomState.get_state``; on a GPU paired with an array.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> state, x = be.rng_get_state(), be.empty((2, 3))
        >>> first = be.rand(out=x).tolist()
        >>> be.rng_set_state(state)
        >>> first == be.rand(out=x).tolist()
        True
        """
        return self._host_state()

    def rng_set_state(self, state: Any) -> None:
        """Restore a state from :meth:`rng_get_state`, also of another backend.

        A plain NumPy state restarts ``rand`` from its first call, as does a pair (host state, device state) of neon's
        GPU backend.

        Raises
        ------
        ArgumentError
            If the state is invalid; the generators are unchanged then.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be, other = gen_backend("cpu", rng_seed=1), gen_backend("cpu", rng_seed=2)
        >>> other.rng_set_state(be.rng_get_state())
        >>> other.rng.randint(1000) == be.rng.randint(1000)
        True
        """
        try:
            host, pool = state if len(state) == 2 else (state, None)
            stream = getattr(state, "stream", None) or _stream_of(pool)
            parts = tuple(host)
            if len(parts) not in _STATE_PARTS:  # at which older versions of NumPy crash
                raise ValueError(f"it has {len(parts)} parts in place of 5")
            self.rng.set_state(parts)
        except (TypeError, ValueError, LookupError) as error:
            raise ArgumentError(f"rng_set_state: expected a state of rng_get_state(): {error}") from None
        self._rand_stream = stream or (self._rand_stream[0], 0)

    def rng_reset(self) -> None:
        """Restore the state right after seeding.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu", rng_seed=1)
        >>> first = be.rng.randint(1000)
        >>> be.rng_reset()
        >>> first == be.rng.randint(1000)
        True
        """
        self.rng_set_state(self.init_rng_state)

    def rand(self, out: Any = None) -> Any:
        """U[0, 1) for each element of its target or of the expression around it; lazy.

        float32 numbers have 24 bits, float64 numbers 53; stored directly, float16 gets 11 and bfloat16 8, and never 1.

        A column times ``rand()`` is a column of random numbers; to draw for every element, first combine ``rand()``
        with an operand of the full shape. The numbers are fixed when the node is built: one node gives the same numbers
        wherever it is used in one dtype, and the next ``rand()`` gives others.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> x = be.rand(out=be.empty((100, 100)))
        >>> 0.45 < be.mean(x).item() < 0.55
        True
        """
        key, call = self._rand_stream
        self._rand_stream = (key, call + 1)  # the call is the upper half of the Philox counter
        if self.ranks.rank:
            key = (key + self.ranks.rank * _GOLDEN) & _KEYS
        return self._finish(functions.rand(self, key, call), out)

    def uniform(self, low: Any = 0.0, high: Any = 1.0, out: Any = None) -> Any:
        """U[low, high) for each element of its target or of the expression around it; lazy, see :meth:`rand`.

        ``low`` and ``high`` may be tensors or expressions: then a number is drawn for each of their elements.

        Parameters
        ----------
        low, high : number, tensor or expression
            Bounds, the upper exclusive.
        out : tensor, optional
            Receives the numbers at once.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> x = be.uniform(2, 3, out=be.empty((10, 10)))
        >>> be.all((x >= 2) & (x < 3)).item()
        1.0
        """
        low, high = adapt("uniform", low, self), adapt("uniform", high, self)
        return self._finish(low + self.rand() * (high - low), out)

    def randn(self, out: Any = None) -> Any:
        """N(0, 1) for each element of its target or of the expression around it; lazy, see :meth:`rand`.

        It uses two draws of :meth:`rand`: G. Box and M. Muller, "A note on the generation of random normal deviates",
        1958. In float32 no number exceeds 5.8 standard deviations.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> x = be.randn(out=be.empty((100, 100)))
        >>> abs(be.mean(x).item()) < 0.1
        True
        """
        radius = F.sqrt(-2 * F.log1p(-self.rand()))
        return self._finish(radius * F.cos(2 * math.pi * self.rand()), out)

    def dropout(self, keep: float = 0.5, out: Any = None) -> Any:
        """Mask of ones with probability ``keep``: ``rand() < keep``, lazy.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.dropout(1.0, out=be.empty((2, 2))).tolist()
        [[1.0, 1.0], [1.0, 1.0]]
        """
        _check_probability("dropout", keep)
        return self._finish(self.rand() < keep, out)

    def make_binary_mask(self, out: Any, keepthresh: float = 0.5) -> None:
        """Fill ``out`` with ones with probability ``keepthresh``, zeros elsewhere.

        As in neon, it draws from ``be.rng`` on the CPU, and on the device, like :meth:`dropout`, on a GPU.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> mask = be.empty((2, 2))
        >>> be.make_binary_mask(mask, keepthresh=0)
        >>> mask.tolist()
        [[0.0, 0.0], [0.0, 0.0]]
        """
        _check_probability("make_binary_mask", keepthresh)
        self._check_target(out)
        self._draw_mask(out, keepthresh)

    def _draw_mask(self, out: Any, keep: float) -> None:
        """Hook for ``make_binary_mask``; a pass that is repeated draws anew each time."""
        call_again(lambda: out.set(np.less(self._own_rng().random_sample(out.shape), keep)))

    def _own_rng(self) -> np.random.RandomState:
        """Generator of numbers that differ by rank, of which ``be.rng``, equal on all ranks, is the source."""
        if self.ranks.size == 1:
            return self.rng
        return np.random.RandomState([int(self.rng.randint(1 << 31)), self.ranks.rank])

    def fill_normal(self, ary: Any, mean: float = 0, stdv: float = 1) -> None:
        """Fill ``ary`` with N(mean, stdv**2) from ``be.rng``; each rank gets numbers of its own.

        Parameters
        ----------
        ary : tensor
            The target; any shape.
        mean, stdv : float
            Mean and standard deviation.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> x = be.empty((2, 2))
        >>> be.fill_normal(x, mean=5, stdv=0)
        >>> x.tolist()
        [[5.0, 5.0], [5.0, 5.0]]
        """
        self._check_target(ary)
        ary.set(self._own_rng().standard_normal(size=ary.shape) * stdv + mean)


def _check_probability(name: str, keep: float) -> None:
    if not 0 <= keep <= 1:
        raise ArgumentError(f"{name}: the probability to keep must be in [0, 1], got {brief(keep)}")
