"""Buses: in this process, over PostgreSQL, or beside one SQLite file."""
