"""Tests of programs that run as several ranks."""
