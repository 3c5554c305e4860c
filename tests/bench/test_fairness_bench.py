"""`holdfast bench fairness`: its figures on both stores, its pictures, and its arithmetic."""

from __future__ import annotations

import json
from random import Random
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from holdfast.bench import fairness, plot
from holdfast.bench.cli import app
from holdfast.bench.fairness import (
    HEAVY,
    LIGHT,
    WEIGHTS,
    Comparison,
    Fairness,
    Track,
    Turn,
    Watched,
    all_used_up,
    backlog_stands,
    done_at,
    every_key_seen,
    line_up,
    one_used_up,
    share_error_points,
    shuffled_line,
    time_share,
    unfairness,
    zipf_line,
)
from holdfast.bench.ground import Ground, ground
from holdfast.bench.load import NO_PROFILE, QUEUE
from holdfast.errors import ConfigurationError
from holdfast.queues import Queue
from holdfast.store import ZERO, Column, LevelCursor

FIGURES = {
    "unfairness",
    "share_error_points",
    "light_key_done_at",
    "cost_share_error_points",
    "keys_ratio",
    "rss_mb",
}
PNG = b"\x89PNG\r\n\x1a\n"


def where(store_url: str) -> list[str]:
    if store_url.startswith("sqlite"):
        return ["--store", "sqlite"]
    return ["--store", "postgres", "--url", store_url]


@pytest.fixture
def here(store_url):
    store, *url = where(store_url)[1::2]
    with ground(store, *(url or [None])) as found:
        yield found


def test_fairness_gives_its_figures_in_one_line_and_draws_them(store_url, tmp_path):
    folder = tmp_path / "pictures"
    is_drawn = store_url.startswith("sqlite")  # one more part: once is enough
    words = ["fairness", "--tasks", "200", "--runs", "1", "--json", *where(store_url)]

    result = CliRunner().invoke(app, [*words, *(["--plot", str(folder)] if is_drawn else [])])

    assert result.exit_code == 0, (result.stdout, result.stderr, result.exception)
    (line,) = result.stdout.splitlines()
    found = json.loads(line)
    assert found["scenario"] == "fairness" and found.keys() >= FIGURES
    assert 0 < found["unfairness"] < 1 and found["keys_ratio"] > 0 and found["rss_mb"] > 0
    assert len(found["marks"]) == len(FIGURES)
    if is_drawn:
        assert_pictures(folder)


def assert_pictures(folder):
    names = {f"{name}.{ending}" for name in (plot.SHARES, plot.WAITS) for ending in plot.FORMATS}
    assert {file.name for file in folder.iterdir()} == names
    for file in folder.glob("*.svg"):
        assert ElementTree.parse(file).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    for file in folder.glob("*.png"):
        data = file.read_bytes()
        assert data.startswith(PNG) and b"IEND" in data[-12:]


async def test_every_task_stands_in_the_backlog_before_the_first_one_starts(here: Ground):
    line = zipf_line(90, 1_500, Random(1))
    async with here.place() as place, (load := Watched(place, all_used_up(line), {})).app:
        store, queue = await load.app.store(), load.app.queue(QUEUE)
        await queue.pause()
        await line_up(load.turn, line, {})
        async with load.app.node():
            assert await backlog_stands(store)

            column = Column(5, "turn")
            cursors = [LevelCursor(n, column, ZERO, len(line)) for n in range(store.partitions)]
            assert sum(map(len, await store.levels(QUEUE, cursors))) == len(line)
            assert load.turns == []
            await queue.resume()
            assert await load.seen()

    assert sorted(turn.key for turn in load.turns) == sorted(line)


async def test_what_is_unfair_shows_in_the_figures(here: Ground):
    track = Track(here, NO_PROFILE)
    line = shuffled_line({HEAVY: 285, LIGHT: 15}, Random(1))
    three = shuffled_line(dict.fromkeys(WEIGHTS, 60), Random(1))

    first_come = await track.turns(line, all_used_up(line), mode="off")
    unweighted = await track.turns(three, one_used_up(three))

    assert done_at([turn.key for turn in first_come], LIGHT) > 150
    assert share_error_points([turn.key for turn in unweighted], WEIGHTS) > 10
    assert [check.problem for check in track.checks] == [None, None]


async def test_a_dispatch_that_stalls_gives_no_figures(here: Ground, monkeypatch):
    async def never_resumed(queue: Queue) -> None: ...

    monkeypatch.setattr(Queue, "resume", never_resumed)
    monkeypatch.setattr(fairness, "STALL_S", 2.0)
    track, line = Track(here, NO_PROFILE), ["a"] * 20

    assert await track.turns(line, all_used_up(line)) == []

    (check,) = track.checks
    assert check.problem is not None and "20 SUBMITTED" in check.problem


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("abc", 3 / 9),  # 0 + 1 + 2
        ("aaab", 3 / 4),  # 0 + 3: the other one waits for all of the first
        ("aaaaaaaab", 2.0),
        ("aaaa", 0.0),
        ("", 0.0),
    ],
)
def test_unfairness_is_the_sum_of_first_indices_over_the_square_of_the_keys(order, expected):
    assert unfairness(order) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("order", "expected"), [("aaaaabbbcc", 0.0), ("aaaaaabbcc", 10.0), ("a", 50.0), ("", 50.0)]
)
def test_the_share_error_is_the_largest_difference_in_points(order, expected):
    weights = {"a": 5.0, "b": 3.0, "c": 2.0}

    assert share_error_points(order, weights) == pytest.approx(expected)


def test_a_key_is_done_with_its_last_turn():
    assert done_at("abab" + "a" * 6, "b") == 4
    assert done_at("aaa", "b") == 0


def test_a_share_of_time_ends_with_the_last_start():
    turns = [Turn("slow", 0.0, 10.0), Turn("fast", 0.0, 1.0), Turn("fast", 2.0, 3.0)]

    assert time_share(turns, "slow") == pytest.approx(2 / 3)  # 2 of 2 + 1 seconds
    assert time_share([], "slow") == 0.0


def test_watching_ends_when_there_is_nothing_more_to_see():
    line = ["a", "a", "b"]

    seen, one, all_ = every_key_seen(line), one_used_up(line), all_used_up(line)

    assert [seen(key) for key in "aab"] == [False, False, True]
    assert [one(key) for key in "ab"] == [False, True]
    assert [all_(key) for key in "aab"] == [False, False, True]


def test_the_mark_of_the_light_key_scales_with_the_tasks():
    def mark_of(tasks: int) -> float | None:
        marks = {mark.figure: mark.at_most for mark in Fairness(tasks=tasks).marks}
        return marks["light_key_done_at"]

    assert mark_of(100_000) == pytest.approx(1_100)
    assert mark_of(10_000) == pytest.approx(110)


def test_unfairness_of_exactly_one_misses_its_mark():
    mark = next(mark for mark in Fairness().marks if mark.figure == "unfairness")

    assert mark.judged({"unfairness": 1.0}).is_reached is False
    assert mark.judged({"unfairness": 0.999}).is_reached is True


def test_a_zipf_line_is_the_same_for_the_same_seed_and_busiest_at_its_first_key():
    line = zipf_line(90, 2_000, Random(7))

    assert line == zipf_line(90, 2_000, Random(7))
    assert len(line) == 2_000 and line.count("key 0") > 2 * line.count("key 2") > 0


def test_shares_are_drawn_by_windows_and_waits_from_the_first_turn():
    turns = [Turn(LIGHT if n % 4 == 0 else HEAVY, 5.0 + n) for n in range(400)]

    times_s, shares = plot.shares_over_time(turns, LIGHT)

    assert shares == [25.0] * plot.WINDOWS
    assert times_s[0] == 4.0 and times_s[-1] == 396.0
    assert plot.waits_s(turns, LIGHT) == [200.0, 360.0, 396.0]
    assert plot.waits_s(turns, "nobody") == [0.0, 0.0, 0.0]


def test_the_last_comparison_is_drawn_also_when_a_mark_was_missed(tmp_path):
    turns = [Turn(LIGHT, 0.0), Turn(HEAVY, 1.0)]

    with pytest.raises(SystemExit), plot.drawing(tmp_path / "new") as compared:
        assert compared == []
        compared.append(Comparison(turns, turns))
        raise SystemExit(1)

    assert_pictures(tmp_path / "new")


def test_without_a_folder_nothing_is_drawn():
    with plot.drawing(None) as compared:
        assert compared is None


def test_a_missing_matplotlib_is_told_before_anything_is_measured(monkeypatch, tmp_path):
    monkeypatch.setattr(plot, "find_spec", lambda name: None)

    with (
        pytest.raises(ConfigurationError, match=r"pip install holdfast\[bench\]"),
        plot.drawing(tmp_path),
    ):
        pytest.fail("nothing is measured")
