"""The apps of the engine's tests, and the working directory of the worker's."""

from __future__ import annotations

from e2e.test_cli_worker import place
from engine.conftest import app, heard, make_app

__all__ = ["app", "heard", "make_app", "place"]
