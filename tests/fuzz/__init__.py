"""Random programs of op-trees, run on every engine and compared with the values possible in float64."""
