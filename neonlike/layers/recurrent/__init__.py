"""Recurrent layers under one path, for imports in scripts and for the class names in saved models."""

from neonlike.layers.recurrent.bidirectional import BiRNN
from neonlike.layers.recurrent.bidirectional_lstm import BiLSTM
from neonlike.layers.recurrent.bidirectional_norm import BiBNRNN
from neonlike.layers.recurrent.deep import DeepBiLSTM, DeepBiRNN
from neonlike.layers.recurrent.gru import GRU
from neonlike.layers.recurrent.lstm import LSTM
from neonlike.layers.recurrent.recurrent_output import (
    BiSum,
    RecurrentLast,
    RecurrentMean,
    RecurrentOutput,
    RecurrentSum,
)
from neonlike.layers.recurrent.reset_after import ResetAfterGRU
from neonlike.layers.recurrent.simple_recurrent import Recurrent
from neonlike.layers.recurrent.steps import get_steps, interpret_in_shape

__all__ = [
    "GRU",
    "LSTM",
    "BiBNRNN",
    "BiLSTM",
    "BiRNN",
    "BiSum",
    "DeepBiLSTM",
    "DeepBiRNN",
    "Recurrent",
    "RecurrentLast",
    "RecurrentMean",
    "RecurrentOutput",
    "RecurrentSum",
    "ResetAfterGRU",
    "get_steps",
    "interpret_in_shape",
]
