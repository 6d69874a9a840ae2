"""The base of blueprints: frozen descriptions of layers, made without memory for tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from neonlike.backends.descriptors import TensorDesc
from neonlike.backends.geometry.counts import round_up
from neonlike.backends.tensors.scratch import GRANULE
from neonlike.nervanaobject import NervanaObject

if TYPE_CHECKING:
    from neonlike.backends.backend import Backend


@contextmanager
def working(be: Backend, desc: TensorDesc) -> Iterator[None]:
    """Make ``be`` the current backend, with the batch size and dtype of ``desc``; restore all of it afterwards.

    Layers, transforms, initializers and optimizers take both from the current backend.
    """
    before = NervanaObject.be, be.bsz, be.default_dtype
    try:
        _set_current(be, be, desc.shape[-1], desc.dtype)
        yield
    finally:
        _set_current(be, *before)


def _set_current(be: Backend, current: Any, samples: int | None, dtype: Any) -> None:
    if NervanaObject.be is not current:  # setting it makes Python look up all attributes of layers anew
        NervanaObject.be = current
    be.bsz, be.default_dtype = samples, dtype


@dataclass(frozen=True)
class Blueprint:
    """A blueprint describes a layer to be built. It takes no memory for tensors; two of equal attributes are equal.

    Attributes
    ----------
    kind : str
        The name that messages call it by.
    src_desc, dst_desc : TensorDesc or tuple of TensorDesc
        The input and the output; several of them as a tuple.
    inf_desc, train_desc, diff_desc : TensorDesc or tuple of TensorDesc
        The output in inference and in training, and its gradient.
    inf_workspace_bytes, train_workspace_bytes : int
        Bytes of a workspace that the layer takes while it computes.
    kernel_bytes : int
        The most memory that a kernel of a training step works in; the backend keeps it for all layers.
    activation_name : str or None
        The activation that the output comes from.
    be : Backend
        The backend of the layers that are built.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.layers.blueprint.base import Blueprint
    >>> be = gen_backend("cpu", batch_size=2)
    >>> blueprint = be.blueprints.inner_product((4, 2), 3)
    >>> isinstance(blueprint, Blueprint), blueprint.src_desc.shape, blueprint.dst_desc.shape
    (True, (4, 2), (3, 2))
    >>> blueprint == be.blueprints.inner_product((4, 2), 3)
    True
    """

    be: Backend = field(compare=False, repr=False)
    kind: str
    src_desc: Any
    dst_desc: Any

    layer_class: ClassVar[Any] = None
    """The class of the built layers."""
    hands_input_on: ClassVar[bool] = False
    """Whether the output in inference is the input itself."""
    draws_weights: ClassVar[bool] = True
    """Whether ``init`` of a network fills the parameters."""
    inf_workspace_bytes: ClassVar[Any] = 0
    train_workspace_bytes: ClassVar[Any] = 0
    kernel_bytes: ClassVar[Any] = 0
    activation_name: ClassVar[Any] = None
    inf_desc = train_desc = diff_desc = property(lambda self: self.dst_desc, doc="As ``dst_desc``.")

    def build(
        self,
        train: bool = True,
        source: Any = None,
        *,
        workspace: Any = None,
        input_gradient: bool = True,
        output: Any = None,
    ) -> Any:
        """The layer, with its memory. Parameters are 0 (the scale of a normalization 1) until ``init``.

        Parameters
        ----------
        train : bool
            Whether the layer has gradients; without, it is for inference only.
        source : layer, tensor or list of them, optional
            The input: the output of a layer, or a tensor of ``src_desc``. By default a new tensor.
        workspace : optional
            A result of ``be.workspace(bytes)``, of at least the bytes that the blueprint asks for; layers that run one
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
        return self.layer_class(self, train, source, workspace, input_gradient, output)

    def __str__(self) -> str:
        return f"{self.kind}: {_shapes(self.src_desc)} -> {_shapes(self.dst_desc)}"


def _shapes(desc: Any) -> str:
    return ", ".join(str(one.shape) for one in desc) if isinstance(desc, tuple) else str(desc.shape)


def room(desc: TensorDesc) -> int:
    """Bytes that a tensor of ``desc`` takes beside others in a workspace."""
    return round_up(desc.nbytes, GRANULE)
