"""Error buffers shared by a whole network: two buffers, used alternately.

In a chain only the incoming and the outgoing error of one layer are alive at the same time, so two buffers of the size
of the largest layer input are enough. Containers with branches add a child tree with another pair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from neonlike.checks import admit
from neonlike.errors import ArgumentError
from neonlike.nervanaobject import NervanaObject

if TYPE_CHECKING:
    from neonlike.layers.core.protocol import Shaped

__public_module__ = "neonlike.layers.container"


class DeltasTree(NervanaObject):
    """A pair of error buffers, with a child for nested containers.

    Parameters
    ----------
    parent : DeltasTree, optional
        The tree of the surrounding container.

    Attributes
    ----------
    buffers : list of Tensor
        The pair; the next layer takes ``buffers[0]``.
    max_shape : int
        Elements of a batch at the largest registered layer.

    Examples
    --------
    >>> from neonlike.backends import gen_backend
    >>> from neonlike.initializers import Constant
    >>> from neonlike.layers import Linear
    >>> from neonlike.layers.container import DeltasTree
    >>> be = gen_backend("cpu", batch_size=2)
    >>> first, second, tree = Linear(5, Constant(0.1)), Linear(2, Constant(0.1)), DeltasTree()
    >>> second = second.configure(first.configure(3))
    >>> second.allocate_deltas(tree)
    >>> tree.allocate_buffers()
    >>> second.set_deltas(tree)
    >>> second.deltas.shape  # in the form of the inputs
    (5, 2)
    """

    def __init__(self, parent: DeltasTree | None = None) -> None:
        super().__init__()
        self.parent = parent
        self.child: DeltasTree | None = None
        self.buffers: list[Any] = [None, None]
        self.max_shape = 0

    @classmethod
    def of(cls, buffers: Any) -> DeltasTree:
        """Return ``buffers``, or a tree of a list's tensors, as in scripts for neon 1; the swap acts on the list."""
        if not isinstance(buffers, list):
            return buffers  # type: ignore[no-any-return]
        tree = cls()
        tree.buffers = buffers or [None]
        return tree

    def decend(self) -> DeltasTree:
        """The child tree, created at first use (the spelling is neon's)."""
        if self.child is None:
            self.child = DeltasTree(parent=self)
        return self.child

    def ascend(self) -> DeltasTree | None:
        """The parent tree; None at the root."""
        return self.parent

    def proc_layer(self, layer: Shaped) -> None:
        """Reserve space for an error in the shape of the layer's input."""
        if layer.in_shape is None:
            raise ArgumentError(
                f"{layer.name}.allocate_deltas: the layer does not know its shape; call configure first"
            )
        size = self.be.shared_iobuf_size(layer.in_shape, layer.parallelism)
        self.max_shape = max(self.max_shape, size)

    def allocate_buffers(self) -> None:
        """Allocate both buffers of this tree and of its children."""
        if self.max_shape:
            for i in range(2):
                self.buffers[i] = self.be.iobuf(self.max_shape, parallelism="Data")
        if self.child is not None:
            self.child.allocate_buffers()

    def require_buffers(self, container: Any) -> None:
        """Raise ArgumentError unless there are buffers for the branches of a container to share."""
        if self.buffers[0] is None:
            raise ArgumentError(
                f"{container.name}.set_deltas: the tree has no buffers; call allocate_deltas(tree) of the container "
                "and tree.allocate_buffers() first"
            )

    def take_view(self, layer: Shaped) -> Any:
        """Return a view of the current buffer in the shape of the layer's input, and swap the buffers.

        A tree without buffers returns new memory for the layer.
        """
        view = self.be.iobuf(layer.in_shape, shared=self.buffers[0], parallelism=layer.parallelism)
        self.swap()
        return view

    def swap(self) -> None:
        """Swap the two buffers for the next layer."""
        self.buffers.reverse()


admit(DeltasTree, "a tree of error buffers (DeltasTree)")
