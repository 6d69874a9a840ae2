"""What a backend makes besides tensors and expressions: things with a state of their own, on its public methods."""
