"""A running node, and the one place where adapters meet the core."""
