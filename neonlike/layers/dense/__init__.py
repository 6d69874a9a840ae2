"""Layers of matrix products: fully connected ones, their compound forms, lookup tables, attention."""
