"""Planning: graphs and their keys, values, stages and their costs. Independent of devices."""
