"""Iterators that bring data to the network in batches, and data sets."""

from neonlike.data.dataiterator import ArrayIterator, NervanaDataIterator
from neonlike.data.datasets import Dataset
from neonlike.data.hdf5iterator import HDF5Iterator, HDF5IteratorAutoencoder, HDF5IteratorOneHot
from neonlike.data.image import CIFAR10, DUMMY, MNIST, Digits
from neonlike.data.prefetch import Prefetch
from neonlike.data.protocol import DamagedData, HostIterator, MissingData

__all__ = [
    "CIFAR10",
    "DUMMY",
    "MNIST",
    "ArrayIterator",
    "DamagedData",
    "Dataset",
    "Digits",
    "HDF5Iterator",
    "HDF5IteratorAutoencoder",
    "HDF5IteratorOneHot",
    "HostIterator",
    "MissingData",
    "NervanaDataIterator",
    "Prefetch",
]
