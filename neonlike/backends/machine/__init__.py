"""Families of methods about the device: timing, settings, neon's hooks, objects built from descriptors."""
