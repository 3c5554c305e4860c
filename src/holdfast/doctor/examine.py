"""All checks of one address, from the process to the tasks.

A check that fails stops only those that rest on it.  No task is changed; opening a store does what
every start does.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from holdfast.address import sqlite_path
from holdfast.clock import Clock
from holdfast.config import Config
from holdfast.doctor import file, server
from holdfast.doctor.finding import Finding, Thresholds, fail, guarded, ok
from holdfast.doctor.fleet import check_fleet
from holdfast.doctor.process import check_config, check_process
from holdfast.errors import HoldfastError
from holdfast.words import span


async def examine(
    config: Config, store: Any, *, clock: Clock, thresholds: Thresholds | None = None
) -> list[Finding]:
    """Every finding about this process and the store, which is given unopened and left closed.

    `store` is one of the adapters: `schema_status` and `probe` are their own, beyond the contract.
    """
    limits = thresholds or Thresholds()
    findings = [*check_process(limits), *check_config(config)]
    path = Path(sqlite_path(config.url)) if config.url.startswith("sqlite:") else None
    if path is not None and not path.exists():
        fix = "correct the address; `holdfast db migrate` or a first node makes the file"
        return [*findings, fail("store", f"there is no file {path}", fix)]
    schema = await _schema(store, limits)
    findings.append(schema)
    if schema.name == "store":  # it could not even be asked
        return findings
    if path is not None:
        findings += file.check_file(path, clock=clock, thresholds=limits)
    else:
        findings += await server.check_server(_probe(store, config), config, limits)
    if schema.fix:
        return findings
    return findings + await _inside(config, store, limits)


async def _schema(store: Any, limits: Thresholds) -> Finding:
    """Whether the tables fit the code; the name is "store" when the store cannot be reached."""
    try:
        async with asyncio.timeout(limits.check_s):
            code, found = await store.schema_status()
    except HoldfastError as error:
        fix = "check that it runs, the address and the user, then run doctor again"
        return fail("store", str(error), fix)
    except TimeoutError:
        what = f"it does not answer within {span(limits.check_s)}"
        return fail("store", what, "look for a long lock on its tables, or for a full machine")
    if not found:
        return fail("schema", "the store has no tables of Holdfast yet", "run: holdfast db migrate")
    if found < code:
        what = f"the tables are at version {found}, this code needs {code}"
        return fail("schema", what, "run: holdfast db migrate")
    if found > code:
        return await _newer(store, code, found)
    return ok("schema", f"tables {found} = code {code}")


async def _newer(store: Any, code: int, found: int) -> Finding:
    """Newer tables are no obstacle as long as they say so; opening is what decides."""
    what = f"the tables are at version {found}, this code knows {code}"
    try:
        await store.open()
    except HoldfastError:
        return fail("schema", what, "install a newer Holdfast")
    await store.close()
    return ok("schema", f"{what}, and they still fit")


async def _inside(config: Config, store: Any, limits: Thresholds) -> list[Finding]:
    """What can be told of an open store."""
    try:
        await store.open()
    except HoldfastError as error:
        return [fail("store", str(error), "mend that, then run doctor again")]
    try:
        findings = await guarded("store", lambda: _of_store(config, store, limits), limits)
        return findings + await guarded("nodes", lambda: check_fleet(store, limits), limits)
    finally:
        await store.close()


async def _of_store(config: Config, store: Any, limits: Thresholds) -> list[Finding]:
    alive = sum(member.is_alive for member in await store.members())
    if config.url.startswith("sqlite:"):
        settings = await store.durability()
        return file.check_library(settings, alive, is_safe=store.is_safe_for_several)
    probe = _probe(store, config)
    settings = await probe.settings()
    return [
        *await server.check_tables_of(probe, limits),
        server.check_connections(settings, config, alive, limits),
    ]


def _probe(store: Any, config: Config) -> Any:
    return store.probe(config.listen_url or config.url)
