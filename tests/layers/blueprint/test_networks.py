"""Networks of blueprints: streams that part and meet, costs, shared workspaces, and shapes before any memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.backends.descriptors import TensorDesc
from neonlike.data import Digits
from neonlike.errors import DTypeError, OutOfMemory, ShapeError
from neonlike.initializers import GlorotUniform
from neonlike.optimizers import Adam, GradientDescentMomentum, MultiOptimizer
from neonlike.transforms import Logistic
from tests.layers.blueprint.blueprinted import check_gradients, filled, run
from tests.support.differences import slope
from tests.support.numbers import close

pytestmark = pytest.mark.engines("numpy", "c")

N = 4


# Streams ------------------------------------------------------------------------------------------------------------


def test_a_sum(be64: Backend) -> None:
    bp = be64.blueprints.sum([(5, N), (5, N), (5, N)])
    layer = run(filled(bp.build()))
    assert bp.inf_desc.shape == (5, N)
    close(layer.output, sum(x.get() for x in layer.input))
    for gradient in layer.diff_input:
        close(gradient, layer.diff_output)


@pytest.mark.parametrize("axis", [0, "H"])
def test_a_concatenation(be64: Backend, axis: Any) -> None:
    where = {"H": 1}.get(axis, axis)
    shapes = [(2, 3, 4, N), (2, 3, 4, N)]
    shapes[1] = (*shapes[1][:where], 5, *shapes[1][where + 1 :])
    bp = be64.blueprints.concat(shapes, axis)
    layer = run(filled(bp.build()))
    wanted = np.concatenate([x.get() for x in layer.input], axis=where)
    assert bp.inf_desc.shape == wanted.shape
    close(layer.output, wanted)
    start = 0
    for gradient in layer.diff_input:
        end = start + gradient.shape[where]
        close(gradient, np.take(layer.diff_output.get(), range(start, end), axis=where))
        start = end


def test_a_concatenation_in_another_dtype(be64: Backend) -> None:
    layer = run(filled(be64.blueprints.concat([(2, N), (3, N)], dst_type="float32").build()))
    assert layer.output.dtype == np.float32 and layer.diff_input[0].dtype == np.float64
    close(layer.diff_input[1], layer.diff_output.get()[2:])


@pytest.mark.parametrize("parts", [[2, 3], [(2, 3, 4, N), (3, 3, 4, N)]])
def test_a_branch(be64: Backend, parts: Any) -> None:
    bp = be64.blueprints.branch((5, 3, 4, N), 0, parts)
    layer = run(filled(bp.build()))
    assert [desc.shape[0] for desc in bp.inf_desc] == [2, 3]
    x = layer.input.get()
    close(layer.output[0], x[:2])
    close(layer.output[1], x[2:])
    close(layer.diff_input, np.concatenate([e.get() for e in layer.diff_output]))


def test_a_split(be64: Backend) -> None:
    """Each output is the input, without a copy; gradients add up."""
    bp = be64.blueprints.split((5, N), 3)
    layer = run(filled(bp.build()))
    assert bp.inf_desc == (TensorDesc((5, N), np.float64),) * 3
    assert all(y is layer.input for y in layer.output)
    close(layer.diff_input, sum(e.get() for e in layer.diff_output))


def two_paths(be: Backend) -> Any:
    """x -> split -> (tanh layer, two layers) -> sum -> branch -> concat."""
    make = be.blueprints
    halves = make.split((6, N), 2)
    first = make.fully_connected(halves.train_desc[1], 7, "swish")
    long = make.sequential([first, make.inner_product(first, 5)])
    paths = make.parallel([make.fully_connected(halves.train_desc[0], 5, "tanh"), long])
    together = make.sum(paths)
    apart = make.branch(together, 0, [2, 3])
    return make.sequential([halves, paths, together, apart, make.concat(apart)])


def test_a_network_with_paths_side_by_side(be64: Backend) -> None:
    bp = two_paths(be64)
    net = filled(bp.build())
    short, (first, second) = net[1][0], net[1][1].layers
    x = net.input.get()
    z = first.weights.get() @ x + first.bias.get()
    wanted = np.tanh(short.weights.get() @ x + short.bias.get())
    wanted += second.weights.get() @ (z / (1 + np.exp(-z))) + second.bias.get()
    close(net.forward(), wanted)
    check_gradients(net)
    inference = bp.build(train=False, source=net.input)
    for mine, its in zip(inference.parameters, net.parameters):
        mine[:] = its
    close(inference(), wanted)


def test_the_linear_part_of_a_network_has_the_activations_between_its_layers(be64: Backend) -> None:
    make = be64.blueprints
    inner = make.sequential([make.fully_connected((6, N), 5, "tanh"), make.fully_connected((5, N), 4, "logistic")])
    whole, parts = (filled(inner.build()) for _ in range(2))
    for net in (whole, parts):
        for mine, its in zip(net.parameters, whole.parameters):
            mine[:] = its
        net.input[:], net.diff_output[:] = whole.input, whole.diff_output
        net.forward()
    whole.backward()
    parts.backward_activation()
    parts.backward_diff(1, 0, 1, 1)
    for one, other in zip(whole.layers, parts.layers):
        close(other.diff_weights, one.diff_weights.get())
        close(other.diff_bias, one.diff_bias.get())
    close(parts.diff_input, whole.diff_input.get())


def test_layers_may_be_connected_by_hand(be64: Backend) -> None:
    """A layer whose source is another one reads its output, and writes its gradient."""
    make = be64.blueprints
    a, b = filled(make.inner_product((6, N), 5).build()), filled(make.inner_product((6, N), 5).build())
    total = make.sum([a.blueprint, b.blueprint]).build(source=[a, b])
    assert total.input == (a.output, b.output)
    total.diff_output.fill(2)
    for layer in (a, b, total):
        layer.forward()
    total.backward()
    assert (a.diff_output.get() == 2).all() and (b.diff_output.get() == 2).all()


# Costs --------------------------------------------------------------------------------------------------------------


def softmax(z: Any) -> Any:
    e = np.exp(z - z.max(axis=0))
    return e / e.sum(axis=0)


COSTS: dict[tuple[str, str], Any] = {
    ("crossentropy", "softmax"): lambda y, t: -(t * np.log(y)).sum() / N,
    ("crossentropy", "logistic"): lambda y, t: -(t * np.log(y) + (1 - t) * np.log(1 - y)).sum() / N,
    ("mean_absolute", "tanh"): lambda y, t: np.abs(y - t).sum() / y.size,
    ("quadratic", "softmax"): lambda y, t: ((y - t) ** 2).sum() / (2 * y.size),
    ("quadratic", "identity"): lambda y, t: ((y - t) ** 2).sum() / (2 * y.size),
}


@pytest.mark.compiles(2)
@pytest.mark.parametrize("case", COSTS)
def test_a_cost(be64: Backend, case: tuple[str, str]) -> None:
    """Its value is the mean over the batch, and its gradient that of the sum, by differences of the weights."""
    kind, activation = case
    layer = filled(be64.blueprints.fully_connected((6, N), 5, activation).build())
    cost = be64.blueprints.cost(kind, layer).build()
    targets = np.eye(5)[:, [0, 2, 1, 2]]
    cost.targets[:] = targets
    layer.forward()
    assert cost() == pytest.approx(COSTS[case](layer.output.get(), targets), rel=1e-9)
    assert cost.backward() is layer.diff_output
    layer.backward()
    direction = np.random.default_rng(3).normal(size=(5, 6))

    def value() -> float:
        layer.forward()
        return cost()

    wanted = N * slope(value, layer.weights, direction)
    assert (layer.diff_weights.get() * direction).sum() == pytest.approx(wanted, rel=1e-6, abs=1e-7)


def test_several_costs_of_one_layer(be64: Backend) -> None:
    """The one that wrote the gradient says whether the derivative of the activation is in it."""
    layer = filled(be64.blueprints.fully_connected((6, N), 5, "logistic").build())
    entropy, quadratic = (be64.blueprints.cost(kind, layer).build() for kind in ("crossentropy", "quadratic"))
    y = layer.forward().get()
    for cost, wanted in ((entropy, y), (quadratic, y / 5 * y * (1 - y)), (entropy, y)):
        cost.backward()  # of targets of 0
        layer.backward()
        close(layer.diff_z, wanted)


def test_a_transform_of_several_layers_is_each_ones_own(be64: Backend) -> None:
    """Cross-entropy takes the derivative over from the last layer alone."""
    make, transform = be64.blueprints, Logistic()
    first = make.fully_connected((6, N), 5, transform)
    net = filled(make.sequential([first, make.fully_connected(first, 3, transform)]).build())
    net.forward()
    make.cost("crossentropy", net).build().backward()
    net.backward()
    y, e = net[0].output.get(), net[0].diff_output.get()
    close(net[0].diff_z, y * (1 - y) * e)
    assert not transform.shortcut
    made = [layer._act.transform for layer in net.layers]
    assert made[0] is not made[1] and transform not in made


def test_a_cost_of_a_sequence_is_the_mean_over_steps_too(be64: Backend) -> None:
    make = be64.blueprints
    layer = filled(make.activation((5, 3, N), "softmax").build())
    targets = be64.array(softmax(np.random.default_rng(1).normal(size=(5, 3, N))))
    cost = make.cost("cross_entropy", layer, targets).build()
    assert cost.targets is targets
    y = layer.forward().get()
    assert cost() == pytest.approx(-(targets.get() * np.log(y)).sum() / (3 * N))
    cost.backward()
    layer.backward()
    close(layer.diff_input, y - targets.get())


# Networks -----------------------------------------------------------------------------------------------------------


def digits_network(be: Backend, samples: int) -> Any:
    make = be.blueprints
    hidden = make.fully_connected((64, samples), 50, "relu")
    noisy = make.gaussian_dropout(hidden, 0.3)
    return make.sequential([hidden, noisy, make.fully_connected(noisy, 10, "softmax")])


def test_a_network_learns_digits(be: Backend) -> None:
    """scikit-learn's digits: most of those it has not seen are read after three epochs."""
    pytest.importorskip("sklearn")
    (x, labels), (unseen, wanted), _ = Digits().load_data()
    bp = digits_network(be, 64)
    net = bp.build(input_gradient=False).init(GlorotUniform())
    cost = be.blueprints.cost("crossentropy", net).build()
    hyper = Adam(learning_rate=0.005)
    losses = []
    for _ in range(3):
        for start in range(0, len(x) - 63, 64):
            net.input[:] = np.ascontiguousarray(x[start : start + 64].T)
            cost.targets[:] = np.eye(10)[:, labels[start : start + 64]]
            net.forward(hyper)
            losses.append(cost())
            cost.backward()
            net.backward(hyper)
    assert net.diff_input is None
    reader = digits_network(be, len(unseen)).build(train=False)
    for mine, its in zip(reader.parameters, net.parameters):
        mine[:] = its
    reader.input[:] = np.ascontiguousarray(unseen.T)
    found = reader().get().argmax(axis=0)
    assert losses[0] > 2 and np.mean(losses[-10:]) < 0.5
    assert (found == wanted).mean() > 0.88


def test_a_network_is_updated_in_one_step_of_the_optimizer(be: Backend) -> None:
    net = filled(digits_network(be, N).build())
    hyper, before = Adam(), [p.get().copy() for p in net.parameters]
    net.forward(hyper)
    net.backward(hyper)
    assert hyper.t == 1 and len(net.parameters) == 4
    assert all((p.get() != old).any() for p, old in zip(net.parameters, before))
    for wrong in (net.forward, net.backward):
        with pytest.raises(DTypeError, match=r"sequential: .* takes an optimizer, such as .*Adam\(\); got 0.1"):
            wrong(0.1)


def test_layers_may_have_optimizers_of_their_own(be: Backend) -> None:
    """By the kind of the blueprint, or the name that a layer was given."""
    net = filled(digits_network(be, N).build())
    net[2].name = "head"
    before = [p.get().copy() for p in net.parameters]
    still, moving = GradientDescentMomentum(0.0, 0.0), GradientDescentMomentum(0.1, 0.0)
    net.forward()
    net.backward(MultiOptimizer({"default": moving, "head": still}))
    changed = [bool((p.get() != old).any()) for p, old in zip(net.parameters, before)]
    assert changed == [True, True, False, False]


def test_initial_values_of_a_network(be: Backend) -> None:
    """All weights are filled, but normalization starts as it is."""
    make = be.blueprints
    dense = make.inner_product((6, N), 5)
    net = make.sequential([dense, make.batch_norm(dense)]).build()
    assert all((p.get() == 0).all() for p in net[0].parameters)
    assert net.init(lambda tensor: tensor.fill(3), bias=lambda tensor: tensor.fill(2)) is net
    assert [p.get()[0, 0] for p in net.parameters] == [3, 2, 1, 0]


def test_one_workspace_serves_a_whole_network(be64: Backend) -> None:
    """Inference keeps outputs between layers in two buffers of it; training, overwritten recurrent errors."""
    make = be64.blueprints
    rnn = make.rnn((6, 5, N), 8, 2)
    last = make.abbreviate(rnn)
    dense = make.fully_connected(last, 7, "swish")
    bp = make.sequential([rnn, last, dense, make.gaussian_dropout(dense, 0.1)])
    rounded = [-(-desc.nbytes // 128) * 128 for desc in (rnn.dst_desc, last.dst_desc, dense.dst_desc)]
    assert bp.inf_workspace_bytes == rounded[0] + rounded[1] + rounded[2]  # of dense, what swish is applied to
    assert bp.train_workspace_bytes == rnn.train_workspace_bytes > 2 * rounded[0]
    work = be64.workspace(max(bp.inf_workspace_bytes, bp.train_workspace_bytes))
    train = filled(bp.build(workspace=work), scale=0.5)
    inference = bp.build(train=False, source=train.input, workspace=work)
    assert all(layer.workspace is work for net in (train, inference) for layer in net.layers)
    apart = bp.build(train=False, source=train.input)
    for net in (inference, apart):
        for mine, its in zip(net.parameters, train.parameters):
            mine[:] = its
    found = inference().get().copy()
    run(train)
    close(inference.output, found)  # is in memory of its own
    np.testing.assert_array_equal(apart().get(), found)
    close(train(), found)
    check_gradients(train.layers[0])
    with pytest.raises(ShapeError, match=rf"sequential: .* needs a workspace of {bp.train_workspace_bytes} bytes, got"):
        bp.build(workspace=be64.workspace(128))


@pytest.mark.engines("numpy")
def test_layers_do_not_work_where_their_inputs_lie(be64: Backend) -> None:
    """The input of the second convolution's activation is kept apart from both buffers."""
    make = be64.blueprints
    first = make.convolution((2, 4, 4, N), 3, 2, "tanh", padding=1)
    second = make.convolution(first, 3, 2, "swish", padding=1)
    bp = make.sequential([first, second, make.pooling(second, 2)])
    train = filled(bp.build())
    inference = bp.build(train=False, source=train.input)
    for mine, its in zip(inference.parameters, train.parameters):
        mine[:] = its
    close(inference(), train.forward())


@pytest.mark.engines("numpy")
def test_shapes_are_known_before_any_memory_is_taken(be: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every blueprint is made by a backend that has no memory; only building needs memory."""

    def full(*_given: Any, **_named: Any) -> Any:
        raise OutOfMemory("the test's allocator")

    for hook in ("_allocate", "_allocate_for_users"):
        monkeypatch.setattr(be, hook, full)
    make = be.blueprints
    images = make.convolution((3, 8, 8, N), 3, 4, "relu", padding=1)
    small = make.pooling(make.batch_norm(images, "swish"), 2)
    rnn = make.rnn((6, 5, N), 8, 2, src_iter=True)
    last = make.abbreviate(rnn)
    both = make.concat([make.gaussian_dropout(make.inner_product(small, 8), 0.1), make.activation(last, "elu")])
    head = make.sequential([both, apart := make.branch(both, 0, [10, 6]), pair := make.parallel(
        [make.fully_connected(apart.train_desc[0], 6, "softmax"), make.activation(apart.train_desc[1], "tanh")]
    ), make.sum(pair)])  # fmt: skip
    cost = make.cost("quadratic", head)
    shapes = [one.inf_desc.shape for one in (images, small, rnn, last, both, head)]
    assert shapes == [(4, 8, 8, N), (4, 4, 4, N), (8, 5, N), (8, N), (16, N), (6, N)]
    assert cost.src_desc == head.train_desc == head.diff_desc and make.split(head, 2).inf_desc[1] == head.inf_desc
    assert rnn.train_workspace_bytes > 0 and images.kernel_bytes > 0 and images.weights_desc.shape == (27, 4)
    for one in (images, small, rnn, last, both, head):
        with pytest.raises(OutOfMemory, match="the test's allocator"):
            one.build()


def test_another_backend_than_the_current_one_can_be_used(be: Backend) -> None:
    """Blueprints stay with their backend, also while another one is the current one."""
    from neonlike.nervanaobject import NervanaObject
    from tests.support.engines import new_backend

    other = new_backend(rng_seed=0)
    try:
        layer = filled(other.blueprints.fully_connected((6, N), 5, "tanh").build())
        layer.forward()
        layer.backward(GradientDescentMomentum(0.1, 0.9))
        assert layer.output.backend is other and NervanaObject.be is be
    finally:
        other.cleanup_backend()
