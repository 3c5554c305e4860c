"""Whole clusters on one seeded loop: production code, virtual time, faults drawn by the seed."""
