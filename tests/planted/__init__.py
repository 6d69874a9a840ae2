"""Single faults in the compound primitives that their tests must catch: one table a family, run by ``mutants.py``."""
