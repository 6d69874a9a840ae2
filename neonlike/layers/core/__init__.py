"""The parts of every layer: the base classes, parameters, error buffers, costs, and layers without weights."""
