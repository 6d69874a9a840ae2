"""Cost functions against worked numbers, float64 formulas and finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from neonlike.errors import ArgumentError, ShapeError
from neonlike.transforms import (
    CrossEntropyBinary,
    CrossEntropyMulti,
    GANCost,
    MeanAbsolute,
    MeanSquared,
    SmoothL1Loss,
    SquareHingeLoss,
    SumSquared,
)
from neonlike.transforms.cost import Cost

Y = np.array([[0.7, 0.2], [0.2, 0.5], [0.1, 0.3]])
T = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])


def per_column(be, cost, y, t):
    out = be.empty((1, y.shape[1]))
    out[:] = cost(be.array(y), be.array(t))
    return out.get().ravel()


def gradient(be, cost, y, t):
    out = be.empty(y.shape)
    out[:] = cost.bprop(be.array(y), be.array(t))
    return out.get()


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        (CrossEntropyBinary(), [0.685179, 2.120264]),
        (CrossEntropyMulti(), [0.356675, 1.203973]),
        (CrossEntropyMulti(usebits=True), [0.514573, 1.736966]),
        (SumSquared(), [0.07, 0.39]),
        (MeanSquared(), [0.023333, 0.13]),
        (MeanAbsolute(), [0.2, 0.466667]),
        (SmoothL1Loss(1), [0.07, 0.39]),
        (SmoothL1Loss(2), [0.275, 1.03]),
        (SquareHingeLoss(), [0.913333, 1.393333]),
    ],
    ids=lambda value: getattr(value, "classnm", ""),
)
def test_worked_numbers(be, cost, expected):
    np.testing.assert_allclose(per_column(be, cost, Y, T), expected, atol=2e-6)


def test_worked_gradient_of_the_square_hinge(be):
    expected = [[-0.2, 0.8], [0.8, 1.0], [0.733333, -0.466667]]
    np.testing.assert_allclose(gradient(be, SquareHingeLoss(), Y, T), expected, atol=2e-6)


@pytest.mark.parametrize(
    "cost",
    [SumSquared(), MeanAbsolute(), MeanSquared(), SmoothL1Loss(), SmoothL1Loss(2.0), SquareHingeLoss(),
     SquareHingeLoss(0.5)],
    ids=lambda cost: cost.classnm,
)  # fmt: skip
def test_gradients_agree_with_finite_differences(be64, cost, rng):
    y = rng.normal(size=(5, 3)) * 2
    t = (rng.random((5, 3)) > 0.5).astype(np.float64)
    got = gradient(be64, cost, y, t)
    h = 1e-6
    for i in range(y.shape[0]):
        step = np.zeros_like(y)
        step[i] = h
        numeric = (per_column(be64, cost, y + step, t) - per_column(be64, cost, y - step, t)) / (2 * h)
        np.testing.assert_allclose(got[i], numeric, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize(
    ("cost", "factor"),
    [(CrossEntropyMulti(), 1), (CrossEntropyMulti(scale=3), 3), (CrossEntropyMulti(usebits=True), 1 / np.log(2)),
     (CrossEntropyBinary(), 1), (CrossEntropyBinary(scale=0.5), 0.5)],
)  # fmt: skip
def test_cross_entropies_give_the_gradient_before_the_output_transform(be, cost, factor):
    np.testing.assert_allclose(gradient(be, cost, Y, T), factor * (Y - T), rtol=1e-5)


def test_label_smoothing_moves_the_targets_towards_all_classes(be):
    cost, smoothed = CrossEntropyMulti(label_smoothing=0.3), 0.7 * T + 0.1
    np.testing.assert_allclose(per_column(be, cost, Y, T), -(smoothed * np.log(Y)).sum(0), rtol=1e-5)
    np.testing.assert_allclose(gradient(be, cost, Y, T), Y - smoothed, rtol=1e-5, atol=1e-7)
    assert cost.get_description()["config"] == {"label_smoothing": 0.3}
    with pytest.raises(ArgumentError, match="label_smoothing=1"):
        CrossEntropyMulti(label_smoothing=1)


def test_cross_entropy_of_an_impossible_class_is_floored(be):
    y, t = np.array([[0.0], [1.0]]), np.array([[1.0], [0.0]])
    np.testing.assert_allclose(per_column(be, CrossEntropyMulti(), y, t), [50.0])
    np.testing.assert_allclose(per_column(be, CrossEntropyBinary(), y, t), [100.0])


COSTS = [CrossEntropyBinary(), CrossEntropyMulti(), SumSquared(), MeanSquared(), SmoothL1Loss(), SquareHingeLoss()]


@pytest.mark.parametrize("cost", COSTS, ids=lambda cost: cost.classnm)
def test_shapes_must_be_equal(be, cost):
    with pytest.raises(ShapeError, match=r"\(3, 2\).*\(1, 2\)"):
        cost(be.array(Y), be.zeros((1, 2)))


def test_a_cost_may_be_made_of_two_functions(be):
    cost = Cost()
    with pytest.raises(NotImplementedError, match="Cost"):
        cost(be.array(Y), be.array(T))
    cost.func, cost.funcgrad = (lambda y, t: be.sum(y * t, axis=0)), (lambda y, t: t)
    np.testing.assert_allclose(per_column(be, cost, Y, T), (Y * T).sum(axis=0), rtol=1e-6)
    np.testing.assert_array_equal(gradient(be, cost, Y, T), T)


DATA, NOISE = np.array([[0.6, 0.9], [0.8, 0.3]]), np.array([[0.2, 0.7], [0.4, 0.1]])
GAN = {
    "original": (-np.log(DATA), -np.log(1 - NOISE), np.log(1 - NOISE)),
    "modified": (-np.log(DATA), -np.log(1 - NOISE), -np.log(NOISE)),
    "wasserstein": (DATA, -NOISE, NOISE),
}


@pytest.mark.parametrize("func", GAN)
def test_gan_costs(be, func):
    data, noise, generator = GAN[func]
    cost = GANCost(func=func)
    expected = {"dis_data": data, "dis_noise": noise, "dis": data + noise, "gen": generator}
    for cost_type, values in expected.items():
        out = be.empty((1, 2))
        out[:] = cost(be.array(DATA), be.array(NOISE), cost_type=cost_type)
        np.testing.assert_allclose(out.get().ravel(), values.mean(axis=0), rtol=1e-5)


@pytest.mark.parametrize("func", GAN)
def test_defect_28_gan_gradients_belong_to_the_forward_costs(be64, func):
    cost = GANCost(scale=2.0, func=func)
    sides = [(cost.bprop_data, "dis_data", DATA), (cost.bprop_noise, "dis_noise", NOISE),
             (cost.bprop_generator, "gen", NOISE)]  # fmt: skip
    for bprop, cost_type, point in sides:
        got = be64.empty(point.shape)
        got[:] = bprop(be64.array(point))

        def value(at, cost_type=cost_type):
            out = be64.empty((1, 2))
            out[:] = cost(be64.array(at), be64.array(at), cost_type=cost_type) * at.shape[0]  # the sum over rows
            return out.get().ravel()

        h = 1e-6
        for i in range(point.shape[0]):
            step = np.zeros_like(point)
            step[i] = h
            numeric = (value(point + step) - value(point - step)) / (2 * h)
            np.testing.assert_allclose(got.get()[i], 2.0 * numeric, rtol=1e-6)


def test_gan_cost_refuses_unknown_names(be):
    for arguments in ({"func": "new"}, {"cost_type": "both"}):
        with pytest.raises(ArgumentError, match=r"new|both"):
            GANCost(**arguments)
    with pytest.raises(AssertionError, match="gem"):
        GANCost()(be.array(DATA), be.array(NOISE), cost_type="gem")
