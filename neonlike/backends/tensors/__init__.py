"""Families of methods that create tensors and keep their memory, and the checks of operands."""
