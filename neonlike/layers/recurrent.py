"""Recurrent layers under one path, as scripts import them and as saved models name them."""

from neonlike.layers.bidirectional import BiRNN
from neonlike.layers.bidirectional_lstm import BiLSTM
from neonlike.layers.bidirectional_norm import BiBNRNN
from neonlike.layers.deep import DeepBiLSTM, DeepBiRNN
from neonlike.layers.gru import GRU
from neonlike.layers.lstm import LSTM
from neonlike.layers.recurrent_output import BiSum, RecurrentLast, RecurrentMean, RecurrentOutput, RecurrentSum
from neonlike.layers.simple_recurrent import Recurrent
from neonlike.layers.steps import get_steps, interpret_in_shape

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
    "get_steps",
    "interpret_in_shape",
]
