"""Tensors from descriptors, and objects that move samples between them; memory from files, workspaces, BLAS's names."""

from __future__ import annotations

import os
from typing import Any

from neonlike.backends.descriptors import TensorDesc
from neonlike.backends.family import Family
from neonlike.backends.objects.batchnorm import BatchNormOp
from neonlike.backends.objects.blas import Blas
from neonlike.backends.objects.mapped import map_file
from neonlike.backends.objects.movers import Batcher, Shuffler, Transformer
from neonlike.backends.objects.workspace import Workspace


class DescribedFamily(Family):
    """``tensor``, ``transformer``, ``batcher``, ``shuffler``, ``mapped``, ``workspace``, ``native``, ``blas``.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> be = gen_backend("cpu")
    >>> be.workspace(64).nbytes
    64
    """

    _native: Any = None

    def tensor(self, desc: TensorDesc, init: bool = True, name: str | None = None) -> Any:
        """Create a tensor described by ``desc``, which is kept as ``t.desc``.

        Parameters
        ----------
        desc : TensorDesc
        init : bool
            Zero the contents; False: contents as in :meth:`empty`.
        name : str, optional
            Shown by ``repr`` and in reports.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> from neonlike.backends.descriptors import TensorDesc
        >>> be = gen_backend("cpu")
        >>> images = be.tensor(TensorDesc((8, 3, 4, 4), "float32", "NCHW"))
        >>> images.shape, images.batch_axis
        ((8, 3, 4, 4), 0)
        """
        made = (self.zeros if init else self.empty)(desc.shape, desc.dtype, name)
        made.desc = desc
        return made

    # Movers of samples

    def transformer(self, src: Any, dst: Any) -> Transformer:
        """Create a function that copies between layouts and dtypes: ``be.transformer(src, dst)()`` copies src into dst.

        Parameters
        ----------
        src, dst : Tensor or TensorDesc
            Tensors without a descriptor are taken in neon's layout, (C, H, W, N). Either may be on :attr:`native`. If a
            descriptor stands for a tensor, the call takes the tensor: ``t(src, dst)``.

        Raises
        ------
        ShapeError
            If axes have different sizes; an axis of size 1 may be missing on one side.
        DTypeError
            If one is neither tensor nor descriptor.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> from neonlike.backends.descriptors import TensorDesc
        >>> be = gen_backend("cpu")
        >>> images = TensorDesc((8, 3, 4, 4), "uint8", "NCHW")
        >>> to_neon = be.transformer(images, TensorDesc((3, 4, 4, 8), "float32", "CHWN"))
        >>> to_neon(be.tensor(images)).shape
        (3, 4, 4, 8)
        """
        return Transformer(self, src, dst)

    def batcher(self, src: Any, dst: Any, mb_size: int | None = None) -> Batcher:
        """Create a function that copies minibatches of ``src`` into ``dst``: ``for minibatch in be.batcher(src, dst)``.

        Parameters
        ----------
        src : Tensor
            All samples; may be on :attr:`native`, or mapped from a file.
        dst : Tensor or TensorDesc
            A minibatch, possibly in another layout and dtype. For a descriptor, a tensor is created.
        mb_size : int, optional
            Samples per copy; default: the size of dst.

        Raises
        ------
        ShapeError
            If samples of the two have different axes, or a layout has no batch.
        ArgumentError
            If dst has no room for ``mb_size`` samples.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> samples, minibatch = be.array([[0, 1, 2, 3, 4]]), be.zeros((1, 2))
        >>> [m.tolist() for m in be.batcher(samples, minibatch)]
        [[[0.0, 1.0]], [[2.0, 3.0]], [[4.0]]]
        """
        return Batcher(self, src, dst, mb_size)

    def shuffler(self, src: Any, dst: Any) -> Shuffler:
        """Create a function that copies samples of ``src`` to ``dst`` by number: ``be.shuffler(src, dst)([3, 1, 1])``.

        Parameters
        ----------
        src : Tensor
        dst : Tensor or TensorDesc
            As in :meth:`batcher`.

        Raises
        ------
        ShapeError
            If samples of the two have different axes, or a layout has no batch.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> samples, minibatch = be.array([[0, 1, 2, 3, 4]]), be.zeros((1, 3))
        >>> be.shuffler(samples, minibatch)([4, 0, 4]).tolist()
        [[4.0, 0.0, 4.0]]
        """
        return Shuffler(self, src, dst)

    # Memory

    def mapped(self, path: str | os.PathLike[str], desc: TensorDesc, mode: str = "r", offset: int = 0) -> Any:
        """Map the bytes of a file, from ``offset`` on, as a tensor described by ``desc``.

        On the CPU pages are read on first use, and writes go directly to the file. On a GPU the tensor is a copy, made
        at once, which ``t.flush()`` and ``t.close()`` write back.

        Parameters
        ----------
        path : path
        desc : TensorDesc
        mode : "r", "r+" or "w+"
            "r": tensor and views are read-only. "r+": reading and writing; a short file grows. "w+": a new file of
            zeros, which replaces an existing one.
        offset : int
            Offset in bytes; a multiple of the element size.

        Returns
        -------
        Mapped
            Has ``flush()``, ``close()`` and ``with``; see :class:`~neonlike.backends.objects.mapped.Mapped`.

        Raises
        ------
        OSError
            If the file does not exist, or cannot be read or written.
        ShapeError
            If an existing file is too short for reading, or ``desc`` has no elements.
        ArgumentError
            For another mode or an invalid offset.

        Examples
        --------
        >>> import os, tempfile
        >>> from neonlike.backends import gen_backend
        >>> from neonlike.backends.descriptors import TensorDesc
        >>> be = gen_backend("cpu")
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = os.path.join(folder, "numbers.bin")
        ...     with be.mapped(path, TensorDesc((1, 2), "float32"), "w+") as t:
        ...         t[:] = 7
        ...     os.path.getsize(path)
        8
        """
        self.check_open("mapped")
        return map_file(self, path, desc, mode, offset)

    def workspace(self, nbytes: int) -> Workspace:
        """Create memory of ``nbytes`` for several layers to use in turn.

        Raises
        ------
        ArgumentError
            If it is negative.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> work = be.workspace(1024)
        >>> first, second = work.tensor((4, 8)), work.tensor((2, 2))    # over the same bytes
        >>> first.ptr == second.ptr
        True
        """
        return Workspace(self, nbytes)

    # Other factories

    @property
    def native(self) -> Any:
        """The backend of host memory for this backend: itself on the CPU; for a GPU, a CPU backend.

        It has this backend's default dtype and batch size, and is created on first use.
        """
        if self.tensor_cls.live_host:
            return self
        if self._native is None:
            self._native = self.allocate_backend("cpu", default_dtype=self.default_dtype, bench=False)
        self._native.bsz = self.bsz
        return self._native

    def blas(self, dtype: Any = None) -> Blas:
        """Vectors, matrices and BLAS operations in ``dtype``; default: this backend's dtype.

        Raises
        ------
        DTypeError
            If the dtype is not a float.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> blas = gen_backend("cpu").blas("float64")
        >>> blas.nrm2(blas.vector([3, 4]))
        5.0
        """
        return Blas(self, self._layer_dtype("blas", dtype))

    # Batch normalisation as an object

    def batchnorm_op(self, mode: str = "spatial", nan: str = "propagate") -> BatchNormOp:
        """Create a batch normalisation object that keeps its statistics: ``be.batchnorm_op("spatial").stage(x_desc)``.

        Parameters
        ----------
        mode : "spatial", "per_activation" or "spatial_persistent"
            Statistics of each channel over samples and positions; or of each position of each channel over samples.
            "spatial_persistent" equals "spatial", with the same kernels.
        nan : "propagate" or "ignore"
            Whether a nan in x makes its whole row nan, or is excluded: see :class:`BatchNormOp`.

        Raises
        ------
        ArgumentError
            For another mode or policy.

        Examples
        --------
        >>> from neonlike.backends import gen_backend
        >>> be = gen_backend("cpu")
        >>> be.batchnorm_op("per_activation")
        <BatchNormOp per_activation, not staged>
        """
        return BatchNormOp(self, mode, nan)
