"""`python -m bench [--peers a,b] [--cells c,d] [--rounds 3] [--out docs] [--small]`: in turns."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench import cells, report
from bench.catalog import Entry, chosen
from bench.cells import Failed, Figures, Run, Size
from bench.environments import FOLDER, python_of
from bench.keepers import Fsync, Keepers

RESULTS = FOLDER / "results.json"
Cell = Callable[[Run], Figures]


def main() -> None:
    options = _options()
    entries = chosen(options.peers)
    pythons = {entry.name: python_of(entry) for entry in entries}
    began = time.monotonic()
    size = cells.SMALL if options.small else cells.Size()
    results: list[report.Result] = []
    with Keepers() as keepers:
        versions = {
            entry.name: _versions(entry, pythons[entry.name], keepers, size) for entry in entries
        }
        for number in range(1, options.rounds + 1):
            for entry in entries:
                for name, fsync, cell in _cells(entry, keepers, number):
                    if options.cells and name not in options.cells.split(","):
                        continue
                    python = pythons[entry.name]
                    result = _measured(entry, python, keepers, size, name, fsync, cell)
                    results.append(result)
                    took_s = time.monotonic() - began
                    print(f"{took_s:6.0f} s  round {number}  {report.line(result)}", flush=True)
        where = report.machine(keepers, versions, options.rounds, time.monotonic() - began)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps({"where": where, "results": results}, indent=1))
    if options.out is not None:
        report.write(Path(options.out), entries, results, where)
    for line in report.verdicts(entries, report.gathered(results)):
        print(line)


def _cells(entry: Entry, keepers: Keepers, number: int) -> Iterator[tuple[str, Fsync, Cell]]:
    yield "enqueue_single", "always", lambda run: cells.enqueue(run, "single")
    yield "enqueue_concurrent", "always", lambda run: cells.enqueue(run, "concurrent")
    if entry.has_bulk:
        yield "enqueue_bulk", "always", lambda run: cells.enqueue(run, "bulk")
    yield "drain", "always", cells.drain
    yield "latency", "always", cells.latency
    if entry.keeper == "redis":
        yield "unsynced", "everysec", lambda run: cells.latency(run, "unsynced")
    yield "sustained", "always", cells.sustained
    if entry.keeper == "postgres":
        yield "pinned", "always", lambda run: cells.pinned(run, keepers)
    if entry.has_bulk and number == 1:
        yield "million", "always", cells.million


def _measured(
    entry: Entry,
    python: Path,
    keepers: Keepers,
    size: Size,
    name: str,
    fsync: Fsync,
    cell: Cell,
) -> report.Result:
    try:
        with cells.prepared(entry, python, keepers, size, fsync) as run:
            return {"peer": entry.name, "cell": name, "figures": cell(run), "failed": None}
    except Failed as error:
        return {"peer": entry.name, "cell": name, "figures": {}, "failed": str(error)}


def _versions(entry: Entry, python: Path, keepers: Keepers, size: Size) -> dict[str, str]:
    with cells.prepared(entry, python, keepers, size) as run:
        return run.say("versions")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--peers", default="", help="names, with commas; all when empty")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", help="the folder of the page; without it nothing is written there")
    parser.add_argument("--cells", default="", help="names, with commas; all when empty")
    parser.add_argument("--small", action="store_true", help="to see that it works: no figures")
    return parser.parse_args()


if __name__ == "__main__":
    main()
