"""Dynamic graphs: commands run on variables of a graph, which remembers them for gradients (docs/dynamic_graph.md).

``be.dynamic_graph()`` makes a graph; ``commands`` has what it can run. Gradients, laziness and memory are those of
:mod:`neonlike.autograd`, whose variables stand under the graph's.
"""

from neonlike.autograd.dynamic import commands
from neonlike.autograd.dynamic.commands import Command, Hint
from neonlike.autograd.dynamic.graph import DynamicGraph, maker
from neonlike.autograd.dynamic.tensor_variable import TensorVariable

__all__ = ["Command", "DynamicGraph", "Hint", "TensorVariable", "commands", "maker"]
