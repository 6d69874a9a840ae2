"""Tests, in folders that have the names of the product's folders (see CONTRIBUTING.md)."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The repository."""
