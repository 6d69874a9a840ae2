#!/usr/bin/env python
"""Train a convolutional autoencoder that compresses handwritten digits of 64 pixels to a code of 8 numbers.

Convolutions encode, deconvolutions decode. The baseline is the best linear code of the same length: principal
components. The script saves a picture of test images, each above its reconstruction. Usage:

    python examples/digits_autoencoder.py [--epochs 40] [--picture FILE]

All options of a neon script work too: see --help.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from neonlike import console
from neonlike.callbacks import Callbacks
from neonlike.data import ArrayIterator, Digits
from neonlike.experiments.argparser import NeonArgparser
from neonlike.initializers import Constant, Kaiming
from neonlike.layers import Conv, Deconv, GeneralizedCost
from neonlike.models import Model
from neonlike.optimizers import Adam
from neonlike.transforms import MeanSquared, Rectlin, Tanh
from neonlike.util.png import encode_png, grid

CODE = 8


def build_model() -> Model:
    """(1, 8, 8) pixels -> (16, 8, 8) -> (32, 4, 4) -> the code (8, 1, 1), and the same way back."""
    init, bias, relu = Kaiming(), Constant(0), Rectlin()
    encoder = [
        Conv((3, 3, 16), init, padding=1, bias=bias, activation=relu),
        Conv((4, 4, 32), init, strides=2, padding=1, bias=bias, activation=relu),
        Conv((4, 4, CODE), init, bias=bias),
    ]
    decoder = [
        Deconv((4, 4, 32), init, bias=bias, activation=relu),
        Deconv((4, 4, 16), init, strides=2, padding=1, bias=bias, activation=relu),
        Conv((3, 3, 1), init, padding=1, bias=bias, activation=Tanh()),
    ]
    return Model([encoder, decoder])


def linear_code(train: np.ndarray, test: np.ndarray) -> np.ndarray:
    """Reconstruct ``test`` from as many principal components of ``train``."""
    mean = train.mean(axis=0)
    components = np.linalg.svd(train - mean, full_matrices=False)[2][:CODE]
    return (test - mean) @ components.T @ components + mean


def save_picture(file: str, images: np.ndarray, rebuilt: np.ndarray) -> None:
    """Save four rows of eight images, with the reconstructions below each row."""
    rows = np.stack([images[:32].reshape(4, 8, 8, 8), rebuilt[:32].reshape(4, 8, 8, 8)], axis=1)
    pixels = np.rint((rows.reshape(64, 8, 8).clip(-1, 1) + 1) * 127.5).astype(np.uint8)
    Path(file).write_bytes(encode_png(grid(pixels, padding=1, width=640, height=640)))


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    """Train, report, and return the mean squared errors of the test images: autoencoder, linear code."""
    parser = NeonArgparser(__doc__, default_overrides={"epochs": 40, "batch_size": 64, "rng_seed": 0, "eval_freq": 1})
    parser.add_argument("--picture", default="digits_autoencoder.png", metavar="FILE", help="file to save images to")
    args = parser.parse_args(arguments)
    (train, _), (test, _), _ = Digits().load_data()
    # Without labels, the targets are the inputs.
    train_set, test_set = (ArrayIterator(images, lshape=(1, 8, 8)) for images in (train, test))

    model = build_model()
    callbacks = Callbacks(model, eval_set=test_set, **args.callback_args)
    cost = GeneralizedCost(MeanSquared())
    model.fit(train_set, cost, Adam(learning_rate=0.002), num_epochs=args.epochs, callbacks=callbacks)

    rebuilt = model.get_outputs(test_set)
    error, linear = (float(np.mean((found - test) ** 2)) for found in (rebuilt, linear_code(train, test)))
    print(f"Mean squared error of {len(test)} test images: {error:.4f}, with {CODE} principal components {linear:.4f}")
    save_picture(args.picture, test, rebuilt)
    print(f"Images above what became of them: {args.picture}")
    return error, linear


if __name__ == "__main__":
    sys.exit(console.run(main))
