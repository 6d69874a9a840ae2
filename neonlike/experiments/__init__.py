"""Whole experiments: the command line of scripts, models described in YAML, experiments loaded from a file.

neon's paths ``neonlike.experiments.argparser``, ``yaml_parse`` and ``load_experiment`` have their names from here.
"""
