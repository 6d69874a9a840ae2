"""Random programs of op-trees, run on every engine and compared with what float64 says is possible."""
