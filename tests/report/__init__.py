"""Tests of the report of runs."""
