"""Models: a network with what is needed to train, evaluate, save and load it."""

from neonlike.models.gan import GAN
from neonlike.models.model import Model

__all__ = ["GAN", "Model"]
