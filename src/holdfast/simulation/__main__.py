"""Live through the seeds that are named and write one verdict a line: see `seeds`."""

from __future__ import annotations

import sys

import msgspec

from holdfast.simulation.run import end_quietly, run
from holdfast.simulation.seeds import verdict_of


def main() -> None:
    end_quietly()
    for seed in map(int, sys.argv[1:]):
        sys.stdout.buffer.write(msgspec.json.encode(verdict_of(run(seed))) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
