"""Utilities: saved files, model descriptions, plots."""
