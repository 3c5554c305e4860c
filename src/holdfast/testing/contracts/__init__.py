"""Contract suites: what every adapter promises, written once as tests.

Inherit from a suite, give it the fixture that it asks for, and every promise is checked.
"""
