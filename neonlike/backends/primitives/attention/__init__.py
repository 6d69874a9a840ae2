"""Scaled dot-product attention: the family, its definition, and its form in expressions."""
