"""Iterators that bring data to the network in batches."""

from neonlike.data.dataiterator import ArrayIterator, NervanaDataIterator

__all__ = ["ArrayIterator", "NervanaDataIterator"]
