"""GeneralizedCost, GeneralizedCostMask and Multicost: costs at the end of a chain, and their errors."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from neonlike.backends import gen_backend
from neonlike.errors import ArgumentError, DTypeError
from neonlike.initializers import Gaussian
from neonlike.layers import GeneralizedCost, GeneralizedCostMask, Linear, Multicost
from neonlike.optree.dialect import neon_dialect
from neonlike.transforms import CrossEntropyMulti, SumSquared

N = 4
pytestmark = pytest.mark.samples(N)


class TestCosts:
    """Cost layers."""

    @pytest.fixture
    def last(self, be):
        return Linear(3, Gaussian()).configure(5)

    def test_cost_and_errors(self, be, last, rng):
        cost = GeneralizedCost(SumSquared())
        cost.initialize(last)
        y, t = rng.normal(size=(3, N)), rng.normal(size=(3, N))
        got = cost.get_cost(be.array(y), be.array(t))
        assert isinstance(got, np.ndarray) and got.shape == (1, 1) and cost.cost is got
        assert got.item() == pytest.approx(0.5 * ((y - t) ** 2).sum() / N, rel=1e-5)
        np.testing.assert_allclose(cost.outputs.get().ravel(), 0.5 * ((y - t) ** 2).sum(axis=0), rtol=1e-5)
        errors = cost.get_errors(be.array(y), be.array(t))
        assert errors is cost.deltas
        np.testing.assert_allclose(errors.get(), y - t, rtol=1e-5, atol=1e-6)

    def test_a_mean_of_halves_is_not_rounded_to_one(self, be, rng):
        be = gen_backend(be.backend_name, batch_size=1000, datatype=np.float16)
        cost, y = GeneralizedCost(SumSquared()), rng.integers(3, size=(4, 1000))
        cost.initialize(Linear(4, Gaussian()).configure(5))
        value = cost.get_cost(be.array(y), be.zeros((4, 1000))).item()
        assert value == pytest.approx(0.5 * (y**2).sum(axis=0).mean(), rel=1e-6)

    @pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
    def test_costs_of_halves_are_not_rounded_to_halves(self, be, rng, dtype):
        """Sums of squares over many features soon exceed float16."""
        be = gen_backend(be.backend_name, batch_size=N, datatype=dtype)
        cost = GeneralizedCost(SumSquared())
        cost.initialize(Linear(3000, Gaussian()).configure(5))
        y, t = be.array(rng.uniform(-50, 50, (3000, N))), be.array(rng.uniform(-50, 50, (3000, N)))
        expected = 0.5 * ((y.get().astype(np.float64) - t.get().astype(np.float64)) ** 2).sum(axis=0)
        assert expected.min() > 1e6
        for _ in range(2):
            assert cost.get_cost(y, t).item() == pytest.approx(expected.mean(), rel=1e-5)
        np.testing.assert_allclose(cost.outputs.get().ravel(), expected, rtol=1e-5)

    def test_a_mask(self, be, last, rng):
        cost = GeneralizedCostMask(SumSquared(), weights=0.5)
        cost.initialize(last)
        y, t, mask = rng.normal(size=(3, N)), rng.normal(size=(3, N)), np.array([[1, 0, 1, 0]] * 3)
        targets = (be.array(t), be.array(mask))
        value = cost.get_cost(be.array(y), targets).item()
        assert value == pytest.approx(0.5 * 0.5 * (((y - t) * mask) ** 2).sum() / N, rel=1e-5)
        for as_neon in (False, True):
            with neon_dialect() if as_neon else nullcontext():
                errors = cost.get_errors(be.array(y), targets)
            np.testing.assert_allclose(errors.get(), (y - t) * mask * 0.5, rtol=1e-5, atol=1e-6)
        with pytest.raises(DTypeError, match="pair"):
            cost.get_cost(be.array(y), be.array(t))

    def test_several_costs(self, be, last, rng):
        costs = [GeneralizedCost(SumSquared()) for _ in range(3)]
        multi = Multicost(costs, weights=[1, 0.5, 0])
        multi.initialize([last, last, last])
        y = [rng.normal(size=(3, N)) for _ in range(3)]
        ty, t = [be.array(array) for array in y], be.zeros((3, N))
        single = [0.5 * (array**2).sum() / N for array in y]
        assert multi.get_cost(ty, t).item() == pytest.approx(single[0] + 0.5 * single[1], rel=1e-5)
        assert multi.get_cost(ty, [t, None, t]).item() == pytest.approx(single[0], rel=1e-5)
        assert multi.get_cost(ty[1], t).item() == pytest.approx(single[1], rel=1e-5)
        errors = multi.get_errors(ty, t)
        for error, array, weight in zip(errors, y, [1, 0.5, 0], strict=True):
            np.testing.assert_allclose(error.get(), array * weight, rtol=1e-5, atol=1e-6)
        assert multi.outputs is costs[0].outputs and multi.costfunc is costs[0].costfunc
        assert multi.cost is costs[0].cost

    def test_an_output_without_a_target_has_no_error(self, be, last):
        multi = Multicost([GeneralizedCost(SumSquared()), GeneralizedCost(SumSquared())])
        multi.initialize([last, last])
        y, t = be.ones((3, N)), be.zeros((3, N))
        multi.get_errors([y, y], t)
        errors = multi.get_errors([y, y], [t, None])
        assert errors[0].get().all() and not errors[1].get().any()

    def test_several_costs_need_several_outputs_and_targets(self, be, last):
        multi = Multicost([GeneralizedCost(SumSquared()), GeneralizedCost(SumSquared())])
        multi.initialize([last, last])
        y = be.ones((3, N))
        for ask in (multi.get_cost, multi.get_errors):
            with pytest.raises(ArgumentError, match="2 costs for 2 outputs and 1 targets"):
                ask([y, y], [y])
            with pytest.raises(ArgumentError, match="2 costs for 3 outputs"):
                ask([y, y, y], y)
        with pytest.raises(ArgumentError, match="one output"):
            multi.get_errors(y, y)

    def test_a_cost_that_was_not_initialized(self, be):
        cost, y = GeneralizedCost(SumSquared()), be.ones((3, N))
        for ask in (cost.get_cost, cost.get_errors):
            with pytest.raises(ArgumentError, match="initialize"):
                ask(y, y)

    @pytest.mark.parametrize("costfunc", [CrossEntropyMulti, "CrossEntropyMulti", None])
    def test_a_cost_function_must_be_an_object(self, be, costfunc):
        with pytest.raises(DTypeError, match="CrossEntropyMulti"):
            GeneralizedCost(costfunc)

    def test_multicost_checks_its_lists(self, be, last):
        with pytest.raises(ArgumentError, match="empty"):
            Multicost([])
        with pytest.raises(DTypeError, match="GeneralizedCost"):
            Multicost([SumSquared()])
        with pytest.raises(ArgumentError, match="2 weights"):
            Multicost([GeneralizedCost(SumSquared())], weights=[1, 2])
        with pytest.raises(ArgumentError, match="2 outputs"):
            Multicost([GeneralizedCost(SumSquared())]).initialize([last, last])
