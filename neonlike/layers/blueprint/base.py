"""Blueprints, which are values: what all kinds have in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from neonlike.backends.descriptors import TensorDesc
from neonlike.backends.families.scratch import GRANULE
from neonlike.backends.geometry.counts import round_up
from neonlike.nervanaobject import NervanaObject


@contextmanager
def working(be: Any, desc: TensorDesc) -> Iterator[None]:
    """Make ``be`` the current backend, with the batch size and dtype of ``desc``; and all as it was afterwards.

    Transforms, initializers, optimizers and recurrent layers work on the current backend, and take both from it.
    """
    before = NervanaObject.be, be.bsz, be.default_dtype
    try:
        NervanaObject.be, be.bsz, be.default_dtype = be, desc.shape[-1], desc.dtype
        yield
    finally:
        NervanaObject.be, be.bsz, be.default_dtype = before


@dataclass(frozen=True)
class Blueprint:
    """A blueprint describes a layer to be built. It takes no memory for tensors; two of equal attributes are equal.

    Attributes
    ----------
    src_desc : TensorDesc or tuple of TensorDesc
        The input, or inputs.
    inf_desc, train_desc, diff_desc : TensorDesc or tuple of TensorDesc
        The output in inference and in training, and its gradient.
    inf_workspace_bytes, train_workspace_bytes : int
        What the layer takes of a workspace while it computes.
    """

    be: Any = field(compare=False, repr=False)
    src_desc: Any

    kind: ClassVar[str] = ""
    hands_input_on: ClassVar[bool] = False
    """Whether the output in inference is the input itself."""
    inf_workspace_bytes: ClassVar[Any] = 0
    train_workspace_bytes: ClassVar[Any] = 0

    @cached_property
    def dst_desc(self) -> Any:
        """The output, as most kinds have it in all three contexts."""
        return self.src_desc

    @property
    def inf_desc(self) -> Any:
        """The output in inference."""
        return self.dst_desc

    @property
    def train_desc(self) -> Any:
        """The output in training."""
        return self.dst_desc

    @property
    def diff_desc(self) -> Any:
        """The gradient with respect to the output."""
        return self.dst_desc

    @property
    def kernel_bytes(self) -> int:
        """The most that a kernel of a training step works in; the backend keeps it for all layers, not the layer."""
        return 0

    @property
    def activation_name(self) -> str | None:
        """The activation that the output comes from; None if it is of another kind."""
        return None

    def layer_class(self) -> Any:
        """The class of the layers."""
        raise NotImplementedError

    def build(
        self,
        train: bool = True,
        source: Any = None,
        *,
        workspace: Any = None,
        input_gradient: bool = True,
        output: Any = None,
    ) -> Any:
        """The layer, and the memory that it needs. Parameters are 0 (the scale of a normalization 1) until ``init``.

        Parameters
        ----------
        train : bool
            Whether it has gradients; without, it is for inference only.
        source : layer, tensor or list of them, optional
            What its input is: the output of a layer, or a tensor of ``src_desc``. By default a new tensor.
        workspace : optional
            What ``be.workspace(bytes)`` gave, of at least as many bytes as the blueprint asks for; layers that run one
            after the other share it. By default the layer gets one of its own.
        input_gradient : bool
            Whether the gradient with respect to the input is computed.
        output : Tensor, optional
            Memory for the output.

        Raises
        ------
        ShapeError, DTypeError
            If ``source`` or ``workspace`` do not fit.
        """
        return self.layer_class()(self, train, source, workspace, input_gradient, output)

    def __str__(self) -> str:
        return f"{self.kind}: {_shapes(self.src_desc)} -> {_shapes(self.dst_desc)}"


def _shapes(desc: Any) -> str:
    return ", ".join(str(one.shape) for one in desc) if isinstance(desc, tuple) else str(desc.shape)


def room(desc: TensorDesc) -> int:
    """Bytes that a tensor of ``desc`` takes beside others in a workspace."""
    return round_up(desc.nbytes, GRANULE)
