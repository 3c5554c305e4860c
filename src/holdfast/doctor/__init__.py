"""Checks of everything that Holdfast rests on, each with its fix."""
