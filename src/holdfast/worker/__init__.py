"""Runs handlers and records their outcomes.

grabbed tasks ──▶ Worker ──▶ handler (on the loop │ thread │ process) ──▶ verdict ──▶ Settler
                     └─ suspects, whose node died ──▶ alone, in a process of its own ──▶ ┘
"""
