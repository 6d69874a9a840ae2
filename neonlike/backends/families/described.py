"""Tensors by descriptors, and objects that move samples between them; memory from files, workspaces, BLAS's names."""

from __future__ import annotations

import os
from typing import Any

from neonlike.backends.descriptors import TensorDesc
from neonlike.backends.families.base import Family
from neonlike.backends.objects.batchnorm import BatchNormOp
from neonlike.backends.objects.blas import Blas
from neonlike.backends.objects.mapped import map_file
from neonlike.backends.objects.movers import Batcher, Shuffler, Transformer
from neonlike.backends.objects.workspace import Workspace


class DescribedFamily(Family):
    """``tensor``, ``transformer``, ``batcher``, ``shuffler``, ``mapped``, ``workspace``, ``native``, ``blas``."""

    _native: Any = None

    def tensor(self, desc: TensorDesc, init: bool = True, name: str | None = None) -> Any:
        """A tensor as ``desc`` says, which remembers it: ``t.desc``.

        Parameters
        ----------
        desc : TensorDesc
        init : bool
            Zeros; False: contents as of :meth:`empty`.

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

    # Moving samples

    def transformer(self, src: Any, dst: Any) -> Transformer:
        """A function that copies between layouts and dtypes: ``be.transformer(src, dst)()`` copies src into dst.

        Parameters
        ----------
        src, dst : Tensor or TensorDesc
            Tensors without a descriptor of their own count as in neon's layout, (C, H, W, N). Either may be on
            :attr:`native`. Where a descriptor stands for a tensor, the call takes one: ``t(src, dst)``.

        Raises
        ------
        ShapeError
            If the axes have other sizes; an axis of size 1 may be there on one side only.
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
        """A function that copies minibatches of ``src`` into ``dst``: ``for minibatch in be.batcher(src, dst)``.

        Parameters
        ----------
        src : Tensor
            All samples; maybe on :attr:`native`, or mapped from a file.
        dst : Tensor or TensorDesc
            A minibatch, whose layout and dtype may be others. Of a descriptor, a tensor is made.
        mb_size : int, optional
            Samples to copy at a time; default: those of dst.

        Raises
        ------
        ShapeError
            If samples of the two have other axes, or a layout has no batch.
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
        """A function that copies samples of ``src`` to ``dst`` by number: ``be.shuffler(src, dst)([3, 1, 1])``.

        Parameters
        ----------
        src : Tensor
        dst : Tensor or TensorDesc
            As of :meth:`batcher`.

        Raises
        ------
        ShapeError
            If samples of the two have other axes, or a layout has no batch.

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
        """A tensor over the bytes of a file, as ``desc`` says, from ``offset`` on.

        On the CPU they are not read before they are used, and written straight to the file. On a GPU the tensor is a
        copy of them, made at once, which ``t.flush()`` and ``t.close()`` write back.

        Parameters
        ----------
        path : path
        desc : TensorDesc
        mode : "r", "r+" or "w+"
            "r": the tensor and its views refuse to be written. "r+": both; a file that is too short grows. "w+": a new
            file, of zeros; one that is there is replaced.
        offset : int
            In bytes; a multiple of an element's.

        Returns
        -------
        Mapped
            With ``flush()``, ``close()`` and ``with``; see :class:`~neonlike.backends.objects.mapped.Mapped`.

        Raises
        ------
        OSError
            If there is no such file, or it cannot be read or written.
        ShapeError
            If a file that is to be read is too short, or ``desc`` has no elements.
        ArgumentError
            On another mode or offset.
        """
        self.check_open("mapped")
        return map_file(self, path, desc, mode, offset)

    def workspace(self, nbytes: int) -> Workspace:
        """Memory of ``nbytes`` that several layers work in, one after the other.

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
        """The backend of the host's memory that goes with this one: itself on the CPU; beside a GPU, one of the CPU.

        It has this backend's default dtype and batch size, and is made when it is first asked for.
        """
        if self.tensor_cls.live_host:
            return self
        if self._native is None:
            self._native = self.allocate_backend("cpu", default_dtype=self.default_dtype, bench=False)
        self._native.bsz = self.bsz
        return self._native

    def blas(self, dtype: Any = None) -> Blas:
        """Vectors, matrices and BLAS's operations on them in ``dtype``; default: that of this backend.

        Raises
        ------
        DTypeError
            If it is no float.

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
        """Batch normalisation as an object that keeps its statistics: ``be.batchnorm_op("spatial").stage(x_desc)``.

        Parameters
        ----------
        mode : "spatial", "per_activation" or "spatial_persistent"
            Statistics of each channel over samples and positions; or of each position of each channel over samples.
            "spatial_persistent" gives what "spatial" gives, with the same kernels.
        nan : "propagate" or "ignore"
            Whether a nan in x makes all of its row nan; or counts as no element: see :class:`BatchNormOp`.

        Raises
        ------
        ArgumentError
            On another mode or policy.
        """
        return BatchNormOp(self, mode, nan)
