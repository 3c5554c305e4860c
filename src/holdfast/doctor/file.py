"""The file of an SQLite store: where it lies, who may read it, and how fast its disk is.

The file itself is never opened here: closing a descriptor of it would drop SQLite's locks.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from holdfast.clock import Clock
from holdfast.doctor.finding import Finding, Thresholds, fail, ok, warn
from holdfast.words import span

MOUNTS = Path("/proc/mounts")
NETWORK = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "vboxsf"}
)
FLEETING = {
    "tmpfs": "it lives in memory and is gone after a restart of the machine",
    "ramfs": "it lives in memory and is gone after a restart of the machine",
    "overlay": "it is a layer of a container and is gone with it",
    "aufs": "it is a layer of a container and is gone with it",
}
SYNCS = 5


def check_file(
    path: Path, *, clock: Clock, thresholds: Thresholds, mounts: Path = MOUNTS
) -> list[Finding]:
    folder = path.absolute().parent
    return [
        check_file_system(path, mounts),
        check_permissions(path),
        check_wal(path, thresholds),
        check_disk(folder, thresholds),
        check_fsync(folder, clock, thresholds),
    ]


def check_file_system(path: Path, mounts: Path = MOUNTS) -> Finding:
    kind = file_system_of(path, mounts)
    if kind in NETWORK or kind.startswith("fuse.sshfs"):
        return fail(
            "file system",
            f"the file lies on {kind}, a network file system: its locks cannot be relied on",
            "put the file on a local disk, or use PostgreSQL",
        )
    if kind in FLEETING:
        return warn(
            "file system",
            f"the file lies on {kind}: {FLEETING[kind]}",
            "put the file on a disk or a volume",
        )
    return ok("file system", kind or "unknown")


def file_system_of(path: Path, mounts: Path = MOUNTS) -> str:
    """The type of the mount that the path lies on; "" when nobody can tell."""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    real = Path(os.path.realpath(path))
    best, kind = -1, ""
    for line in lines:
        _, point, found, *_ = [*line.split(), "", "", ""]
        point = point.replace("\\040", " ")
        # Of two mounts on one point, the later covers the earlier.
        if point and (real == Path(point) or Path(point) in real.parents) and len(point) >= best:
            best, kind = len(point), found
    return kind


def check_permissions(path: Path) -> Finding:
    open_to_others = [
        name
        for name in (path, *(Path(f"{path}{ending}") for ending in ("-wal", "-shm", "-leases")))
        if name.exists() and stat.S_IMODE(name.stat().st_mode) & 0o077
    ]
    if not open_to_others:
        return ok("permissions", "the files are their owner's alone")
    names = " ".join(str(name) for name in open_to_others)
    return warn(
        "permissions",
        f"other users of this machine may read payloads: {names}",
        f"chmod 600 {names}",
    )


def check_wal(path: Path, thresholds: Thresholds) -> Finding:
    log = Path(f"{path}-wal")
    size = log.stat().st_size if log.exists() else 0
    if size >= thresholds.wal_bytes:
        return warn(
            "wal",
            f"the log beside the file has {_bytes(size)}: a long read keeps it from being emptied",
            "end the program that reads the file for so long",
        )
    return ok("wal", _bytes(size))


def check_disk(folder: Path, thresholds: Thresholds) -> Finding:
    free = shutil.disk_usage(folder).free
    what, fix = f"{_bytes(free)} left in {folder}", "free some space, or move the file"
    if free < thresholds.disk_bytes_fail:
        return fail("disk", f"{what}: writes are about to be refused", fix)
    if free < thresholds.disk_bytes_warn:
        return warn("disk", what, fix)
    return ok("disk", what)


def check_fsync(folder: Path, clock: Clock, thresholds: Thresholds) -> Finding:
    """How long the disk takes for one page, in a file of our own beside the store's."""
    took = []
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".holdfast-doctor-") as file:
            for _ in range(SYNCS):
                file.write(b"\0" * 4096)
                file.flush()
                began_s = clock.seconds()
                os.fsync(file.fileno())
                took.append(clock.seconds() - began_s)
    except OSError as error:
        return warn(
            "fsync",
            f"nothing can be written beside the file: {error.strerror}",
            f"let the user of the node write to {folder}: SQLite keeps its log there",
        )
    return judged_fsync("fsync", median(took), thresholds)


def judged_fsync(name: str, took_s: float, thresholds: Thresholds) -> Finding:
    if took_s >= thresholds.commit_s:
        return warn(
            name,
            f"a commit takes {span(took_s)}: enqueues and outcomes wait for it",
            "use a faster disk; nothing is lost by a slow one",
        )
    return ok(name, f"a commit takes {took_s * 1000:.1f} ms")


def check_library(settings: Mapping[str, str], nodes_alive: int, *, is_safe: bool) -> list[Finding]:
    """The library and the settings of its connections, as the store reports them.

    `is_safe` says whether several processes may write with this library.
    """
    version = settings["sqlite"]
    findings = [
        warn(
            "sqlite",
            f"{nodes_alive} nodes use the file with SQLite {version}, which may damage it",
            "run one node, or update SQLite to 3.51.3 or later, or use PostgreSQL",
        )
        if nodes_alive > 1 and not is_safe
        else ok("sqlite", f"SQLite {version}")
    ]
    mode, synchronous = settings["journal_mode"], settings["synchronous"]
    what = f"journal mode {mode.upper()}, synchronous {synchronous}"
    if mode == "wal" and synchronous != "OFF":
        return [*findings, ok("journal", what)]
    fix = "let nobody but Holdfast set them on its connections"
    return [*findings, fail("journal", f"{what}: a power cut may take commits", fix)]


def _bytes(number: int) -> str:
    for size, unit in ((2**30, "GB"), (2**20, "MB"), (2**10, "kB")):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} bytes"
