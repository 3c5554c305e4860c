"""Background work in short, bounded steps.  In this release each owner keeps its own partitions."""
