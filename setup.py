"""The build's entry. All metadata is in pyproject.toml, the version in neonlike/version.py."""

from setuptools import setup

setup()
