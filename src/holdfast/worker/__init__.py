"""Runs handlers and records their outcomes.

grabbed tasks ──▶ Worker ──▶ handler (on the loop │ thread │ process) ──▶ verdict ──▶ Settler
"""
