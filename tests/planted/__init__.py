"""Single faults in primitives, layers and training that their tests must catch, a table a family: ``mutants.py``."""
