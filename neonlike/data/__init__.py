"""Data sets, and iterators that load them batch by batch."""

from neonlike.data.dataiterator import ArrayIterator, NervanaDataIterator
from neonlike.data.datasets import Dataset
from neonlike.data.hdf5iterator import HDF5Iterator, HDF5IteratorAutoencoder, HDF5IteratorOneHot
from neonlike.data.image import CIFAR10, DUMMY, MNIST, Digits
from neonlike.data.imagecaption import Coco, Flickr8k, Flickr30k, ImageCaption, ImageCaptionTest
from neonlike.data.imagefolder import ImageFolder
from neonlike.data.prefetch import Prefetch
from neonlike.data.protocol import DamagedData, DataIterator, HostIterator, MissingData
from neonlike.data.questionanswer import BABI, QA
from neonlike.data.text import IMDB, PTB, SICK, HutterPrize, Shakespeare, Text, TextNMT
from neonlike.data.ticker import CopyTask, PrioritySortTask, RepeatCopyTask, Task, Ticker

__all__ = [
    "BABI",
    "CIFAR10",
    "DUMMY",
    "IMDB",
    "MNIST",
    "PTB",
    "QA",
    "SICK",
    "ArrayIterator",
    "Coco",
    "CopyTask",
    "DamagedData",
    "DataIterator",
    "Dataset",
    "Digits",
    "Flickr8k",
    "Flickr30k",
    "HDF5Iterator",
    "HDF5IteratorAutoencoder",
    "HDF5IteratorOneHot",
    "HostIterator",
    "HutterPrize",
    "ImageCaption",
    "ImageCaptionTest",
    "ImageFolder",
    "MissingData",
    "NervanaDataIterator",
    "Prefetch",
    "PrioritySortTask",
    "RepeatCopyTask",
    "Shakespeare",
    "Task",
    "Text",
    "TextNMT",
    "Ticker",
]
