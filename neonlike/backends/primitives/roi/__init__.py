"""Regions of interest: pooling, suppression of boxes, and the detection output of SSD networks."""
