"""Holdfast beside its peers: one workload, one machine, in turns.  `make bench-peers`."""
