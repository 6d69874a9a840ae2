"""Further objects of a backend besides tensors and expressions: with state, and based on its public methods."""
