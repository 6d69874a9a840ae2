"""Ops of variables for networks and linear algebra: errors, and effects beside their values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from neonlike import autograd as ag
from neonlike.errors import ArgumentError, DTypeError, IndexRangeError, ShapeError

pytestmark = [pytest.mark.engines("numpy", "c"), pytest.mark.compiles(2)]


def test_running_statistics_move_towards_those_of_the_batch(be64: Any) -> None:
    rng = np.random.default_rng(0)
    images = rng.standard_normal((3, 2, 4, 5)) * 2 + 1
    mean, var = be64.zeros((3, 1)), be64.ones((3, 1))
    ones, zeros = be64.ones((3, 1)), be64.zeros((3, 1))
    ag.batch_norm2d(images, ones, zeros, mean, var, momentum=0.25)
    flat = images.reshape(3, -1)
    np.testing.assert_allclose(mean.get(), 0.25 * flat.mean(1, keepdims=True), rtol=1e-12)
    np.testing.assert_allclose(var.get(), 0.75 + 0.25 * flat.var(1, ddof=1, keepdims=True), rtol=1e-12)
    kept = mean.get(), var.get()
    found = ag.batch_norm2d(images, ones, zeros, mean, var, training=False).get()
    wanted = (flat - kept[0]) / np.sqrt(kept[1] + 1e-5)
    np.testing.assert_allclose(found.reshape(3, -1), wanted, rtol=1e-12)
    assert np.array_equal(mean.get(), kept[0]) and np.array_equal(var.get(), kept[1])


def test_one_hot_of_words_of_any_shape(be: Any) -> None:
    assert ag.one_hot([[1], [0], [2]], 3).tolist() == np.eye(3)[[1, 0, 2]].tolist()
    assert ag.one_hot(np.array([[1, 0, 2]]), 3).tolist() == np.eye(3)[[1, 0, 2]].tolist()
    words = np.array([[0, 1], [2, 2], [1, 0]])
    assert ag.one_hot(words, 3).tolist() == np.eye(3)[words].tolist()
    assert not ag.one_hot(words, 3).needs_grad
    with pytest.raises(ArgumentError, match="classes must be at least 1"):
        ag.one_hot(words, 0)
    for wrong in (3, -1):
        with pytest.raises(IndexRangeError, match=f"class {wrong} is out of range for 3 classes"):
            ag.one_hot([[0], [wrong]], 3)
    with pytest.raises(DTypeError, match="words must be integers, got float64"):
        ag.one_hot([[0.5]], 3)


def test_sparse_matrices(be: Any) -> None:
    values = ag.param([[1.0], [2.0], [3.0]])
    sparse = ag.sparse_from_value_and_index(values, [[0, 1, 1], [2, 0, 2]], (2, 3))
    assert repr(sparse) == "<SparseMatrix 2x3, 3 values, float32>" and sparse.T.shape == (3, 2)
    assert ag.to_dense(sparse).tolist() == [[0, 0, 1], [2, 0, 3]]
    for positions in ([[0, 1, 2], [0, 0, 0]], [[0, 1, 1], [0, 0, -1]]):
        with pytest.raises(IndexRangeError, match=r"must be in \[0,"):
            ag.sparse_from_value_and_index(values, positions, (2, 3))
    with pytest.raises(ShapeError, match=r"positions \(2, n\), got"):
        ag.sparse_from_value_and_index(values, [[0, 1], [0, 0]], (2, 3))
    with pytest.raises(DTypeError, match="positions must be integers"):
        ag.sparse_from_value_and_index(values, [[0.5, 1, 1], [0, 0, 0]], (2, 3))
    with pytest.raises(ShapeError, match="inner sizes must be equal"):
        sparse @ np.ones((2, 2))
    with pytest.raises(DTypeError, match="got SparseMatrix"):
        sparse @ sparse.T
    dense = np.arange(4.0).reshape(2, 2)
    assert (dense @ sparse).tolist() == [[2, 0, 3], [6, 0, 11]]
    with pytest.raises(DTypeError, match="needs a SparseMatrix"):
        ag.to_dense(values)


def test_products_without_scipy(be64: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    sparse = ag.sparse_from_value_and_index(ag.param([[1.0, 2.0, 4.0]]), [[0, 1, 0], [2, 0, 2]], (2, 3))
    dense = np.arange(6.0).reshape(3, 2)
    assert (sparse @ dense).tolist() == (np.array([[0, 0, 5.0], [2, 0, 0]]) @ dense).tolist()


def test_matrices_that_do_not_fit(be: Any) -> None:
    flat, square = ag.param(np.ones((2, 3))), ag.param(np.eye(3))
    for function in (ag.inv, ag.log_det, ag.cholesky):
        with pytest.raises(ShapeError, match=r"needs a square matrix, got shape \(2, 3\)"):
            function(flat)
    with pytest.raises(ShapeError, match="needs a matrix, got shape"):
        ag.pinv(np.ones((2, 3, 4)))
    with pytest.raises(ArgumentError, match=r"inv: of a matrix .*Singular"):
        ag.inv(np.zeros((2, 2))).get()
    with pytest.raises(ArgumentError, match=r"cholesky: of a matrix .*positive definite"):
        ag.cholesky(-1 * square).get()
    with pytest.raises(ShapeError, match="needs the 3 rows of the factor"):
        ag.cholesky_solve(flat, square)
    with pytest.raises(ShapeError, match="with 3 along axis 1"):
        ag.cross(np.ones((3, 2)), np.ones((3, 2)), 1)
    with pytest.raises(ShapeError, match=r"g needs the shape \(2, 1\)"):
        ag.weight_norm(flat, np.ones((3, 1)))
    assert np.isnan(ag.log_det(np.diag([1.0, -1.0])).item()) and ag.log_det(np.zeros((2, 2))).item() == -np.inf


def test_images_that_do_not_fit(be: Any) -> None:
    image, filters = ag.param(np.ones((3, 5, 5, 2))), np.ones((3, 2, 2, 4))
    with pytest.raises(ShapeError, match="with as many axes, got"):
        ag.convolution(image, np.ones((3, 2, 4)))
    with pytest.raises(ArgumentError, match=r"output_padding .* is for transposed convolutions"):
        ag.convolution(image, filters, output_padding=1)
    with pytest.raises(ArgumentError, match="below their strides"):
        ag.convolution(np.ones((4, 3, 3, 2)), filters, transposed=True, output_padding=1)
    with pytest.raises(ArgumentError, match="strides must be an integer or 2 of them"):
        ag.convolution(image, filters, strides=(1, 2, 3))
    for function in (ag.avg_pool2d, ag.max_pool2d):
        with pytest.raises(ShapeError, match=r"needs an image \(C, H, W, N\)"):
            function(np.ones((3, 5, 2)), 2)
    with pytest.raises(ShapeError, match=r"needs x \(C, W, N\)"):
        ag.max_pool1d(image, 2)
    with pytest.raises(ShapeError, match=r"bias has shape \(4, 1\), expected \(3, 1\)"):
        ag.convolution(np.ones((4, 3, 3, 2)), filters, np.ones((4, 1)), 2, transposed=True, output_padding=1)
    with pytest.raises(ArgumentError, match="must be integers"):
        ag.max_pool1d(np.ones((3, 5, 2)), 2.5)
    with pytest.raises(ArgumentError, match="dilation must be at least 1"):
        ag.max_pool2d(image, 2, dilation=0)
    with pytest.raises(ArgumentError, match="padding 2 from 0 to half of the 3 positions"):
        ag.max_pool2d(image, 2, padding=2, dilation=2)
    with pytest.raises(ShapeError, match=r"a window over 7 positions does not fit axis 1 of \(3, 5, 5, 2\)"):
        ag.max_pool2d(image, 3, dilation=3)


def test_normalisations_that_do_not_fit(be: Any) -> None:
    x, column = ag.param(np.ones((3, 4))), np.ones((3, 1))
    with pytest.raises(ShapeError, match="images are for batch_norm2d"):
        ag.batch_norm(np.ones((3, 2, 2, 4)), column, column)
    with pytest.raises(ShapeError, match=r"needs x \(C, H, W, N\)"):
        ag.batch_norm2d(x, column, column)
    with pytest.raises(ShapeError, match=r"gamma needs the shape \(3, 1\)"):
        ag.batch_norm(x, np.ones((4, 1)), column)
    for options in ({"training": False}, {"running_mean": be.zeros((3, 1))}):
        with pytest.raises(ArgumentError, match="go together, and are needed without training"):
            ag.batch_norm(x, column, column, **options)
    with pytest.raises(ShapeError, match="must broadcast to x's shape"):
        ag.layer_norm(x, 0, np.ones((2, 3, 4)))
    with pytest.raises(IndexRangeError):
        ag.embedding([[0, 4]], np.ones((4, 2)))
    with pytest.raises(ShapeError, match=r"needs a table \(vocabulary, width\)"):
        ag.embedding([[0]], np.ones((2, 2, 2)))
