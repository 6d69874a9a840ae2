"""neonlike: neon's backend, op-trees and layers, running on today's Python.

``from neonlike.backends import gen_backend`` is where most programs start.
"""

from neonlike.attached import attach as _attach
from neonlike.attached import offer as _offer
from neonlike.compat import contract as _contract
from neonlike.logger import DISPLAY_LEVEL_NUM, display, logger
from neonlike.nervanaobject import NervanaObject, get_args
from neonlike.version import __version__

_contract.install()  # neon's module paths without a file here, and names not built yet
_attach("blueprints", "neonlike.layers.blueprint", "Blueprints")
_attach("dynamic_graph", "neonlike.autograd.dynamic", "maker")
_offer("report of a training", "neonlike.report.training", "RunReport")

__all__ = ["DISPLAY_LEVEL_NUM", "NervanaObject", "__version__", "display", "get_args", "logger"]
