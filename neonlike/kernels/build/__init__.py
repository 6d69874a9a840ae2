"""From source to compiled kernel: the driver that both compilers plug into, the cache on disk, messages on waiting."""
