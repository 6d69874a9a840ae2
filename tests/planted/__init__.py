"""Single faults in primitives and containers that their tests must catch: a table a family, run by ``mutants.py``."""
