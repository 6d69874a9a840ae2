"""An adversarial network with its pictures."""

import sys

import numpy as np

from neon.backends import gen_backend
from neon.callbacks.callbacks import Callbacks, GANCostCallback
from neon.callbacks.plotting_callbacks import GANPlotCallback
from neon.data import ArrayIterator
from neon.initializers import Gaussian
from neon.layers import Affine, GeneralizedGANCost, Sequential
from neon.layers.container import GenerativeAdversarial
from neon.models.model import GAN
from neon.optimizers import RMSProp
from neon.transforms import GANCost, Logistic, Rectlin, Tanh

be = gen_backend(backend="cpu", batch_size=32, rng_seed=0)
rng = np.random.RandomState(6)
pixels = np.where(np.arange(16) < 8, 0.5, -0.4)
images = np.tanh(rng.randn(256, 16) * 0.3 + pixels).astype(np.float32)
train = ArrayIterator(images, lshape=(1, 4, 4))
init = Gaussian(scale=0.1)
generator = Sequential([Affine(24, init, activation=Rectlin()), Affine(16, init, activation=Tanh())], name="Generator")
discriminator = Sequential(
    [Affine(24, init, activation=Rectlin()), Affine(1, init, bias=None, activation=Logistic(shortcut=False))],
    name="Discriminator",
)
layers = GenerativeAdversarial(generator=generator, discriminator=discriminator)
gan = GAN(layers=layers, noise_dim=(8, 1, 1), noise_type="normal", k=1)
cost = GeneralizedGANCost(costfunc=GANCost(func="modified"))
callbacks = Callbacks(gan, progress_bar=False)
pictures = sys.argv[1] + "/pictures/gan"
callbacks.add_callback(GANPlotCallback(filename=pictures, hw=4, num_samples=9, nchan=1, sym_range=True))
callbacks.add_callback(GANCostCallback())
gan.fit(train, optimizer=RMSProp(learning_rate=2e-3), num_epochs=30, cost=cost, callbacks=callbacks)
made = [gan.layers.generator.fprop(be.array(rng.randn(8, 32)), inference=True).get().copy() for _ in range(16)]
print("made %s, updates of the generator %d" % (made[0].shape, gan.gen_iter))
made = np.hstack(made)
print("means of the halves %.2f %.2f of %.2f %.2f"
      % (made[:8].mean(), made[8:].mean(), images[:, :8].mean(), images[:, 8:].mean()))  # fmt: skip
print("largest difference of a pixel's means %.3f" % np.abs(made.mean(axis=1) - images.mean(axis=0)).max())
print("spread %.3f of %.3f" % (made.std(axis=1).mean(), images.std(axis=0).mean()))
