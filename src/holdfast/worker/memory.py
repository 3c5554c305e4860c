"""Memory: Python's collector of cyclic garbage, and the most that a process has had."""

from __future__ import annotations

import gc
import resource
import sys

RSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024  # of what the kernel says

YOUNG_MAX = 20_000  # containers made and not freed before a collection; Python's own is 700


def collect_seldom() -> None:
    """Look for cyclic garbage less often, and never again in what is there now.

    A node has thousands of triggers and attempts in memory, and hardly any cycles: by default
    Python spends a sixth of the node's time on looking through them in vain.  Garbage waits longer,
    some megabytes at most.  It concerns the whole process, so nothing here calls it by itself:
    `holdfast worker` does, and a program with a node in it may.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, *gc.get_threshold()[1:])


def peak_bytes() -> int:
    """The most memory that this process has had at once.

    What its parent had when it started it counts too: the kernel does not begin anew.
    """
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * RSS_UNIT_BYTES
