"""Random numbers: equal seeds replay exactly, masks and normals come from ``be.rng``, ``rand`` is counter-based."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import numpy as np
import pytest

from neonlike.backends import Backend
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.optree import philox
from tests.support.engines import ON_GPU, new_backend

pytestmark = [pytest.mark.optree, pytest.mark.backend]


def draw_everything(be: Backend) -> list[np.ndarray]:
    """One of each kind of random number, in a fixed order."""
    t = be.zeros((5, 7))
    drawn = [be.rng.uniform(size=3)]
    be.make_binary_mask(t, 0.3)
    drawn.append(t.get())
    t[:] = be.rand()
    drawn.append(t.get())
    t[:] = be.dropout(0.6) + be.rand()
    drawn.append(t.get())
    be.fill_normal(t, 1, 2)
    drawn.append(t.get())
    drawn.append(be.binarize(t, t).get())
    return drawn


def assert_same(first: list[np.ndarray], second: list[np.ndarray]) -> None:
    for a, b in zip(first, second):
        assert np.array_equal(a, b)


def assert_all_differ(first: list[np.ndarray], second: list[np.ndarray]) -> None:
    for a, b in zip(first, second):
        assert not np.array_equal(a, b)


def test_equal_seeds_give_equal_numbers_and_others_other() -> None:
    assert_same(draw_everything(new_backend(rng_seed=7)), draw_everything(new_backend(rng_seed=7)))
    assert_all_differ(draw_everything(new_backend(rng_seed=7)), draw_everything(new_backend(rng_seed=8)))
    assert_all_differ(draw_everything(new_backend()), draw_everything(new_backend()))


def test_the_host_generator_is_numpys(be: Backend) -> None:
    assert np.array_equal(be.rng.uniform(size=9), np.random.RandomState(0).uniform(size=9))


def test_reset_replays_from_the_seed(be: Backend) -> None:
    first = draw_everything(be)
    assert_all_differ(first, draw_everything(be))
    be.rng_reset()
    assert_same(first, draw_everything(be))
    unseeded = new_backend()
    first = draw_everything(unseeded)
    unseeded.rng_reset()
    assert_same(first, draw_everything(unseeded))


def test_a_state_replays_from_where_it_was_taken(be: Backend) -> None:
    draw_everything(be)
    state = be.rng_get_state()
    expected = draw_everything(be)
    draw_everything(be)
    be.rng_set_state(state)
    assert_same(expected, draw_everything(be))


@pytest.mark.parametrize("carry", [pickle.dumps, copy.deepcopy, copy.copy])
def test_states_survive_pickling_and_other_backends(carry: Any) -> None:
    for seed in (3, None):
        be = new_backend(rng_seed=seed)
        draw_everything(be)
        carried = carry(be.rng_get_state())
        state = pickle.loads(carried) if carry is pickle.dumps else carried
        expected = draw_everything(be)
        other = new_backend(rng_seed=99)
        other.rng_set_state(state)
        assert_same(expected, draw_everything(other))


def test_states_are_numpys_five_tuples_and_pairs_on_a_gpu(be: Backend) -> None:
    draw_everything(be)
    state = be.rng_get_state()
    assert isinstance(state, tuple)
    host = state
    if ON_GPU:
        host, device = state
        assert (device.shape, device.dtype) == ((196608, 1), np.uint32)
        assert (device != be.init_rng_state_dev).any()
        expected = draw_everything(be)
        be.rng_set_state((tuple(host), device.copy()))  # both parts hold what is needed
        assert_same(expected, draw_everything(be))
        be.rng_set_state(state)
    assert len(host) == len(be.init_rng_state) == 5
    plain = np.random.RandomState(0)
    plain.set_state(host)
    assert plain.uniform() == be.rng.uniform()
    numpy_state = np.random.RandomState(5).get_state()
    be.rng_set_state(numpy_state)
    assert be.rng.uniform() == np.random.RandomState(5).uniform()
    be.rng_set_state((numpy_state, np.zeros((196608, 1), np.uint32)))  # as neon's GPU backend writes it
    assert be.rng.uniform() == np.random.RandomState(5).uniform()


@pytest.mark.parametrize("state", [None, 3, (), ("MT19937",), ("x", [1], 2, 3, 4.0), "MT19937"])
def test_a_wrong_state_changes_nothing(be: Backend, state: Any) -> None:
    expected = draw_everything(be)
    be.rng_reset()
    with pytest.raises(ArgumentError, match="rng_set_state"):
        be.rng_set_state(state)
    assert_same(expected, draw_everything(be))


def test_gen_rng_starts_anew(be: Backend) -> None:
    expected = draw_everything(new_backend(rng_seed=11))
    made = be.gen_rng(11)
    assert made is be.rng
    assert_same(expected, draw_everything(be))
    be.rng_reset()
    assert_same(expected, draw_everything(be))
    be.gen_rng(np.int64(11))
    assert_same(expected, draw_everything(be))
    be.gen_rng()
    assert_all_differ(expected, draw_everything(be))
    for seed in (-1, "x", 1.5, [1, 2]):
        with pytest.raises(ArgumentError, match="seed"):
            be.gen_rng(seed)


# Masks and normals from be.rng ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(3, 4), (1, 7), (2, 3, 5)])
@pytest.mark.parametrize("keep", [0.0, 0.3, 0.5, 1.0])
@pytest.mark.cpu_only("a GPU draws them on the device")
def test_binary_masks_are_exactly_the_host_generators(be: Backend, shape: tuple[int, ...], keep: float) -> None:
    mask = be.ones(shape)
    assert be.make_binary_mask(mask, keep) is None
    expected = np.random.RandomState(0).uniform(size=shape) < keep
    assert np.array_equal(mask.get(), expected.astype(np.float32))


def test_binary_masks_go_into_any_tensor(be: Backend) -> None:
    wanted = be.zeros((4, 3))
    be.rng_reset()
    be.make_binary_mask(wanted)
    assert set(np.unique(wanted.get())) == {0, 1}
    for mask in (be.zeros((4, 6))[:, ::2], be.zeros((3, 4)).T, be.zeros((4, 3), dtype=np.int8)):
        be.rng_reset()
        be.make_binary_mask(mask)
        assert np.array_equal(mask.get(), wanted.get())


def test_fill_normal_draws_from_the_host_generator(be: Backend) -> None:
    t = be.zeros((50, 40))
    assert be.fill_normal(t, mean=3, stdv=0.5) is None
    expected = np.random.RandomState(0).standard_normal(size=(50, 40)) * 0.5 + 3
    assert np.allclose(t.get(), expected, rtol=1e-6)
    assert abs(t.get().mean() - 3) < 5 * 0.5 / math.sqrt(2000)
    assert abs(t.get().std() - 0.5) < 0.05


def test_stochastic_binarize_draws_from_the_rand_stream(be: Backend) -> None:
    x = be.array([np.linspace(-1.5, 1.5, 4001)])
    out, drawn = be.zeros(x.shape), be.zeros(x.shape)
    drawn[:] = be.rand()
    be.rng_reset()
    assert be.binarize(x, out) is out
    probability = (x.get() + np.float32(1)) / np.float32(2)
    assert np.array_equal(out.get(), np.where(probability > drawn.get(), 1, -1))
    assert (out.get()[x.get() <= -1] == -1).all()
    assert (out.get()[x.get() >= 1] == 1).all()
    first = out.get()
    assert not np.array_equal(first, be.binarize(x, out).get())
    be.rng_reset()
    assert np.array_equal(first, be.binarize(x, out).get())
    assert be.rng.uniform() == np.random.RandomState(0).uniform()  # the host generator was not used


def test_probabilities_are_checked_before_anything_is_drawn(be: Backend) -> None:
    t = be.ones((2, 2))
    for keep in (-0.1, 1.5, float("nan")):
        with pytest.raises(ArgumentError, match="make_binary_mask"):
            be.make_binary_mask(t, keep)
        with pytest.raises(ArgumentError, match="dropout"):
            be.dropout(keep)
    for call in (lambda: be.make_binary_mask(np.ones((2, 2))), lambda: be.fill_normal(3)):
        with pytest.raises(DTypeError):
            call()
    with pytest.raises(ShapeError):
        be.binarize(be.ones((3, 3)), t)
    stream = be.rng_get_state().stream
    assert stream[1] == 0
    assert t.get().tolist() == [[1, 1], [1, 1]]
    assert be.rng.uniform() == np.random.RandomState(0).uniform()


# rand: Philox --------------------------------------------------------------------------------------------------------


def philox_reference(counter: list[int], key: list[int]) -> list[int]:
    """Philox4x32-10 as in the paper, in Python integers."""
    mask = 2**32 - 1
    for _ in range(10):
        a, b = 0xD2511F53 * counter[0], 0xCD9E8D57 * counter[2]
        counter = [(b >> 32) ^ counter[1] ^ key[0], b & mask, (a >> 32) ^ counter[3] ^ key[1], a & mask]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return counter


def test_philox_known_answers() -> None:
    """The three vectors published with the Random123 library."""
    ones, pi = 2**32 - 1, [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0]
    assert philox_reference([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox_reference([ones] * 4, [ones] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert philox_reference(pi[:4], pi[4:]) == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]
    counter = np.array([pi[0] | pi[1] << 32], np.uint64).astype(np.int64)
    words = philox.philox4x32(counter, pi[2] | pi[3] << 32, pi[4] | pi[5] << 32)
    assert words[0].tolist() == philox_reference(pi[:4], pi[4:])


def test_rand_is_philox_of_seed_call_and_element() -> None:
    be = new_backend(rng_seed=12345)
    t = be.zeros((3, 5))
    for call in range(2):
        t[:] = be.rand()
        expected = []
        for element in range(15):
            word = philox_reference([element // 4, 0, call, 0], [12345, 0])[element % 4]
            expected.append((word >> 8) * 2.0**-24)
        assert t.get().ravel().tolist() == expected


@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (700, 301), (5, 1), (2, 3, 4, 5), (0, 3)])
def test_rand_numbers_depend_on_the_element_only(shape: tuple[int, ...]) -> None:
    """Numbers do not depend on layout, blocks, surrounding ops or the batch."""
    whole = new_backend(rng_seed=1).zeros((1, math.prod(shape)))
    whole[:] = whole.backend.rand()
    expected = whole.get().reshape(shape)
    be = new_backend(rng_seed=1)
    t, memory = be.zeros(shape), be.zeros((*shape[:-1], 2 * shape[-1]))
    node = be.rand()
    t[:] = node
    assert np.array_equal(t.get(), expected)
    memory[..., ::2] = node
    assert np.array_equal(memory.get()[..., ::2], expected)
    t[:] = node * 2 - node
    assert np.allclose(t.get(), expected)
    assert ((t.get() >= 0) & (t.get() < 1)).all()


def test_one_node_is_the_same_numbers_everywhere_and_two_are_not(be: Backend) -> None:
    t, other = be.zeros((20, 30)), be.zeros((20, 30))
    node = be.rand()
    t[:] = node
    other[:] = node
    assert np.array_equal(t.get(), other.get())
    t[:] = node - node
    assert not t.get().any()
    t[:] = node - be.rand()
    assert t.get().any()
    be.assign_many([(t, node), (other, node)])
    assert np.array_equal(t.get(), other.get())


def test_rand_in_float64_has_53_bits() -> None:
    be = new_backend(rng_seed=0, default_dtype=np.float64)
    t = be.zeros((100, 100))
    t[:] = be.rand()
    values = t.get()
    assert np.array_equal(values * 2**53, np.floor(values * 2**53))
    assert not np.array_equal(values * 2**30, np.floor(values * 2**30))
    assert abs(values.mean() - 0.5) < 5 / math.sqrt(12 * values.size)


def test_rand_is_uniform(be: Backend) -> None:
    t = be.zeros((300, 300))
    be.rand(out=t)
    counts, _ = np.histogram(t.get(), bins=20, range=(0, 1))
    chi_squared = float(((counts - 4500) ** 2 / 4500).sum())
    assert 5 < chi_squared < 45  # 19 degrees of freedom; outside once in a few thousand seeds
    rows = t.get()
    assert abs(np.corrcoef(rows[:-1].ravel(), rows[1:].ravel())[0, 1]) < 5 / 300
    assert abs(np.corrcoef(rows[:, :-1].ravel(), rows[:, 1:].ravel())[0, 1]) < 5 / 300


@pytest.mark.parametrize("keep", [0.0, 0.2, 0.5, 0.9, 1.0])
def test_dropout_keeps_the_share_it_is_told(be: Backend, keep: float) -> None:
    mask = be.zeros((300, 200))
    assert be.dropout(keep, mask) is mask
    assert set(np.unique(mask.get())) <= {0, 1}
    spread = math.sqrt(keep * (1 - keep) / mask.size)
    assert abs(mask.get().mean() - keep) <= 5 * spread
    x = be.ones((300, 200)) * 3
    again = be.zeros((300, 200))
    again[:] = x * be.dropout(keep)
    assert set(np.unique(again.get())) <= {0, 3}


def test_random_numbers_inside_larger_expressions(be: Backend) -> None:
    node = be.rand()
    plain, t = be.zeros((40, 50)), be.zeros((40, 50))
    plain[:] = node
    u = plain.get().astype(np.float64)
    x = np.linspace(-1, 1, 2000).reshape(40, 50)
    t[:] = be.exp(be.array(x) * node) + be.sum(be.array(x) + node, axis=1)
    assert np.allclose(t.get(), np.exp(x * u) + (x + u).sum(axis=1, keepdims=True), rtol=1e-4)
    flipped = be.zeros((50, 40))
    flipped[:] = (be.array(x) * node).T
    assert np.allclose(flipped.get(), (x * u).T, rtol=1e-5)


def test_numbers_take_the_shape_of_what_they_are_combined_with(be: Backend) -> None:
    """An expression has its values wherever it is used: a column times ``rand`` is a column of numbers."""
    column, x, t = be.array([[2.0], [3.0]]), be.ones((2, 3)), be.zeros((2, 3))
    noisy = column * be.rand()
    assert noisy.shape == (2, 1)
    small = noisy.asnumpyarray()
    t[:] = x + noisy
    assert np.array_equal(t.get(), 1 + np.broadcast_to(small, (2, 3)))
    t[:] = noisy
    assert np.array_equal(t.get(), np.broadcast_to(small, (2, 3)))
    t[:] = column * (x * be.rand())  # to draw for every element, combine with something of the full shape first
    assert len(np.unique(t.get())) == 6


def test_one_node_cannot_be_used_at_two_shapes(be: Backend) -> None:
    node, x, t = be.rand(), be.ones((2, 3)), be.zeros((2, 3))
    with pytest.raises(ShapeError, match="two shapes"):
        t[:] = x * node + be.sum(be.ones((4, 4)) * node)
    with pytest.raises(ShapeError, match="two shapes"):
        be.assign_many([(t, node * 1), (be.zeros((3, 3)), node * 1)])
    assert not t.get().any()


def test_a_prepared_step_draws_new_numbers_each_time(be: Backend) -> None:
    t = be.zeros((10, 10))
    step = be.prepare(t, be.rand())
    first, second = step().get(), step().get()
    assert not np.array_equal(first, second)
    be.rng_reset()
    replay = be.prepare(t, be.rand())
    assert np.array_equal(replay().get(), first)
    assert np.array_equal(replay().get(), second)


def test_normal_and_uniform_draws(be: Backend) -> None:
    x, again = be.empty((400, 500)), be.empty((400, 500))
    node = be.randn()
    x[:] = node
    again[:] = node
    host = x.get()
    assert np.array_equal(again.get(), host)
    again[:] = be.randn()
    assert abs(np.corrcoef(again.get().ravel(), host.ravel())[0, 1]) < 0.02
    assert abs(host.mean()) < 0.01
    assert abs(host.std() - 1) < 0.01
    assert abs((host**4).mean() - 3) < 0.1
    assert np.isfinite(host).all()
    x[:] = be.uniform(-1, 3) + 0 * x
    host = x.get()
    assert -1 <= host.min() < -0.99
    assert 2.99 < host.max() <= 3
    assert abs(host.mean() - 1) < 0.02
    assert be.randn(out=x) is x
    column = (be.uniform(be.zeros((3, 1)), 2) * 1).asnumpyarray()
    assert column.shape == (3, 1)
