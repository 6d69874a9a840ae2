"""Recurrent layers under one path, as scripts import them and as saved models name them."""

from neonlike.layers.gru import GRU
from neonlike.layers.lstm import LSTM
from neonlike.layers.simple_recurrent import Recurrent
from neonlike.layers.steps import get_steps, interpret_in_shape

__all__ = ["GRU", "LSTM", "Recurrent", "get_steps", "interpret_in_shape"]
