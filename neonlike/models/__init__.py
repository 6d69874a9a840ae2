"""Models: networks with methods to train, evaluate, save and load them."""

from neonlike.models.gan import GAN
from neonlike.models.model import Model

__all__ = ["GAN", "Model"]
