"""The command line: noun, then verb; data on stdout, everything else on stderr."""

from __future__ import annotations

from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> None:
    """The command `holdfast`.  Ends the process with the exit code of the reference page."""
    # Imported here, so that whoever imports a part of the package does not pay for all of it.
    from holdfast.cli.root import run

    raise SystemExit(run(argv))
