"""Expression to stages: the graph and its key, values, where an assignment is cut, what a stage costs. No device."""
