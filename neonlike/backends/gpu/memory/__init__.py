"""GPU memory: arrays, the memory pool, copies between host and device."""
