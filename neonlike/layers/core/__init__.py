"""What every layer is made of: the base classes, parameters, error buffers, costs, and layers without weights."""
