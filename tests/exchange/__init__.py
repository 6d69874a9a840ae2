"""Tests of the formats of other libraries."""
