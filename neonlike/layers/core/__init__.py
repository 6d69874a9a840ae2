"""The foundation of all layers: base classes, parameters, error buffers, costs, and layers without weights."""
