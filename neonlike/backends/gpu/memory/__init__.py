"""Memory of a GPU: arrays in it, the pool that hands it out, copies between host and device."""
