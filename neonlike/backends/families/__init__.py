"""Families of backend methods: one file a subject, each a mixin of ``Backend`` with its definitions."""
