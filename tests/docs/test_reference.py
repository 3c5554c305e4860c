"""The pages of reference say what the code says."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields, is_dataclass

import pytest

import holdfast
from docs.pages import page, pages
from holdfast.app import Holdfast
from holdfast.node.node import Node
from holdfast.node.settings import NodeSettings
from holdfast.queues import Queue
from holdfast.schedules import Schedules
from holdfast.tasks import Enqueuer, Handle, Options
from holdfast.telemetry import events
from holdfast.telemetry.logs import LEVELS

API, EVENTS, GLOSSARY = (f"docs/reference/{name}.md" for name in ("api", "events", "glossary"))
ROW = re.compile(r"^\| `(\w+)[^`]*` \| (.*) \|$", re.MULTILINE)
# Words that the glossary replaces; `job` and the like never mean anything of ours.
SYNONYMS = re.compile(
    r"\b(jobs?|workflows?|heartbeats?|leader|acked|enqueued job)\b", re.IGNORECASE
)


def section(name: str, title: str) -> str:
    """The text under one heading of a page."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", page(name).text, re.M | re.S)
    assert found, f"{name} has no section {title!r}"
    return found[1]


def rows(name: str, title: str) -> dict[str, str]:
    return dict(ROW.findall(section(name, title)))


def test_every_public_name_is_described_once():
    found = re.findall(r"^\| `(\w+)[^`]*` \|", page(API).text.partition("\n## Holdfast\n")[0], re.M)

    assert sorted(found) == sorted(holdfast.__all__)


@pytest.mark.parametrize(
    ("title", "owner"),
    [
        ("Holdfast", Holdfast),
        ("Handle", Handle),
        ("Enqueuing", Enqueuer),
        ("Node", Node),
        ("Queue", Queue),
        ("Schedules", Schedules),
    ],
)
def test_every_method_in_the_page_exists_and_every_documented_one_is_in_the_page(title, owner):
    described = set(rows(API, title))
    public = {
        name
        for name, value in vars(owner).items()
        if not name.startswith("_")
        and (inspect.isfunction(value) or isinstance(value, property))
        and inspect.getdoc(value)
    }

    missing = {name for name in described if not hasattr(owner, name)}
    # What a handle keeps is set in __init__, where no class can show it.
    assert missing <= {"id", "created"}
    assert public - described <= {"call"}


def test_the_options_of_an_enqueue_are_those_of_the_code():
    assert list(rows(API, "Options of an enqueue")) == [one.name for one in fields(Options)]


def test_the_settings_of_a_node_are_those_of_the_code():
    described = rows(API, "Settings of a node")
    defaults = {one.name: getattr(NodeSettings(), one.name) for one in fields(NodeSettings)}

    assert list(described) == [name for name in defaults if name != "limits"]
    for name, text in described.items():
        if isinstance(defaults[name], bool | int | float | str):
            assert text.startswith(f"{defaults[name]}".removesuffix(".0")), name


def test_every_event_is_described_with_its_fields_and_its_level():
    kinds = {
        name: kind
        for name, kind in vars(events).items()
        if is_dataclass(kind) and kind.__module__ == events.__name__
    }
    table = re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \| (.*?) \|$", page(EVENTS).text, re.M)

    assert [name for name, *_ in table] == list(kinds)
    for name, has, level, meaning in table:
        assert re.findall(r"`(\w+)`", has) == [one.name for one in fields(kinds[name])], name
        known = LEVELS.get(kinds[name])
        assert level == (_level(known[0]) if known else "not logged"), name
        assert meaning.strip(), name


def _level(number: int) -> str:
    return {10: "DEBUG", 20: "INFO", 30: "WARNING", 40: "ERROR"}.get(number, str(number))


def test_the_glossary_names_every_state():
    for state in holdfast.State:
        assert state.name in page(GLOSSARY).text


def test_no_page_uses_a_synonym_of_the_glossary():
    wrong = [
        f"{one.name}: {found[0]}"
        for one in pages()
        if one.name.startswith(("README", "docs/tutorial", "docs/how-to", "docs/index", GLOSSARY))
        for found in SYNONYMS.finditer(one.text)
    ]

    assert not wrong
