"""This process: its interpreter, its limits, and the settings that it was given."""

from __future__ import annotations

import platform
import resource
import sys

from holdfast.address import redacted_url
from holdfast.config import Config
from holdfast.doctor.finding import Finding, Thresholds, fail, ok, warn

PYTHON_MIN = (3, 11)


def check_process(thresholds: Thresholds) -> list[Finding]:
    return [check_python(), check_assertions(), check_open_files(thresholds)]


def check_python() -> Finding:
    found = platform.python_version()
    if sys.version_info < PYTHON_MIN:
        return fail("python", f"Python {found} is too old", "install Python 3.11 or later")
    return ok("python", f"Python {found}")


def check_assertions() -> Finding:
    if not __debug__:
        return fail(
            "assertions",
            "Python runs with -O: the checks that stop a wrong write are switched off",
            "start it without -O and unset PYTHONOPTIMIZE",
        )
    return ok("assertions", "on")


def check_open_files(thresholds: Thresholds) -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < thresholds.open_files:
        return warn(
            "open files",
            f"this process may open {soft} files; a node with many connections needs more",
            f"ulimit -n {thresholds.open_files} or more, or LimitNOFILE= of its service",
        )
    shown = "unlimited" if soft == resource.RLIM_INFINITY else f"{soft:,}"
    return ok("open files", f"limit {shown}")


def check_config(config: Config) -> list[Finding]:
    """The settings could be read; those that give up a promise are shown."""
    findings = [ok("configuration", f"{redacted_url(config.url)}, {_sources(config)}")]
    if config.durability != "full" and config.url.startswith("sqlite:"):
        findings.append(
            warn(
                "durability",
                f'durability = "{config.durability}": the last commits may be lost in a power cut',
                'set durability = "full" unless you accept that',
            )
        )
    return findings


def _sources(config: Config) -> str:
    given = sorted({source for source in config.sources.values() if source != "default"})
    return f"from {', '.join(given)}" if given else "all else by default"
