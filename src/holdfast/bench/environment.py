"""On which machine, with which versions: a figure without them says nothing."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import holdfast

STATM = Path("/proc/self/statm")
MOUNTS = Path("/proc/self/mounts")
GIT_S_MAX = 10.0


def environment(durability: Mapping[str, str], folder: Path) -> dict[str, str | int | None]:
    """What may explain the figures of this run."""
    server = durability.get("server_version")
    return {
        "python": platform.python_version(),
        "cpus": len(os.sched_getaffinity(0)),
        "machine": f"{platform.system()} {platform.release()} {platform.machine()}",
        "server": f"PostgreSQL {server}" if server else f"SQLite {durability.get('sqlite', '?')}",
        "filesystem": _filesystem(folder),
        "holdfast": _version("holdfast"),
        "commit": commit(),
    }


def rss_mb() -> float:
    """Memory of this process that is in use now, in millions of bytes."""
    pages = int(STATM.read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def commit() -> str | None:
    """The commit of the checkout that this code runs from; `+` when it was changed since."""
    package = Path(holdfast.__file__).parent
    root = _git(package, "rev-parse", "--show-toplevel")
    # Installed into somebody else's checkout, the commit would be theirs.
    if root is None or package != Path(root) / "src" / "holdfast":
        return None
    head = _git(package, "rev-parse", "--short=12", "HEAD")
    changes = _git(package, "status", "--porcelain", "--", ".")
    return head and head + ("+" if changes else "")


def _git(folder: Path, *words: str) -> str | None:
    command = ["git", "-C", str(folder), *words]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=GIT_S_MAX
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _filesystem(folder: Path) -> str | None:
    """The type of the file system: on a tmpfs, a sync costs nothing."""
    if folder == Path("/"):
        return None  # the server of --url keeps its files where it likes
    found: tuple[int, str | None] = (-1, None)
    for line in MOUNTS.read_text().splitlines():
        _, mount, kind, *_ = line.split()
        if folder.is_relative_to(mount) and len(mount) > found[0]:
            found = (len(mount), kind)
    return found[1]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
