"""One small iteration of every scenario on both stores, so that the benchmarks cannot rot."""

from __future__ import annotations

import json
import pstats

import pytest
from typer.testing import CliRunner

from holdfast.bench.cli import app, exit_code
from holdfast.bench.load import Checked, Run
from holdfast.bench.report import Mark, Report, weaknesses

SCENARIOS = {
    "drain": (["--tasks", "300"], {"rate", "ceiling_rate", "ratio"}),
    "enqueue": (
        ["--tasks", "200"],
        {"single_rate", "bare_insert_rate", "single_ratio", "concurrent_rate", "bulk_rate"},
    ),
    "latency": (["--tasks", "10"], {"p50_ms", "p99_ms"}),
    "latency --across": (["--tasks", "10"], {"p50_ms", "p99_ms"}),
    "backlog": (
        ["--tasks", "100", "--small", "100", "--large", "400"],
        {"cost_ratio", "rss_mb"},
    ),
    "sustained": (
        ["--seconds", "2", "--ahead", "3000"],
        {"rate", "pinned_rate", "pinned_ratio"},
    ),
    "timers": (
        ["--tasks", "10", "--burst", "50", "--small", "20", "--waiting", "100"],
        {"p50_ms", "p99_ms", "early", "wake_rate", "rss_mb_10k", "rss_mb_1m"},
    ),
    "idle": (["--seconds", "1"], {"cpu_percent", "statements_per_s"}),
    "recovery": (["--kills", "1"], {"p50_s", "p99_s", "lost", "double_outcomes"}),
}
ON_POSTGRES = {  # a turn is long enough on a busy machine
    "sustained": (["--seconds", "5"], {"wal_bytes_per_task", "pinned_elsewhere_ratio"}),
}
MAY_BE_NOTHING = {"early", "cpu_percent", "lost", "double_outcomes"}


def bench(*words: str):
    return CliRunner().invoke(app, [*words, "--runs", "1"])


def where(store_url: str) -> list[str]:
    if store_url.startswith("sqlite"):
        return ["--store", "sqlite"]
    return ["--store", "postgres", "--url", store_url]


def a_report(*, figures=None, check=None, durability=None, marks=()) -> Report:
    runs = [Run(figures or {"rate": 100.0}, (check or Checked(10, 10, 10),))]
    settings = durability or {"fsync": "on", "synchronous_commit": "on"}
    return Report(
        scenario="drain",
        store="postgres",
        tasks=10,
        runs=runs,
        marks=marks,
        environment={},
        durability=settings,
    )


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_scenario_gives_its_figures_in_one_line(scenario, store_url):
    words, figures = SCENARIOS[scenario]
    if not store_url.startswith("sqlite"):
        more_words, more_figures = ON_POSTGRES.get(scenario, ([], set()))
        words, figures = words + more_words, figures | more_figures

    result = bench(*scenario.split(), *words, *where(store_url), "--json")

    assert result.exit_code == 0, (result.stdout, result.stderr, result.exception)
    (line,) = result.stdout.splitlines()
    found = json.loads(line)
    assert found["scenario"] == scenario.split()[0]
    assert all(found[name] > 0 or name in MAY_BE_NOTHING for name in figures)
    assert all(
        low <= found[name] <= high for name in figures for low, high in [found["spread"][name]]
    )


def test_a_report_names_the_settings_that_make_commits_durable(store_url):
    result = bench("drain", "--tasks", "20", *where(store_url), "--json")

    found = json.loads(result.stdout)
    if found["store"] == "sqlite":
        assert (found["journal_mode"], found["synchronous"]) == ("wal", "FULL")
    else:
        assert (found["fsync"], found["synchronous_commit"]) == ("on", "on")
    assert found["environment"].keys() >= {"python", "cpus", "server", "commit"}


@pytest.mark.store("postgres")
def test_a_server_that_may_lose_commits_gets_no_figures(postgres_url):
    url = f"{postgres_url}?synchronous_commit=off"

    result = bench("drain", "--tasks", "20", *where(url), "--json")

    found = json.loads(result.stdout)
    assert result.exit_code == 2
    assert found["synchronous_commit"] == "off"
    assert "rate" not in found and not found["passed"]


@pytest.mark.store("postgres")
def test_a_benchmark_leaves_no_schema_behind(postgres, bare_postgres_url):
    bench("drain", "--tasks", "20", *where(bare_postgres_url))

    schemas = postgres.execute(
        "SELECT nspname FROM pg_namespace WHERE nspname LIKE 'holdfast%'",
        database=bare_postgres_url.rpartition("/")[2],
    )
    assert schemas == []


@pytest.mark.whole
@pytest.mark.store("postgres")
def test_without_an_address_a_private_server_is_started_and_stopped():
    result = bench("drain", "--store", "postgres", "--tasks", "20", "--json")

    assert result.exit_code == 0, (result.stderr, result.exception)
    assert json.loads(result.stdout)["environment"]["server"].startswith("PostgreSQL ")


@pytest.mark.store("postgres")
def test_a_peer_is_measured_on_the_same_server(postgres_url):
    words = ["--tasks", "200", "--beside", "pgqueuer", "--json"]

    found = json.loads(bench("drain", *words, *where(postgres_url)).stdout)

    assert found["peer_tasks"] == 200
    assert found["peer_ratio"] == pytest.approx(found["rate"] / found["peer_rate"], rel=0.01)


def test_a_profile_of_the_node_is_written(tmp_path):
    file = tmp_path / "node.prof"

    bench("drain", "--tasks", "50", "--profile", str(file))

    functions = {name for _, _, name in pstats.Stats(str(file)).stats}
    assert "_grab_and_start" in functions


def test_people_get_a_table(tmp_path):
    result = bench("drain", "--tasks", "50")

    assert result.exit_code == 0
    assert "ceiling_rate" in result.stdout and "at least 0.5" in result.stdout


@pytest.mark.parametrize(
    "check",
    [
        Checked(10, 10, 9, {"SUBMITTED": 1}),
        Checked(10, 11, 10),
        Checked(10, 10, 10, {"ERROR": 1}),
    ],
)
def test_a_store_that_disagrees_gives_no_figures_and_ends_with_8(check):
    report = a_report(check=check)

    assert exit_code(report, strict=False) == 8
    assert report.medians == {"rate": None}


def test_a_missed_mark_is_an_error_only_when_asked_for():
    report = a_report(marks=[Mark(figure="rate", at_least=200)])

    assert [verdict.is_reached for verdict in report.verdicts] == [False]
    assert exit_code(report, strict=False) == 0
    assert exit_code(report, strict=True) == 1


def test_a_mark_with_a_condition_applies_only_where_it_holds():
    mark = Mark(figure="rate", at_least=20_000, when=("ceiling_rate", 40_000))

    assert mark.judged({"rate": 15_000, "ceiling_rate": 39_999}).is_reached is None
    assert mark.judged({"rate": 15_000, "ceiling_rate": 40_000}).is_reached is False
    assert mark.judged({"rate": 20_000, "ceiling_rate": 40_000}).is_reached is True


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fsync", "off"),
        ("full_page_writes", "off"),
        ("synchronous_commit", "local"),
        ("journal_mode", "memory"),
        ("synchronous", "NORMAL"),
    ],
)
def test_every_weaker_setting_is_seen(name, value):
    assert weaknesses({"fsync": "on", name: value}) == [f"{name} = {value}"]
    assert weaknesses({"fsync": "on", "synchronous_commit": "remote_apply"}) == []
