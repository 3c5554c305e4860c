"""Background work that one node at a time keeps for all, in short, bounded steps."""
