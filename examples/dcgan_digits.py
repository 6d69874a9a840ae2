#!/usr/bin/env python
"""Train a generative adversarial network of two convolutional networks to draw handwritten digits.

The generator makes images from noise; the discriminator tells them from real ones. Grids of images are saved a few
times during training. The distance of the images to the nearest real ones measures their quality; it is compared with
the distances of test images and of random pixels. Usage:

    python examples/dcgan_digits.py [--epochs 60] [--pictures FOLDER]

All options of a neon script work too: see --help.

Source: Radford et al., "Unsupervised representation learning with deep convolutional generative adversarial networks"
(2015).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from neonlike import console
from neonlike.callbacks import Callbacks
from neonlike.callbacks.plotting_callbacks import GANPlotCallback
from neonlike.data import Digits
from neonlike.experiments.argparser import NeonArgparser
from neonlike.initializers import Gaussian
from neonlike.layers import Affine, Conv, Deconv, GeneralizedGANCost
from neonlike.layers.container import GenerativeAdversarial
from neonlike.models import GAN
from neonlike.optimizers import Adam
from neonlike.transforms import GANCost, Logistic, Rectlin, Tanh

NOISE = 32


def build_model() -> GAN:
    """Noise (32, 1, 1) -> (32, 4, 4) -> (1, 8, 8) pixels; and pixels -> (32, 4, 4) -> (64, 2, 2) -> probability."""
    init = Gaussian(scale=0.05)
    generator = [
        Deconv((4, 4, 64), init, batch_norm=True, activation=Rectlin()),
        Deconv((4, 4, 32), init, strides=2, padding=1, batch_norm=True, activation=Rectlin()),
        Conv((3, 3, 1), init, padding=1, activation=Tanh()),
    ]
    leaky = Rectlin(slope=0.2)
    discriminator = [
        Conv((4, 4, 32), init, strides=2, padding=1, activation=leaky),
        Conv((4, 4, 64), init, strides=2, padding=1, batch_norm=True, activation=leaky),
        Affine(1, init, activation=Logistic()),
    ]
    return GAN(GenerativeAdversarial(generator, discriminator), noise_dim=(NOISE, 1, 1))


def distance(images: np.ndarray, real: np.ndarray) -> float:
    """Mean Euclidean distance of images ``(n, 64)`` to the nearest real image."""
    squares = (images**2).sum(axis=1)[:, None] + (real**2).sum(axis=1) - 2 * images @ real.T
    return float(np.sqrt(squares.min(axis=1).clip(0)).mean())


def main(arguments: list[str] | None = None) -> tuple[float, float]:
    """Train, report, and return the generated images' distance to the nearest real ones, and their variety."""
    parser = NeonArgparser(__doc__, default_overrides={"epochs": 60, "batch_size": 64, "rng_seed": 0})
    parser.add_argument("--pictures", default="dcgan_digits", metavar="FOLDER", help="where to save images to")
    args = parser.parse_args(arguments)
    if args.epochs < 1:
        parser.error("--epochs: there is nothing to show before the first epoch; give 1 or more")
    digits = Digits()
    (train, _), (test, _), _ = digits.load_data()

    gan = build_model()
    callbacks = Callbacks(gan, **args.callback_args)
    file = Path(args.pictures) / "digits"
    callbacks.add_callback(
        GANPlotCallback(str(file), hw=8, num_samples=64, sym_range=True, epoch_freq=max(1, args.epochs // 5))
    )
    optimizer = Adam(learning_rate=0.001, beta_1=0.5)
    cost = GeneralizedGANCost(costfunc=GANCost(func="modified"))
    gan.fit(digits.train_iter, cost, optimizer, num_epochs=args.epochs, callbacks=callbacks)

    made = gan.noise_batch.get().T
    noise = gan.be.rng.uniform(-1, 1, made.shape)
    far, far_test, far_noise = (distance(images, train) for images in (made, test, noise))
    variety = float(made.std(axis=0).mean() / train.std(axis=0).mean())
    print(f"Distance to the nearest image: {far:.2f}; of test images {far_test:.2f}, of random pixels {far_noise:.2f}")
    print(f"Variety, that of real images being 1: {variety:.2f}")
    print(f"Pictures are in the folder {args.pictures}")
    return far, variety


if __name__ == "__main__":
    sys.exit(console.run(main))
