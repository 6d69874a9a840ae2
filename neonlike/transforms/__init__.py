"""Activation functions, cost functions and metrics."""

from neonlike.transforms.activation import (
    Explin,
    Identity,
    Logistic,
    Normalizer,
    PixelwiseSoftmax,
    Rectlin,
    Rectlinclip,
    Sign,
    Softmax,
    Tanh,
)
from neonlike.transforms.cost import (
    CrossEntropyBinary,
    CrossEntropyMulti,
    GANCost,
    MeanSquared,
    SmoothL1Loss,
    SquareHingeLoss,
    SumSquared,
)
from neonlike.transforms.metric import (
    Accuracy,
    LogLoss,
    Misclassification,
    MultiMetric,
    PrecisionRecall,
    TopKMisclassification,
)
from neonlike.transforms.transform import Cost, Metric, Transform

__all__ = [
    "Accuracy",
    "Cost",
    "CrossEntropyBinary",
    "CrossEntropyMulti",
    "Explin",
    "GANCost",
    "Identity",
    "LogLoss",
    "Logistic",
    "MeanSquared",
    "Metric",
    "Misclassification",
    "MultiMetric",
    "Normalizer",
    "PixelwiseSoftmax",
    "PrecisionRecall",
    "Rectlin",
    "Rectlinclip",
    "Sign",
    "SmoothL1Loss",
    "Softmax",
    "SquareHingeLoss",
    "SumSquared",
    "Tanh",
    "TopKMisclassification",
    "Transform",
]
