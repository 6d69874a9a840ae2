"""Utilities: saved files, the command line, model descriptions."""
