"""The compiler: expression -> key -> plan -> stages, and the engines that run them.

Along the flow of data: ``planning`` cuts an assignment into stages, ``codegen`` writes them as text, ``build`` compiles
and caches them, ``run`` runs plans, ``bench`` times them; ``numpy_engine``, ``c`` and ``cuda`` are the engines. A
folder imports only from those named before it, and ``c`` and ``cuda`` not from each other.
"""
