"""Histories, and the checkers that read them: of simulations, of real faults, of anybody's."""
