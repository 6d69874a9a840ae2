"""Metrics against worked numbers and plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from neonlike.backends import gen_backend
from neonlike.errors import ArgumentError, DTypeError, ShapeError
from neonlike.transforms import (
    Accuracy,
    BLEUScore,
    LogLoss,
    Misclassification,
    ObjectDetection,
    PrecisionRecall,
    TopKMisclassification,
)
from neonlike.transforms.cost import MultiMetric

Y = np.array([[0.7, 0.2], [0.2, 0.5], [0.1, 0.3]])
T = np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 1.0]])


def onehot(labels, n):
    return np.eye(n)[labels].T


@pytest.fixture
def batch(be, rng):
    be.bsz = 8
    y = rng.random((5, 8))
    labels = rng.integers(5, size=8)
    return y, labels, be.array(y), be.array(onehot(labels, 5))


def test_worked_numbers(be):
    be.bsz = 2
    y, t = be.array(Y), be.array(T)
    assert Misclassification()(y, t) == pytest.approx(0.5)
    assert Accuracy()(y, t) == pytest.approx(0.5)
    assert LogLoss()(y, t) == pytest.approx(0.780324, abs=1e-6)
    np.testing.assert_allclose(TopKMisclassification(2)(y, t), [0.780324, 0.5, 0.0], atol=1e-6)
    np.testing.assert_allclose(PrecisionRecall(3)(y, t), [0.509258, 0.333333], atol=2e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_values_of_columns_are_not_rounded_to_halves(be, rng, dtype):
    be = gen_backend(be.backend_name, batch_size=3, datatype=dtype)
    y, labels = be.array(rng.uniform(0.1, 0.9, (4, 3))), rng.integers(4, size=3)
    expected = -np.log(y.get().astype(np.float64)[labels, range(3)])
    metric = LogLoss()
    assert metric(y, be.array(onehot(labels, 4))) == pytest.approx(expected.mean(), rel=1e-5)
    np.testing.assert_allclose(metric.outputs.get().ravel(), expected, rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_many_columns_lose_nothing_to_half_precision(be, rng, dtype):
    be = gen_backend(be.backend_name, batch_size=5003, datatype=dtype)
    labels, guesses = rng.integers(2, size=(2, 5003))
    y, t = be.array(onehot(guesses, 2)), be.array(onehot(labels, 2))
    wrong = (labels != guesses).mean()
    assert Misclassification()(y, t) == pytest.approx(wrong, rel=1e-6)
    assert Accuracy()(y, t) == pytest.approx(1 - wrong, rel=1e-6)
    assert TopKMisclassification(1)(y, t)[1:] == pytest.approx(wrong, rel=1e-6)
    hits = (onehot(guesses, 2) * onehot(labels, 2)).sum(axis=1)
    expected = [(hits / onehot(values, 2).sum(axis=1)).mean() for values in (guesses, labels)]
    np.testing.assert_allclose(PrecisionRecall(2)(y, t), expected, rtol=1e-6)


def test_names(be):
    assert Misclassification().metric_names == ["Top1Misclass"]
    assert Accuracy().metric_names == ["Accuracy"]
    assert LogLoss().metric_names == ["LogLoss"]
    assert TopKMisclassification(5).metric_names == ["LogLoss", "Top1Misclass", "Top5Misclass"]
    assert PrecisionRecall(3).metric_names == ["Precision", "Recall"]


@pytest.mark.parametrize("calcrange", [slice(0, None), slice(0, 3), slice(2, 7)])
def test_only_the_columns_of_calcrange_count(batch, calcrange):
    y, labels, ty, tt = batch
    wrong = (y.argmax(axis=0) != labels)[calcrange]
    logs = -np.log(y[labels, np.arange(8)])[calcrange]
    assert Misclassification()(ty, tt, calcrange=calcrange) == pytest.approx(wrong.mean())
    assert Accuracy()(ty, tt, calcrange=calcrange) == pytest.approx(1 - wrong.mean())
    assert LogLoss()(ty, tt, calcrange=calcrange) == pytest.approx(logs.mean(), rel=1e-5)
    rank = (y > y[labels, np.arange(8)]).sum(axis=0)[calcrange]
    expected = [logs.mean(), (rank > 0).mean(), (rank > 1).mean()]
    np.testing.assert_allclose(TopKMisclassification(2)(ty, tt, calcrange=calcrange), expected, rtol=1e-5)


def test_misclassification_keeps_the_columns(batch):
    y, labels, ty, tt = batch
    metric = Misclassification()
    metric(ty, tt)
    np.testing.assert_array_equal(metric.outputs.get().ravel(), y.argmax(axis=0) != labels)


def test_ties_share_the_places_that_are_left(be):
    be.bsz = 3
    # Four classes; the true class ties with one, two and all others.
    y = np.array([[0.4, 0.3, 0.25], [0.4, 0.3, 0.25], [0.1, 0.3, 0.25], [0.1, 0.1, 0.25]])
    t = onehot([0, 1, 3], 4)
    metric = TopKMisclassification(2)
    metric(be.array(y), be.array(t))
    np.testing.assert_allclose(metric.top1.get().ravel(), [1 / 2, 2 / 3, 3 / 4], rtol=1e-6)
    np.testing.assert_allclose(metric.topk.get().ravel(), [0, 1 / 3, 1 / 2], atol=1e-6)


@pytest.mark.parametrize("k", [0, -1, 1.5])
def test_top_k_needs_a_positive_integer(be, k):
    with pytest.raises(ArgumentError, match="integer"):
        TopKMisclassification(k)


def test_precision_and_recall_of_binarized_outputs(batch):
    y, labels, ty, tt = batch
    metric = PrecisionRecall(5, binarize=True)
    precision, recall = metric(ty, tt)
    guess, truth = onehot(y.argmax(axis=0), 5), onehot(labels, 5)
    np.testing.assert_array_equal(ty.get(), guess)  # documented: overwritten
    hits = (guess * truth).sum(axis=1)
    assert precision == pytest.approx((hits / (guess.sum(axis=1) + 1e-6)).mean(), rel=1e-5)
    assert recall == pytest.approx((hits / (truth.sum(axis=1) + 1e-6)).mean(), rel=1e-5)
    np.testing.assert_allclose(metric.token_stats.get()[:, 0], hits)


def test_columns_may_be_more_than_the_batch(be, rng):
    be.bsz = 2
    labels = rng.integers(3, size=8)
    y = rng.random((3, 8))
    for metric in (Misclassification(steps=4), Misclassification()):
        value = metric(be.array(y), be.array(onehot(labels, 3)))
        assert value == pytest.approx((y.argmax(axis=0) != labels).mean())


def test_defect_29_multimetric_compares_with_the_target(batch):
    y, labels, ty, tt = batch
    metric = MultiMetric(Misclassification(), index=1)
    assert metric([None, ty], [None, tt]) == pytest.approx((y.argmax(axis=0) != labels).mean())
    assert 0 < (y.argmax(axis=0) != labels).mean() < 1
    assert metric.metric_names == ["Top1Misclass"] and metric.steps == 1


@pytest.mark.parametrize("make", [Misclassification, Accuracy, LogLoss, lambda: TopKMisclassification(1),
                                  lambda: PrecisionRecall(3)])  # fmt: skip
def test_labels_must_be_one_hot(be, make):
    with pytest.raises(ShapeError, match="one-hot"):
        make()(be.array(Y), be.zeros((1, 2)))


class TestObjectDetection:
    """Labels and boxes."""

    def test_both_measures(self, be, rng):
        labels, wanted = rng.normal(size=(3, 5)), np.eye(3)[:, [0, 1, 2, 0, 1]]
        boxes, wanted_boxes = 2 * rng.normal(size=(8, 5)), rng.normal(size=(8, 5))
        mask = (rng.random((8, 5)) > 0.5).astype(float)
        y = be.array(labels), be.array(boxes)
        t = be.array(wanted), (be.array(wanted_boxes), be.array(mask))
        x = np.abs(mask * (boxes - wanted_boxes))
        losses = np.where(x < 1, 0.5 * x * x, x - 0.5).sum(axis=0)
        right = labels.argmax(axis=0) == wanted.argmax(axis=0)
        metric = ObjectDetection()
        assert metric.metric_names == ["Accuracy", "SmoothL1Loss"]
        np.testing.assert_allclose(metric(y, t), [right.mean(), losses.mean()], rtol=1e-5)
        np.testing.assert_allclose(
            metric(y, t, calcrange=slice(0, 3)), [right[:3].mean(), losses[:3].mean()], rtol=1e-5
        )

    def test_shapes_must_be_equal(self, be):
        y, short = be.zeros((3, 5)), be.zeros((3, 4))
        with pytest.raises(ShapeError):
            ObjectDetection()((y, y), (y, (short, y)))

    def test_labels_and_boxes_come_as_pairs(self, be):
        y = be.zeros((3, 5))
        for outputs, targets, name in ((y, (y, (y, y)), "y"), ((y, y), [y], "t"), ((y, y), (y, y), r"t\[1\]")):
            with pytest.raises(DTypeError, match=f"{name} must be a pair"):
                ObjectDetection()(outputs, targets)


class TestBLEU:
    """Sentences against sentences."""

    CAT, REFERENCES = "the cat sat on the mat .", ["the cat is on the mat", "there is a cat on the mat"]

    def test_worked_numbers(self):
        score = BLEUScore()
        assert score([self.CAT], [self.REFERENCES]) == pytest.approx(1.057371, abs=1e-6)
        assert score.bleu_n == pytest.approx([83.33, 70.71, 50.0, 1.06], abs=5e-3)
        assert score(self.CAT, self.REFERENCES) == score.bleu_n[3]

    def test_words_count_as_often_as_in_one_reference(self):
        assert BLEUScore()(["the the the the"], [["the cat the", "the"]], N=1) == pytest.approx(50.0, abs=1e-4)

    def test_sentences_are_counted_together(self):
        assert BLEUScore()(["a b", "c d e f"], [["a x"], "c d e x"], N=1) == pytest.approx(100 * 4 / 6, abs=1e-4)

    def test_case_unknown_words_and_what_follows_the_end(self):
        score = BLEUScore()
        assert score(["A <unk> . b"], [["a <unk>"]], N=1) == pytest.approx(50.0, abs=1e-4)
        assert score(["A"], [["a"]], N=1, lower_case=False) == pytest.approx(1e-5)
        assert BLEUScore(unk="?")(["a <unk>"], [["a <unk>"]], N=2) == pytest.approx(100, abs=1e-3)

    def test_short_sentences_are_punished(self):
        score = BLEUScore()
        assert score(["a b"], [["a b c", "a b c d e"]], N=1, brevity_penalty=True) == pytest.approx(
            100 * np.exp(1 - 3 / 2), abs=1e-3
        )
        assert score(["a b c"], [["a b"]], N=1, brevity_penalty=True) == pytest.approx(100 * 2 / 3, abs=1e-3)
        assert score([""], [["a"]], brevity_penalty=True) == pytest.approx(1e-5)

    def test_what_makes_no_sense(self):
        with pytest.raises(ArgumentError, match="2 sentences, but references for 1"):
            BLEUScore()(["a", "b"], [["a"]])
        with pytest.raises(ArgumentError, match="at least one"):
            BLEUScore()(["a"], [[]])
        with pytest.raises(DTypeError, match="must be strings"):
            BLEUScore()([7], [["a"]])
        with pytest.raises(ArgumentError, match="N=0"):
            BLEUScore()(["a"], [["a"]], N=0)
