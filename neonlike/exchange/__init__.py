"""Weights and models in the formats of other libraries; docs/exchange.md describes them."""

from neonlike.exchange.differences import Differences

__all__ = ["Differences"]
