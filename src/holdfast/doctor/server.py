"""A PostgreSQL server: what durability, vacuum and wake-ups rest on."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.config import Config
from holdfast.doctor.file import judged_fsync
from holdfast.doctor.finding import Check, Finding, Thresholds, fail, guarded, ok, warn
from holdfast.probes import Holder, ServerProbe, Table
from holdfast.words import counted, listed, span

VERSION_MIN = 14
# Tables whose rows change all the time: with the server's own settings they would bloat.
TUNED = frozenset({"task", "backlog", "mark", "partition", "node", "counter", "share", "bucket"})
TUNING = "autovacuum_vacuum_threshold"
CONNECTIONS_BESIDE = 3  # of a node, beside its two pools: wake-ups and the lease

DURABLE = {
    "fsync": "commits are not written to the disk: a power cut may destroy the whole database",
    "full_page_writes": "a power cut may tear pages apart, and recovery cannot mend them",
    "synchronous_commit": "commits return before they are on the disk: a crash loses the last ones",
}


async def check_server(probe: ServerProbe, config: Config, thresholds: Thresholds) -> list[Finding]:
    """Everything that can be asked without our tables."""

    async def settings() -> list[Finding]:
        found = await probe.settings()
        return [check_version(found), *check_durability(found), check_autovacuum(found)]

    async def holders() -> list[Finding]:
        return [check_snapshots(await probe.holders(), thresholds)]

    async def commit() -> list[Finding]:
        return [judged_fsync("commit", await probe.commit_s(), thresholds)]

    async def pooler() -> list[Finding]:
        return await check_pooler(probe, config, thresholds)

    checks = {"server": settings, "xmin": holders, "commit": commit, "pooler": pooler}
    return await _all(checks, thresholds)


async def check_tables_of(probe: ServerProbe, thresholds: Thresholds) -> list[Finding]:
    """Everything that needs our tables."""

    async def rights() -> list[Finding]:
        return [check_rights(await probe.lacking_rights())]

    async def clock() -> list[Finding]:
        return [check_clock(await probe.clock_ahead_s(), thresholds)]

    async def tables() -> list[Finding]:
        found = await probe.tables()
        return [check_tuning(found), check_dead_rows(found, thresholds)]

    checks = {"rights": rights, "clock": clock, "tables": tables}
    return await _all(checks, thresholds)


async def _all(checks: Mapping[str, Check], thresholds: Thresholds) -> list[Finding]:
    findings: list[Finding] = []
    for name, check in checks.items():
        findings += await guarded(name, check, thresholds)
    return findings


def check_version(settings: Mapping[str, str]) -> Finding:
    version = settings["server_version"]
    if int(settings["server_version_num"]) < VERSION_MIN * 10_000:
        fix = f"update it to PostgreSQL {VERSION_MIN} or later"
        return fail("server", f"PostgreSQL {version} is too old", fix)
    if settings.get("in_recovery") == "true":
        return fail(
            "server",
            f"PostgreSQL {version} is a standby, which takes no writes",
            "name the primary in the address",
        )
    return ok("server", f"PostgreSQL {version}")


def check_durability(settings: Mapping[str, str]) -> list[Finding]:
    findings = [
        fail(name, f"{name} = off: {harm}", f"{name} = on in postgresql.conf, then reload it")
        for name, harm in DURABLE.items()
        if settings[name] == "off"
    ]
    shown = ", ".join(f"{name} {settings[name]}" for name in DURABLE)
    return findings or [ok("durability", shown)]


def check_autovacuum(settings: Mapping[str, str]) -> Finding:
    wrong = [name for name in ("autovacuum", "track_counts") if settings[name] == "off"]
    if wrong:
        return fail(
            "autovacuum",
            f"{' and '.join(wrong)} = off: dead rows pile up, and every statement slows down",
            f"{wrong[0]} = on in postgresql.conf, then reload it",
        )
    return ok("autovacuum", "on")


def check_snapshots(holders: list[Holder], thresholds: Thresholds) -> Finding:
    """The oldest of those that vacuum must wait for, and who it is."""
    old = [holder for holder in holders if _is_old(holder, thresholds)]
    if not old:
        return ok("xmin", "no old snapshot keeps dead rows from being removed")
    first = old[0]
    age = (
        f"is {span(first.since_s)} old"
        if first.since_s is not None
        else f"is older than {counted(first.transactions, 'transaction')}"
    )
    who = ", ".join(filter(None, [first.name, first.user and f"user {first.user}", first.state]))
    query = f', "{" ".join(first.query.split())}"' if first.query else ""
    more = f"; and {len(old) - 1} more" if len(old) > 1 else ""
    return warn("xmin", f"the oldest snapshot {age}: {who}{query}{more}", _ending(first))


def _is_old(holder: Holder, thresholds: Thresholds) -> bool:
    if holder.since_s is None:
        return holder.transactions >= thresholds.snapshot_transactions
    return holder.since_s >= thresholds.snapshot_s


def _ending(holder: Holder) -> str:
    name = holder.name.rpartition(" ")[2]
    match holder.name.split()[0]:
        case "pid":
            return (
                f"end it: SELECT pg_terminate_backend({name}); "
                "or set idle_in_transaction_session_timeout for that user"
            )
        case "prepared":
            return f"COMMIT PREPARED or ROLLBACK PREPARED '{name}'"
        case "replication":
            return f"start its reader, or: SELECT pg_drop_replication_slot('{name}')"
    return "end long queries on the standby, or set hot_standby_feedback = off there"


async def check_pooler(probe: ServerProbe, config: Config, thresholds: Thresholds) -> list[Finding]:
    has_pooler = await probe.has_pooler()
    if has_pooler and config.pooled is False:
        return [
            fail(
                "pooler",
                "pooled = false, but a pooler hands the sessions of this address around",
                "leave out the setting `pooled`, or set it to true",
            )
        ]
    if has_pooler and config.listen_url is None:
        return [
            warn(
                "pooler",
                "behind a pooler in transaction mode, where LISTEN does not work: nodes poll",
                "set listen_url to the server's own address",
            )
        ]
    found = ok("pooler", "a pooler in transaction mode" if has_pooler else "none in between")
    return [found, await check_listen(probe, thresholds)]


async def check_listen(probe: ServerProbe, thresholds: Thresholds) -> Finding:
    took_s = await probe.listen_s()
    if took_s is None:
        return warn(
            "listen",
            "a notification does not come back: nodes find new tasks by polling only",
            "set listen_url to the server's own address",
        )
    if took_s >= thresholds.listen_s:
        fix = "look for a listener that sits in a long transaction"
        return warn("listen", f"a notification takes {span(took_s)} to come back", fix)
    return ok("listen", f"a notification takes {took_s * 1000:.1f} ms")


def check_connections(
    settings: Mapping[str, str], config: Config, nodes: int, thresholds: Thresholds
) -> Finding:
    """What the nodes may open, beside what is open now."""
    usable = int(settings["max_connections"]) - int(settings["superuser_reserved_connections"])
    needed = max(1, nodes) * (2 * config.connections_max + CONNECTIONS_BESIDE)
    used = int(settings["connections_used"])
    fix = "lower connections_max, run fewer nodes, use a pooler, or raise max_connections"
    who = f"{counted(max(1, nodes), 'node')} may open {needed} connections"
    if needed > usable:
        return warn("connections", f"{who}, and the server allows {usable}", fix)
    if used >= usable * thresholds.connections_part:
        return warn("connections", f"{used} of {usable} connections are in use", fix)
    return ok("connections", f"{used} of {usable} in use; {who}")


def check_rights(lacking: list[str]) -> Finding:
    if not lacking:
        return ok("rights", "this user may do all that a node does")
    return fail(
        "rights",
        f"this user lacks {listed(lacking)}",
        "grant them, or connect as the user that ran `holdfast db migrate`",
    )


def check_clock(ahead_s: float, thresholds: Thresholds) -> Finding:
    if abs(ahead_s) >= thresholds.clock_s:
        which = "ahead of" if ahead_s > 0 else "behind"
        return warn(
            "clock",
            f"the store's clock is {span(ahead_s)} {which} this machine's; "
            "what is due is judged by the store's",
            "let both synchronise their clocks",
        )
    return ok("clock", f"difference {abs(ahead_s) * 1000:.0f} ms")


def check_tuning(tables: list[Table]) -> Finding:
    stopped = [t.name for t in tables if "autovacuum_enabled=false" in t.options]
    plain = [
        table.name
        for table in tables
        if table.name in TUNED
        and not any(option.startswith(f"{TUNING}=") for option in table.options)
    ]
    if stopped or plain:
        what = f"autovacuum is switched off for {listed(stopped)}" if stopped else ""
        what = what or f"the vacuum settings of {listed(plain)} are missing"
        return warn("tables", what, "set them again as `holdfast db sql` prints them")
    return ok("tables", "the vacuum settings are in place")


def check_dead_rows(tables: list[Table], thresholds: Thresholds) -> Finding:
    full = [
        f"{table.name} ({table.dead:,} beside {table.live:,})"
        for table in tables
        if table.dead > max(thresholds.dead_rows, 2 * table.live)
    ]
    if full:
        return warn(
            "dead rows",
            f"vacuum does not keep up with {listed(full)}",
            "look at xmin above, then run VACUUM on the table",
        )
    most = max(tables, key=lambda table: table.dead, default=None)
    shown = f"{most.dead:,} in {most.name} at most" if most and most.dead else "none"
    return ok("dead rows", shown)
