"""neon's package of helpers around backends."""
