"""Running scripts written for neon.

* :mod:`neonlike.compat.table` - neon's module paths and names: the one table.
* :mod:`neonlike.compat.contract` - completes the modules of this library from the table.
* :mod:`neonlike.compat.neon` - importing it makes ``import neon`` mean this library.
* :mod:`neonlike.compat.calls` - arguments that neon has by another name or in another order.
* :mod:`neonlike.compat.numpy_names` - names that NumPy has dropped since neon's scripts were written.
* :mod:`neonlike.compat.layer_gpu`, ``op_collection``, ``nervanagpu``, ``nervanagpu_layers`` - used by scripts alone.
* ``python -m neonlike.compat script.py`` runs an unmodified neon script; ``--list`` shows what there is.
"""
