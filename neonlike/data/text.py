"""Iterators over texts, and data sets of texts, under one path, as scripts import them."""

from neonlike.data.corpora import IMDB, PTB, SICK, HutterPrize, Shakespeare
from neonlike.data.sequences import Text
from neonlike.data.translation import TextNMT

__all__ = ["IMDB", "PTB", "SICK", "HutterPrize", "Shakespeare", "Text", "TextNMT"]
