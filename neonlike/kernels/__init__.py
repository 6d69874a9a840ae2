"""The compiler: expression -> key -> plan -> stages, and the engines that run them.

In the order of the data: ``planning`` cuts an assignment into stages, ``codegen`` writes them as text, ``build`` keeps
what compilers make of it, ``run`` runs plans, ``bench`` times them; ``numpy_engine``, ``c`` and ``cuda`` are the
engines. A folder imports from those named before it; ``c`` and ``cuda`` nothing of each other.
"""
