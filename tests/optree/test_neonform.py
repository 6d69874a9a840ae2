"""neon's view of an expression: tuples, lists, keys, traversal, text, building by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import ArgumentError, DTypeError, NeonlikeError, ShapeError
from neonlike.optree.dialect import neon_dialect
from neonlike.optree.dtypes import DTypeRule
from neonlike.optree.node import OpTreeNode
from neonlike.optree.ops import OPS, Kind
from tests.support.engines import ON_GPU

pytestmark = pytest.mark.optree


@pytest.fixture(autouse=True)
def dialect() -> Iterator[None]:
    with neon_dialect():
        yield


@pytest.fixture
def x(be: Backend) -> Any:
    return be.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], name="x")


@pytest.fixture
def y(be: Backend) -> Any:
    return be.array([[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]], name="y")


# Members ------------------------------------------------------------------------------------------


def test_a_node_has_three_members(be: Backend, x: Any, y: Any) -> None:
    node = x + y * 2
    assert len(node) == 3
    op, left, right = node[0], node[1], node[2]
    assert op == {"op": "add", "shape": (2, 3)}
    assert left is x
    assert isinstance(right, OpTreeNode)
    assert right[0]["op"] == "mul"
    assert right[1] is y
    assert right[2] == 2
    assert (be.exp(x)[1], be.exp(x)[2]) == (x, None)
    assert be.sum(x, axis=1)[0] == {"op": "sum", "shape": (2, 1), "axis": 1}
    assert be.rand()[0]["shape"] == (0, 0)
    with pytest.raises(IndexError):
        node[3]


def test_onehot_keeps_its_indices_and_axis(be: Backend) -> None:
    indices = be.array([[0, 2]], dtype=np.int32)
    described = be.onehot(indices, axis=0)[0]
    assert (described["op"], described["axis"]) == ("onehot", 0)
    assert described["idx"] is indices


def test_shape_transpose_and_truth(be: Backend, x: Any) -> None:
    node = x * 2
    assert node.shape == (2, 3)
    assert node.T.shape == (3, 2)
    assert node.T[0]["op"] == "transpose"
    out = be.zeros((3, 2))
    assert node.transpose(out) is out
    assert np.array_equal(out.get(), x.get().T * 2)
    assert node.transpose().shape == (3, 2)
    assert bool(node)
    assert bool(x != 0)
    assert isinstance(hash(node), int)


def test_evaluation(be: Backend, x: Any) -> None:
    made = (x * 2).astensor()
    assert (made.shape, made.dtype, made.backend) == ((2, 3), np.float32, be)
    assert np.array_equal(made.get(), x.get() * 2)
    assert np.array_equal((x * 2).asnumpyarray(), x.get() * 2)
    assert x.astensor() is x
    assert (x * 2).backend is be
    with pytest.raises(ShapeError, match="no shape"):
        be.rand().astensor()
    with pytest.raises(ValueError, match="no tensor"):
        be.sqrt(2).asnumpyarray()


# Traversal and keys ------------------------------------------------------------------------------------------


def test_traversal_is_in_postorder(be: Backend, x: Any, y: Any) -> None:
    found: list[Any] = []
    node = be.sum(x * y + 2, axis=0)
    assert node.traverse(found) is found
    names = [item["op"] if isinstance(item, dict) else item for item in found]
    tensor = "GPUTensor" if ON_GPU else "CPUTensor"
    assert [type(item).__name__ for item in names] == [tensor, tensor, "str", "int", "str", "str"]
    assert names[0] is x
    assert names[1] is y
    assert names[2:] == ["mul", 2, "add", "sum"]


def test_keys_tell_structure_and_operands(be: Backend, x: Any, y: Any) -> None:
    node = be.max(x, axis=1) - y
    key = node.key()
    assert key[0] is x
    assert key[1] == ("max", 1)
    assert key[2] is y
    assert key[3] == "sub"
    assert hash(key) == hash((be.max(x, axis=1) - y).key())
    others = [be.max(x, axis=0) - y, be.max(y, axis=1) - x, be.max(x, axis=1) + y, be.min(x, axis=1) - y]
    assert len({hash(key), *(hash(other.key()) for other in others)}) == 5
    table = {key: "value"}
    assert table[(be.max(x, axis=1) - y).key()] == "value"


def test_intrinsic_keys_number_the_tensors(be: Backend, x: Any, y: Any) -> None:
    key, index_of, tensor_of = (x * y + x).intrinsic_key_maps()
    assert key == ((0, (2, 3)), (1, (2, 3)), "mul", (0, (2, 3)), "add")
    assert {id(t): i for t, i in index_of.items()} == {id(x): 0, id(y): 1}
    assert tensor_of[0] is x
    assert tensor_of[1] is y
    assert (y * x + y).intrinsic_key_maps()[0] == key
    assert (x * y + y).intrinsic_key_maps()[0] != key


# Lists ----------------------------------------------------------------------------------------------------------------

TREES: dict[str, Callable[[Backend, Any, Any], Any]] = {
    "arithmetic": lambda be, x, y: be.tanh(x - 1) * y / be.sqrt(2),
    "comparison": lambda be, x, y: (x > y) + (x == 3),
    "reductions": lambda be, x, y: x / be.sum(be.exp(y), axis=0) - be.max(x) + be.sum(x, axis=(0, 1)),
    "product": lambda be, x, y: be.dot(x * 2, y.T) + 1,
    "transpose": lambda be, x, y: (x + y).T * 2,
    "choice": lambda be, x, y: be.where(x > 2, y, -x),
    "gather": lambda be, x, y: be.take(x + 1, [2, 0], axis=1) * 2,
    "random": lambda be, x, y: x * be.rand() + (be.dropout(0.5) - be.rand()) * y,
    "onehot": lambda be, x, y: x * be.onehot([1, 0, 1], axis=0),
    "variance": lambda be, x, y: be.var(x, axis=1) + be.softplus(y),
}


@pytest.mark.parametrize("name", TREES)
def test_lists_and_back(be: Backend, x: Any, y: Any, name: str) -> None:
    tree = TREES[name](be, x, y)
    parts = OpTreeNode.optree_to_list(tree)
    assert isinstance(parts, list)
    assert parts[0]["op"] == tree[0]["op"]
    again = OpTreeNode.list_to_optree(parts)
    assert (again.shape, again.dtype, str(again)) == (tree.shape, tree.dtype, str(tree))
    assert np.array_equal(again.asnumpyarray(), tree.asnumpyarray())


def test_gradients_survive_lists(be: Backend, x: Any) -> None:
    from neonlike.backends import Autodiff

    tree = be.sum(be.take(x[:, ::2] * x.T[:2], [1, 0, 1], axis=0), axis=1)
    (gradient,) = Autodiff(tree, be).get_grad_op_tree([x])
    again = OpTreeNode.list_to_optree(OpTreeNode.optree_to_list(gradient))
    assert np.array_equal(again.asnumpyarray(), gradient.asnumpyarray())


def test_lists_of_other_things_are_those_things(x: Any) -> None:
    for thing in (x, 3, None, "text"):
        assert OpTreeNode.optree_to_list(thing) is thing
        assert OpTreeNode.list_to_optree(thing) is thing


def test_long_and_shared_expressions(be: Backend, x: Any) -> None:
    chain = x
    for _ in range(5000):
        chain = chain + 1
    again = OpTreeNode.list_to_optree(OpTreeNode.optree_to_list(chain))
    assert np.array_equal(again.asnumpyarray(), x.get() + 5000)
    assert len(chain.traverse([])) == 10001
    shared = x * 0.5
    for _ in range(40):
        shared = shared + shared
    again = OpTreeNode.list_to_optree(OpTreeNode.optree_to_list(shared))
    assert np.allclose(again.asnumpyarray(), x.get() * 2.0**39)
    for text in (str(chain), chain.pp(), str(shared), shared.to_dot()):
        assert len(text) < 100_000


@pytest.mark.parametrize(
    "parts", [[], [1, 2], ["add", 1, 2], [{}, 1, 2], [{"op": "nothing"}, 1, 2], [{"op": "add"}, 1]]
)
def test_wrong_lists_are_refused(parts: Any) -> None:
    with pytest.raises(DTypeError):
        OpTreeNode.list_to_optree(parts)


# Text -----------------------------------------------------------------------------------------------------------------


def test_text_is_prefix_or_infix(be: Backend, x: Any, y: Any) -> None:
    node = be.sig(x * y + 0.5) - be.sum(x, axis=1)
    assert str(node) == "sub(sig(add(mul(x, y), 0.5)), sum(x, axis=(1,)))"
    assert node.pp() == "(sig(((x * y) + 0.5)) - sum(x, axis=(1,)))"
    assert str(be.zeros((1, 1)) + 1) == "add(t0, 1)"
    assert "add" in repr(node + 1)


def test_graphs_draw_each_node_once(be: Backend, x: Any) -> None:
    shared = be.exp(x)
    dot = (shared * shared + 2).to_dot()
    assert dot.startswith("digraph")
    assert dot.count("exp") == 1
    assert dot.count("(2, 3) float32") == 1
    assert dot.count("->") == 5
    assert dot.rstrip().endswith("}")


# Building by name -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n, spec in OPS.items() if spec.kind is Kind.ELEMENTWISE and spec.arity < 3])
def test_every_elementwise_op_can_be_built_by_name(be: Backend, x: Any, y: Any, name: str) -> None:
    if OPS[name].dtype is DTypeRule.WHOLE:
        x, y = (be.array(t, dtype=np.int32) for t in (x.get(), y.get()))
        node = OpTreeNode.build(name, x, y if OPS[name].arity == 2 else None)
    elif OPS[name].arity == 1:
        node = OpTreeNode.build(name, x / 10, None)
    else:
        node = OpTreeNode.build(name, x, y)
    assert node[0]["op"] == name
    out = be.zeros((2, 3))
    assert OpTreeNode.build(name, node[1], node[2], out) is out
    assert np.allclose(out.get(), node.asnumpyarray(), equal_nan=True)


def test_other_kinds_can_be_built_by_name(be: Backend, x: Any, y: Any) -> None:
    build = OpTreeNode.build
    assert np.allclose(build("sum", x, None, axis=1).asnumpyarray(), x.get().sum(1, keepdims=True))
    assert build("max", x, None).shape == (1, 1)
    assert build("dot", x, y.T).shape == (2, 2)
    assert build("transpose", x * 1, None).shape == (3, 2)
    assert build("take", x, [0], axis=1).shape == (2, 1)
    out = be.zeros((2, 3))
    indices = be.array([[1, 0, 1]], dtype=np.int32)
    build("onehot", None, None, out, idx=indices, axis=0)
    assert out.get().tolist() == [[0, 1, 0], [1, 0, 1]]
    assert build("assign", out, x + y) is out
    assert np.array_equal(out.get(), x.get() + y.get())
    assert np.allclose(out.get() * math.sqrt(0.5), (out * build("sqrt", 0.5, None)).asnumpyarray())


def test_wrong_builds_are_refused(be: Backend, x: Any) -> None:
    out = be.ones((2, 3))
    attempts: list[Callable[[], Any]] = [
        lambda: OpTreeNode.build("nothing", x, x), lambda: OpTreeNode.build("add", x, None),
        lambda: OpTreeNode.build("exp", x, x), lambda: OpTreeNode.build("add", x, "text"),
        lambda: OpTreeNode.build("assign", 3, x), lambda: OpTreeNode.build("assign", x + 1, x),
        lambda: OpTreeNode.build("assign", out, [1]), lambda: OpTreeNode.build("take", x, [0]),
        lambda: OpTreeNode.build("onehot", None, None, axis=0), lambda: OpTreeNode.build("where", x, x),
        lambda: OpTreeNode.build("rand", None, None), lambda: OpTreeNode.build("exp", x, None, out=3),
        lambda: OpTreeNode.build("sum", 3, None),
    ]  # fmt: skip
    for attempt in attempts:
        with pytest.raises((TypeError, ShapeError)) as caught:
            attempt()
        assert isinstance(caught.value, NeonlikeError)
    assert (out.get() == 1).all()


def test_nothing_is_left_to_execute(x: Any) -> None:
    assert x.execute() is x
    with pytest.raises(ArgumentError, match="astensor"):
        (x + 1).execute()


def test_attributes_of_nodes_are_found_without_a_function_of_theirs(x: Any) -> None:
    assert not hasattr(OpTreeNode, "__getattr__")  # with it, CPython does not remember where attributes are
    assert not hasattr(x + 1, "no_such_thing")
