"""Timing of models, under the path used by scripts."""

from neonlike.models.timing import Benchmark, BenchmarkError

__all__ = ["Benchmark", "BenchmarkError"]
