"""A virtual environment for each peer, made once and kept in `build/peers`."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

from bench.catalog import Entry

FOLDER = Path("build/peers")


def python_of(entry: Entry) -> Path:
    """The interpreter that has the peer's packages; the first time they are installed."""
    if not entry.packages:
        return Path(sys.executable)
    home = (FOLDER / entry.environment).absolute()
    python, stamp = home / "bin" / "python", home / "installed"
    wanted = "\n".join(entry.packages)
    if not stamp.exists() or stamp.read_text() != wanted:
        venv.create(home, clear=True, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*command, *entry.packages], check=True)
        stamp.write_text(wanted)
    return python
