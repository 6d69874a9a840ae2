"""Blueprints: layers as values, whose shapes and workspaces are known before any memory is taken; ``be.blueprints``."""

from neonlike.layers.blueprint.base import Blueprint
from neonlike.layers.blueprint.built import BuiltLayer
from neonlike.layers.blueprint.cost import CostBlueprint, CostLayer
from neonlike.layers.blueprint.factory import Blueprints

__all__ = ["Blueprint", "Blueprints", "BuiltLayer", "CostBlueprint", "CostLayer"]
