"""Convolution and deconvolution: ``conv_layer``, ``fprop_conv``, ``bprop_conv``, ``update_conv``."""

from __future__ import annotations

from neonlike.backends.families.base import Family


class ConvFamily(Family):
    """Convolution and deconvolution: ``conv_layer``, ``fprop_conv``, ``bprop_conv``, ``update_conv``."""
