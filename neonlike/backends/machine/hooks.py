"""neon's hooks for other machines and modes; most do nothing on a single device, but scripts and layers call them."""

from __future__ import annotations

import numbers
from functools import cached_property
from typing import Any, ClassVar

from neonlike.backends.machine.mkl import MklFamily
from neonlike.checks import brief, require_method
from neonlike.errors import ArgumentError
from neonlike.kernels.build.cache import default_directory
from neonlike.kernels.run.threads import choose, thread_count
from neonlike.settings import MOST_THREADS


class HooksFamily(MklFamily):
    """Data distribution, data conversion, compatibility modes, and device information for scripts.

    Attributes
    ----------
    device_type, device_id : int
        0 for the CPU.
    use_pinned_mem : bool
    enable_winograd : bool or int
        Whether 3 x 3 filters may use Winograd's algorithm. Settable: False or 0, never; True or 2, tiles of 2 x 2
        results where they are faster; 4, also tiles of 4 x 4, with a larger error (given in
        ``cpu/primitives/conv/winograd.py``), but not where a CPU rounds factors to bfloat16.
    stream, ctx, cublas_handle, init_rng_state_dev, pcg
        Only for a GPU; None here.
    compute_capability : (int, int)
    gpu_memory_size : int
        Only for a GPU; (0, 0), and 0 bytes here.
    use_cudac_kernels, warmup : bool
    round_mode : int
        Mantissa bits kept by stochastic rounding in assignments; 0: to nearest.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.device_type, be.round_mode
    (0, 0)
    """

    fixed: ClassVar[frozenset[str]] = frozenset(
        "device_type device_id use_pinned_mem stream ctx cublas_handle init_rng_state_dev pcg compute_capability "
        "gpu_memory_size use_cudac_kernels warmup round_mode".split()
    )
    device_type = 0
    device_id = 0
    use_pinned_mem = False
    enable_winograd: Any = True
    stream: Any = None
    ctx: Any = None
    cublas_handle: Any = None
    init_rng_state_dev: Any = None
    pcg: Any = None
    compute_capability: tuple[int, int] = (0, 0)
    gpu_memory_size = 0
    use_cudac_kernels = False
    warmup = False
    round_mode: int | bool = 0

    @cached_property
    def buf(self) -> dict[Any, Any]:
        """Buffers that scripts store with the backend, by name; initially empty."""
        return {}

    @cached_property
    def buf_active(self) -> dict[Any, Any]:
        """The buffers of ``buf`` in use."""
        return {}

    @cached_property
    def context_rand_state_map(self) -> dict[Any, Any]:
        """Random states on devices, by context; always empty."""
        return {}

    @cached_property
    def context_rand_state_alive(self) -> dict[Any, bool]:
        """The live states among these."""
        return {}

    @property
    def sm_count(self) -> int:
        """Parallel units of the device: threads."""
        return thread_count()

    @property
    def num_threads(self) -> int:
        """Number of threads per kernel, and of NumPy block computations; settable, for the whole process.

        The default is ``NEONLIKE_NUM_THREADS``, else ``OMP_NUM_THREADS``, else the number of cores; None restores it.
        Steps of ``be.prepare`` keep the number of their creation. Results do not depend on it, except for the last bits
        of large matrix products by NumPy's BLAS. OpenBLAS runs on these threads; other libraries have their own (set by
        their variables, or the package threadpoolctl).

        Raises
        ------
        ArgumentError
            If it is set to anything but a whole number from 1 to 4096; it then stays unchanged.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.num_threads = 1
        >>> be.num_threads
        1
        >>> be.num_threads = None
        """
        return thread_count()

    @num_threads.setter
    def num_threads(self, count: int | None) -> None:
        if count is not None:
            whole = isinstance(count, numbers.Integral) and not isinstance(count, bool)
            if not whole or not 1 <= int(count) <= MOST_THREADS:
                raise ArgumentError(
                    f"num_threads: expected a whole number from 1 to {MOST_THREADS}, or None for what the environment "
                    f"says, got {brief(count)}"
                )
            count = int(count)
        choose(count)

    @property
    def cache_dir(self) -> str:
        """Folder of the compiled kernels."""
        return str(default_directory())

    def get_events(self) -> tuple[Any, Any]:
        """A pair of time marks (start, end), always the same, for ``record_mark`` and ``get_time``.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> start, end = be.get_events()
        >>> be.record_mark(start)
        >>> be.record_mark(end)
        >>> be.get_time(start, end) >= 0
        True
        """
        return self._events

    @cached_property
    def _events(self) -> tuple[Any, Any]:
        return self.init_mark(), self.init_mark()

    def set_caffe_compat(self) -> None:
        """Use Caffe's sizes for pooling and its scaling for dropout.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.set_caffe_compat()
        >>> be.check_caffe_compat()
        True
        """
        self.compat_mode = "caffe"

    def check_caffe_compat(self) -> bool:
        """True in Caffe mode.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.check_caffe_compat()
        False
        """
        return self.compat_mode == "caffe"

    def is_mkl(self) -> bool:
        """Whether this is the backend ``mkl``.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.is_mkl()
        False
        """
        return False

    def revert_tensor(self, tensor: Any) -> None:
        """Undo :meth:`distribute_data`.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.revert_tensor(be.ones((2, 3)))
        """

    def convert_data(self, tensor: Any, layer_mkl: Any) -> None:
        """Convert to an engine's layout; there is one layout.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.convert_data(be.ones((2, 3)), None)
        """

    def clean_data(self, tensor: Any, layer_mkl: Any) -> None:
        """Drop an engine's copy of ``tensor``.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.clean_data(be.ones((2, 3)), None)
        """

    def allocate_new_outputs(self, layer: Any, share_output: Any) -> None:
        """Let ``layer`` allocate its outputs, shared with ``share_output``.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> class Layer:
        ...     def allocate(self, shared_outputs=None):
        ...         self.outputs = shared_outputs
        >>> layer = Layer()
        >>> gen_backend("cpu").allocate_new_outputs(layer, "buffer")
        >>> layer.outputs
        'buffer'
        """
        require_method("allocate_new_outputs", "layer", layer, "allocate", "Linear(...)")
        layer.allocate(shared_outputs=share_output)

    def allocate_new_deltas(self, delta: Any, in_shape: Any, parallelism: Any) -> Any:
        """Return ``delta``.

        Parameters
        ----------
        delta : tensor
        in_shape, parallelism
            Without effect.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.allocate_new_deltas("buffer", (2, 3), None)
        'buffer'
        """
        return delta

    def bibnrnn_layer(
        self, h_buffer_all: Any, h_ff_buffer: Any, W_recur_f: Any, W_recur_b: Any, nsteps: int, nout: int
    ) -> None:
        """Engine object of a bidirectional recurrent layer; not used.

        Parameters
        ----------
        h_buffer_all, h_ff_buffer, W_recur_f, W_recur_b, nsteps, nout
            Without effect.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.bibnrnn_layer(None, None, None, None, 1, 1)
        """

    def relu_layer(self) -> None:
        """Engine object of a relu layer; not used.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.relu_layer()
        """

    def batchnorm_layer(self, in_shape: Any) -> None:
        """Engine object of a batch normalisation layer; not used.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.batchnorm_layer((2, 3))
        """

    def mergesum_layer(self, layer_num: int) -> None:
        """Engine object of a merge-sum container; not used.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.mergesum_layer(2)
        """

    def mergebroadcast_layer(self, layer_num: int) -> None:
        """Engine object of a merge-broadcast container; not used.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.mergebroadcast_layer(2)
        """
