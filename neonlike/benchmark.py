"""Timing of models, under the path that scripts import."""

from neonlike.models.timing import Benchmark, BenchmarkError

__all__ = ["Benchmark", "BenchmarkError"]
