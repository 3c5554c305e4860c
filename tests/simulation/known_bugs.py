"""Plant each known bug in a copy of the code and see whether the simulation finds it.

    python tests/simulation/known_bugs.py [NAME …]

A patch that no longer applies is a failure: the code has moved on, and the patch has to follow.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec

PROJECT = Path(__file__).parents[2]
BUGS = Path(__file__).with_name("bugs")
SEEDS_MAX = 500
AT_ONCE = 20


def planted(patch: Path, folder: Path) -> None:
    """A copy of the code with this bug; CalledProcessError when the patch does not apply."""
    shutil.copytree(PROJECT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__"))
    subprocess.run(["git", "apply", str(patch)], cwd=folder, check=True, capture_output=True)


def caught(patch: Path) -> str | None:
    """The first violation that a seed shows, with the seed; None: no seed does."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bug-") as name:
        folder = Path(name)
        planted(patch, folder)
        environ = os.environ | {"PYTHONPATH": str(folder / "src"), "PYTHONHASHSEED": "0"}
        for first in range(0, SEEDS_MAX, AT_ONCE):
            seeds = map(str, range(first, first + AT_ONCE))
            command = [sys.executable, "-m", "holdfast.simulation", *seeds]
            with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE) as child:
                assert child.stdout is not None
                for line in child.stdout:
                    verdict = msgspec.json.decode(line)
                    if verdict["violations"]:
                        child.kill()
                        return f"seed {verdict['seed']}: {verdict['violations'][0]}"
    return None


def main(names: list[str]) -> int:
    patches = sorted(BUGS.glob("*.patch"))
    if names:
        patches = [patch for patch in patches if patch.stem in names]
    found = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for patch, told in zip(patches, pool.map(_tried, patches), strict=True):
            is_caught = told.startswith("seed ")
            found += is_caught
            sys.stdout.write(f"{'caught' if is_caught else 'MISSED'}  {patch.stem}: {told}\n")
            sys.stdout.flush()
    sys.stdout.write(f"known bugs caught {found}/{len(patches)}\n")
    return 0 if found == len(patches) else 1


def _tried(patch: Path) -> str:
    try:
        return caught(patch) or f"no violation in {SEEDS_MAX} seeds"
    except subprocess.CalledProcessError as error:
        return f"the patch does not apply: {error.stderr.decode().strip()}"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
