"""The pages about metrics say what the code says."""

from __future__ import annotations

import re

from docs.pages import page
from holdfast.task import Event
from holdfast.telemetry.metrics import METRICS
from holdfast.telemetry.tallies import BOUNDS_S, NAMES_MAX

REFERENCE, HOW_TO = "docs/reference/metrics.md", "docs/how-to/metrics.md"
OUTCOMES = ("SUCCEEDED", "RETRIED", "REPEATED", "PARKED", "GIVEN_UP", "CANCELLED")
SERIES = re.compile(r"\bholdfast_[a-z_]+\b")


def test_every_metric_is_described_with_its_type_labels_and_text():
    table = re.findall(
        r"^\| `(\w+)` \| (\w+) \| (.*?) \| (.*?) \|$", page(REFERENCE).text, re.MULTILINE
    )

    described = [
        (name, kind, tuple(re.findall(r"`(\w+)`", labels)), text)
        for name, kind, labels, text in table
    ]
    assert described == list(METRICS)


def test_the_page_names_the_bounds_and_the_outcomes():
    text = " ".join(page(REFERENCE).text.split())

    assert ", ".join(f"{bound:g}" for bound in BOUNDS_S) in text
    assert f"after the first {NAMES_MAX} share" in text
    for outcome in OUTCOMES:
        assert f"`{Event[outcome].name.lower()}`" in text


def test_the_alert_rules_ask_for_metrics_that_exist():
    (rules,) = [block.code for block in page(HOW_TO).blocks if block.language == "yaml"]
    known = {one.name for one in METRICS}
    times = {one.name for one in METRICS if one.type == "histogram"}
    known |= {f"{name}_{part}" for name in times for part in ("bucket", "sum", "count")}

    asked = set(SERIES.findall(rules))
    assert asked <= known
    assert asked >= {
        "holdfast_queue_oldest_age_seconds",
        "holdfast_slots",
        "holdfast_tasks_error",
        "holdfast_leases_expired_total",
        "holdfast_pg_oldest_xmin_age_seconds",
    }


def test_every_alert_rule_has_a_name_an_expression_and_a_summary():
    (rules,) = [block.code for block in page(HOW_TO).blocks if block.language == "yaml"]

    for rule in rules.split("- alert: ")[1:]:
        assert re.match(r"Holdfast\w+\n +expr: ", rule), rule
        assert re.search(r'\n +annotations:\n +summary: "[^"]+\."\n', rule), rule
