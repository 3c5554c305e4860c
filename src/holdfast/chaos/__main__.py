"""`python -m holdfast.chaos`: faults for a given time, epoch after epoch; exit code 1 when any
promise was broken.  `--record PAGE` adds the counts to a table of that page.

`--only "full disks"` fills the disk of the store up, again and again; that one needs root.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path
from random import Random

from holdfast.bench.ground import Place, ground
from holdfast.chaos import record
from holdfast.chaos.disk import SmallDisk
from holdfast.chaos.epoch import Epoch, Tally, epoch
from holdfast.chaos.proxy import Proxy
from holdfast.clock import SystemClock
from holdfast.testing.postgres import PrivateServer
from holdfast.verify.history import write_history

EPOCH_S = 60.0
PER_SECOND = 100.0
RESTART_S_MAX = 5.0
FULL = "full disks"
DISK_MB = 512
LITTLE = {"max_wal_size": "'64MB'", "min_wal_size": "'32MB'", "shared_buffers": "'64MB'"}


async def on_postgres(
    server: PrivateServer, options: argparse.Namespace, seed: int, disk: SmallDisk | None = None
) -> Tally:
    name = f"chaos_{seed}"
    server.create_database(name)
    place = Place(server.url(name))
    await place.closed_store().migrate()
    rng = Random(seed)
    async with (
        Proxy("127.0.0.1", server.port) as proxy,
        epoch(place, rng, per_second=PER_SECOND) as cluster,
    ):
        cluster.on(server, proxy, place.url.replace(f":{server.port}/", f":{proxy.port}/"))
        if disk is not None:
            cluster.on_disk(disk)
        tally = await _lived(cluster, options, seed)
    server.drop_database(name)
    return tally


async def on_sqlite(
    place: Place, options: argparse.Namespace, seed: int, disk: SmallDisk | None = None
) -> Tally:
    await place.closed_store().migrate()
    async with epoch(place, Random(seed), per_second=PER_SECOND) as cluster:
        if disk is not None:
            cluster.on_disk(disk)
        return await _lived(cluster, options, seed)


async def _lived(cluster: Epoch, options: argparse.Namespace, seed: int) -> Tally:
    await cluster.begin()
    cluster.load.start()
    await asyncio.sleep(2)
    await cluster.suffer(min(EPOCH_S, options.seconds), options.only)
    tally = await cluster.end()
    if tally.violations:
        path = Path(f"chaos-{options.store}-{seed}.jsonl")
        write_history(cluster.history, path)
        _say(f"seed {seed}: {len(tally.violations)} violations, history in {path}")
        for violation in tally.violations[:10]:
            _say(f"  {violation}")
        _say(cluster.workers.log[-3_000:])
    return tally


async def _on_any(options: argparse.Namespace, seed: int) -> Tally:
    if options.store == "postgres":
        with PrivateServer() as server:
            return await on_postgres(server, options, seed)
    with ground("sqlite", None) as there:
        async with there.place() as place:
            return await on_sqlite(place, options, seed)


async def _on_a_small_disk(options: argparse.Namespace, seed: int) -> Tally:
    with SmallDisk(DISK_MB) as disk:
        if options.store == "postgres":
            with PrivateServer(parent=disk.folder, settings=LITTLE) as server:
                return await on_postgres(server, options, seed, disk)
        return await on_sqlite(Place(f"sqlite:///{disk.folder}/chaos.db"), options, seed, disk)


async def main(options: argparse.Namespace) -> Tally:
    clock = SystemClock()
    since_s, seed, sum_ = clock.seconds(), options.seed, Tally()
    while clock.seconds() - since_s < options.seconds:
        tally = await (_on_a_small_disk if FULL in options.only else _on_any)(options, seed)
        sum_.add(tally)
        counts = ", ".join(f"{count} {name}" for name, count in tally.faults.items())
        passed_s = clock.seconds() - since_s
        slowest_s = max(tally.restarts_s, default=0.0)
        _say(
            f"{passed_s:6.0f} s  seed {seed}: {tally.tasks} tasks, {counts}; lost {tally.lost}, "
            f"doubled {tally.doubled}, violations {len(tally.violations)}"
            + (f", full rate again after {slowest_s:.1f} s" if tally.restarts_s else "")
        )
        seed += 1
    return sum_


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run() -> int:
    parser = argparse.ArgumentParser(prog="python -m holdfast.chaos", description=__doc__)
    parser.add_argument("--store", choices=("postgres", "sqlite"), default="postgres")
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--seed", type=int, help="of the first epoch; else by the clock")
    parser.add_argument("--only", action="append", default=[], help="only faults of this name")
    parser.add_argument("--record", type=Path, help="add the counts to the table of this page")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = int(SystemClock().now().timestamp())
    tally = asyncio.run(main(options))
    if options.record is not None:
        record.add(options.record, record.counted(tally))
    counts = ", ".join(f"{count:,} {name}" for name, count in record.counted(tally).items())
    slow = [took_s for took_s in tally.restarts_s if took_s > RESTART_S_MAX]
    _say(f"{counts}, {len(tally.violations)} violations, {len(slow)} slow recoveries")
    return 1 if tally.violations or slow else 0


if __name__ == "__main__":
    sys.exit(run())
