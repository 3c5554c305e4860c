"""The documentation is executed: every block of README, tutorial and how-to does what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from docs.pages import PLAYED, PROJECT, Page, page, pages

PACKAGE = Path(holdfast.__file__).parents[1]
PLAYER = Path(__file__).with_name("play.py")
PLAY_S_MAX = 90


def played() -> Iterator[Page]:
    """The pages that promise to be runnable."""
    for one in pages():
        if one.name.startswith(("README", "docs/tutorial/", "docs/how-to/")):
            yield one


def stages() -> Iterator[object]:
    """Of how-to pages that are played on both stores every other one is played on each.

    Long runs play all of them on both.
    """
    for number, one in enumerate(played()):
        stores = one.stores
        is_short = one.name.startswith("docs/how-to/") and not os.environ.get("HOLDFAST_LONG")
        if is_short and set(stores) == {"sqlite", "postgres"}:
            stores = [("sqlite", "postgres")[number % 2]]
        for store in stores:
            yield pytest.param(one.name, store, id=f"{store}-{one.name.removesuffix('.md')}")


@pytest.mark.parametrize(("name", "store"), list(stages()))
def test_every_block_of_the_page_does_what_the_page_says(
    name: str, store: str, tmp_path: Path, request: pytest.FixtureRequest
):
    folder = tmp_path / "reader"
    folder.mkdir()
    url = "sqlite:///orders.db"
    if store == "postgres":
        url = request.getfixturevalue("postgres_url")
    if store == "pgbouncer":
        url = request.getfixturevalue("pgbouncer_url")

    done = subprocess.run(
        [sys.executable, PLAYER, name, store, url],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PLAY_S_MAX,
        check=False,
    )

    assert done.returncode == 0, done.stdout + done.stderr


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return kept | {"PYTHONPATH": str(PACKAGE)}


def test_every_page_with_code_says_on_which_stores_it_is_played():
    silent = [
        one.name
        for one in played()
        if not one.stores and any(block.language in PLAYED for block in one.blocks)
    ]

    assert not silent


def test_every_link_between_pages_leads_somewhere():
    wrong = []
    for one in pages():
        for link in one.links:
            target, _, anchor = link.partition("#")
            if "://" in target or target.startswith("mailto:"):
                continue
            path = (one.path.parent / target).resolve() if target else one.path
            if not path.exists():
                wrong.append(f"{one.name}: {link} does not exist")
            elif anchor and anchor not in page(path.relative_to(PROJECT).as_posix()).anchors:
                wrong.append(f"{one.name}: {link} has no such heading")

    assert not wrong, "\n".join(wrong)


def test_every_page_can_be_reached_from_the_index():
    reached: set[Path] = set()
    ahead = [PROJECT / "docs/index.md"]
    while ahead:
        path = ahead.pop()
        if path in reached or path.suffix != ".md":
            continue
        reached.add(path)
        one = page(path.relative_to(PROJECT).as_posix())
        targets = (link.partition("#")[0] for link in one.links)
        ahead += [
            (path.parent / target).resolve() for target in targets if target and ":" not in target
        ]

    lost = [one.name for one in pages() if one.name.startswith("docs/") and one.path not in reached]
    assert not lost
