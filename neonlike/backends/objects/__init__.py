"""Objects that a backend makes besides tensors and expressions: with a state of their own, on its public methods."""
