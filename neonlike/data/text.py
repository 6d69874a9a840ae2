"""Text iterators and text data sets under one path, for imports in scripts."""

from neonlike.data.corpora import IMDB, PTB, SICK, HutterPrize, Shakespeare
from neonlike.data.sequences import Text
from neonlike.data.translation import TextNMT

__all__ = ["IMDB", "PTB", "SICK", "HutterPrize", "Shakespeare", "Text", "TextNMT"]
