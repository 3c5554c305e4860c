"""Stores: one folder for each database, all under one contract suite."""
