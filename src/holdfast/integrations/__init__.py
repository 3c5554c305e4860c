"""Integrations: Holdfast inside the frameworks that programs are written in.

Nothing of the package imports them, and they import no more of their framework than they must.
"""
