"""Whose turn it is: passes by key and weight, played through from arrivals to dispatches."""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import accumulate, count
from random import Random
from statistics import median

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.dispatch.passes import EXACT_MAX, STRIDE, Passes, Sketch, stride


class Line:
    """One column: triggers arrive with a pass, and are dispatched by (pass, number)."""

    def __init__(self, **options) -> None:
        self.passes = Passes(rng=Random(0), **options)
        self.given: dict[str | None, list[int]] = {}
        self._heap: list[tuple[int, int, str | None]] = []
        self._numbers = count()

    def arrive(self, keys, weight: float = 1.0) -> None:
        for key in keys:
            pass_ = self.passes.next(key, weight)
            self.given.setdefault(key, []).append(pass_)
            heappush(self._heap, (pass_, next(self._numbers), key))

    def dispatch(self, most: int = 10**9) -> list:
        return [key for _, key in self.dispatch_numbered(most)]

    def dispatch_numbered(self, most: int = 10**9) -> list:
        """(number of the arrival, key), in the order of dispatch."""
        out = []
        while self._heap and len(out) < most:
            pass_, number, key = heappop(self._heap)
            self.passes.dispatched(pass_)
            out.append((number, key))
        return out


def zipf(keys: int, tasks: int, seed: int = 1) -> list[str]:
    weights = list(accumulate((rank + 1) ** -1.2 for rank in range(keys)))
    return Random(seed).choices([f"k{n}" for n in range(keys)], cum_weights=weights, k=tasks)


def displacements(arrivals, **options) -> dict[str, float]:
    """For each key, the median of (place of dispatch - place of arrival)."""
    line = Line(**options)
    line.arrive(arrivals)
    found: dict[str, list[int]] = {}
    for place, (number, key) in enumerate(line.dispatch_numbered()):
        found.setdefault(key, []).append(place - number)
    return {key: median(places) for key, places in found.items()}


@pytest.mark.req("FAIR-55")
def test_a_pass_is_the_top_pass_or_one_step_behind_the_last_one_of_its_key():
    passes = Passes(rng=Random(0))

    assert [passes.next("a", 1.0) for _ in range(3)] == [1, 1001, 2001]
    assert [passes.next("b", 4.0) for _ in range(3)] == [1, 251, 501]
    passes.dispatched(1500)

    assert passes.next("a", 1.0) == 3001, "its last pass and a step"
    assert passes.next("b", 4.0) == 1500, "never below what is dispatched now"
    assert passes.next("new", 1.0) == 1500


@pytest.mark.req("FAIR-55")
def test_a_newcomer_gets_no_more_than_its_turn_while_the_ack_level_is_held_back():
    line = Line()
    line.arrive("a" * 500)
    line.dispatch(200)  # none of them acked yet: only what was dispatched counts

    line.arrive("n" * 100)

    assert line.dispatch(40).count("n") == 20


@pytest.mark.req("FAIR-56")
def test_arrivals_a_a_a_a_b_are_dispatched_a_b_a_a_a():
    line = Line()
    line.arrive("aaaab")

    assert "".join(line.dispatch()) == "abaaa"


@pytest.mark.req("FAIR-56")
def test_a_third_key_takes_its_turns_from_when_it_comes():
    line = Line()
    line.arrive("aaaab")
    first = line.dispatch(2)
    line.arrive("cc")

    assert "".join(first + line.dispatch()) == "abcacaa"


@pytest.mark.req("FAIR-57")
def test_a_key_of_weight_five_is_served_five_times_as_often_until_it_ends():
    line = Line()
    line.arrive("a" * 20)
    line.arrive("b" * 20, weight=5.0)

    order = "".join(line.dispatch())

    assert order.startswith("abbbbb" + "abbbbb" + "abbbbb")
    assert order[24:] == "a" * 16


@pytest.mark.req("FAIR-57")
def test_weights_of_five_three_two_give_these_shares_within_two_points():
    line = Line()
    for key, weight in (("a", 5.0), ("b", 3.0), ("c", 2.0)):
        line.arrive(key * 10_000, weight)

    order = line.dispatch(10_000)

    shares = [100 * order.count(key) / len(order) for key in "abc"]
    assert shares == pytest.approx([50, 30, 20], abs=2)


@pytest.mark.req("FAIR-58")
@given(st.lists(st.sampled_from("abcd"), max_size=200), st.integers(1, 50))
def test_inside_one_key_the_first_to_come_is_the_first_to_go(arrivals, chunk):
    line, order = Line(exact_max=2), []
    for start in range(0, len(arrivals), chunk):
        line.arrive(arrivals[start : start + chunk])
        order += line.dispatch_numbered(chunk // 2)
    order += line.dispatch_numbered()

    for key in "abcd":
        mine = [number for number, of in order if of == key]
        assert mine == sorted(mine)


@pytest.mark.req("FAIR-59")
def test_a_key_that_was_idle_for_an_hour_has_no_credit():
    line = Line()
    line.arrive("ab")
    line.dispatch()
    for _ in range(3_600):  # an hour of a's work, one a second; b rests
        line.arrive("a")
        line.dispatch()

    line.arrive("a" * 50)
    line.arrive("b" * 50)

    order = line.dispatch()
    assert all(abs(order[:n].count("a") - order[:n].count("b")) <= 1 for n in range(100))


@pytest.mark.req("FAIR-60")
@pytest.mark.parametrize(
    ("weight", "step"),
    [(0, 1000), (-3, 1000), (float("nan"), 1000), (0.0001, 10**6), (10**9, 1), (1000, 1), (2, 500)],
)
def test_weights_out_of_range_are_clamped(weight, step):
    assert stride(weight) == step


@pytest.mark.req("FAIR-60")
def test_an_override_beats_the_weight_of_the_task_and_changes_new_triggers_only():
    overrides: dict[str | None, float] = {}
    passes = Passes(rng=Random(0), weights=overrides)
    before = [passes.next("a", 1.0) for _ in range(3)]

    overrides["a"] = 10.0
    after = [passes.next("a", 1.0) for _ in range(3)]
    del overrides["a"]

    assert before == [1, 1001, 2001] and after == [2101, 2201, 2301]
    assert passes.next("a", 1.0) == 3301


@pytest.mark.req("FAIR-61")
def test_tasks_without_a_key_form_one_group():
    line = Line()
    line.arrive([None] * 4 + ["b"])

    assert line.dispatch() == [None, "b", None, None, None]


@pytest.mark.req("FAIR-63")
@pytest.mark.parametrize("keys", [90, 500], ids=["exact", "sketch"])
def test_busy_keys_wait_and_the_many_gain(keys):
    arrivals = zipf(keys, 100_000)

    found = displacements(arrivals, exact_max=100)

    ranked = sorted(found.values())
    assert ranked[int(len(ranked) * 0.9)] < 0
    assert found["k0"] > 0, "the heaviest key pays for it"


@pytest.mark.req("FAIR-63")
@pytest.mark.parametrize(("keys", "spread_max"), [(50, 1_000), (500, 50_000)])
def test_keys_that_are_alike_fare_alike(keys, spread_max):
    rng, names = Random(2), [f"k{n}" for n in range(keys)]
    arrivals = [key for _ in range(100_000 // keys) for key in rng.sample(names, keys)]

    found = displacements(arrivals, exact_max=100)

    assert max(found.values()) - min(found.values()) < spread_max


@pytest.mark.req("FAIR-64")
def test_a_light_key_is_finished_after_about_a_thousand_dispatches():
    line = Line()
    line.arrive(Random(3).sample("h" * 9_500 + "l" * 500, 10_000))

    order = line.dispatch()

    assert max(place for place, key in enumerate(order) if key == "l") <= 1_010


@pytest.mark.req("FAIR-65")
def test_the_sketch_keeps_the_passes_of_the_top_keys_and_a_restart_those_of_a_hundred():
    line = Line(exact_max=100)
    line.arrive(zipf(2_000, 100_000))
    top = line.passes.busiest(100)
    assert len(top) == 100
    assert all(line.given[key][-1] == last for key, last in top.items())

    after = Passes(rng=Random(1), exact_max=100)
    offset = after.joined(line.passes.top)
    after.restore(top, offset)

    assert all(after.next(key, 1.0) == last + offset + STRIDE for key, last in top.items())
    assert after.next("somebody else", 1.0) == after.top


@pytest.mark.req("FAIR-66")
def test_a_row_with_new_places_frees_a_light_key_from_a_lasting_collision():
    sketch = Sketch(Random(0), width=2, reseed_after=50)
    keys = iter(f"light{n}" for n in count())
    sketch.note("heavy", 10**6, step=1, highest=10**6)
    light = next(key for key in keys if sketch.last(key, 0) == 10**6)

    for turn in range(51, 5_000):  # the heavy one goes on, and what it was given is dispatched
        sketch.note("heavy", 10**6 + turn, step=1, highest=10**6 + turn)
        top = 10**6 + turn + STRIDE - 20
        if sketch.last(light, top) == 0:
            break

    assert sketch.last(light, top) == 0
    assert sketch.last("heavy", top) >= 10**6 + turn


@pytest.mark.req("FAIR-67")
def test_passes_beyond_32_bits_never_fall_below_the_top_nor_decrease_for_a_key():
    passes = Passes(rng=Random(0), exact_max=10)
    passes.dispatched(2**32 - 5_000)
    rng, last = Random(4), {}
    for _ in range(20_000):
        key = f"k{rng.randrange(50)}"
        pass_ = passes.next(key, rng.choice([0.5, 1.0, 3.0]))
        assert pass_ >= passes.top and pass_ > last.get(key, 0)
        last[key] = pass_
        passes.dispatched(passes.top + 40)
    assert passes.top > 2**32


@pytest.mark.req("FAIR-68")
def test_dither_spreads_new_keys_over_their_first_step_and_leaves_the_others_alone():
    passes = Passes(rng=Random(5), dither=True)
    passes.dispatched(10_000)

    first = {f"k{n}": passes.next(f"k{n}", 1.0) for n in range(500)}

    assert all(10_000 <= pass_ < 11_000 for pass_ in first.values())
    assert len({pass_ // 100 for pass_ in first.values()}) == 10
    assert all(passes.next(key, 1.0) == pass_ + 1_000 for key, pass_ in first.items())


@pytest.mark.req("FAIR-69")
@pytest.mark.parametrize("seed", range(20))
def test_the_unfairness_of_ten_keys_stays_below_one(seed):
    line = Line()
    line.arrive(zipf(10, 225, seed))

    order = line.dispatch()

    keys = set(order)
    assert sum(order.index(key) for key in keys) / len(keys) ** 2 < 1.0


@given(st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_a_sketch_is_never_too_low(seed):
    rng = Random(seed)
    passes, last, waiting = Passes(rng=Random(seed), exact_max=5), {}, []
    for _ in range(2_000):
        key = f"k{int(rng.paretovariate(0.6)) % 400}"
        pass_ = passes.next(key, 1.0)
        assert pass_ >= passes.top
        if last.get(key, 0):
            assert pass_ >= last[key] + STRIDE or pass_ == passes.top >= last[key] + STRIDE
        last[key] = pass_
        heappush(waiting, pass_)
        if rng.random() < 0.4:
            passes.dispatched(heappop(waiting))


def test_counters_that_say_nothing_any_more_leave_memory():
    passes = Passes(rng=Random(0))
    for n in range(20 * EXACT_MAX):
        passes.dispatched(passes.next(f"k{n}", 1.0) + STRIDE)

    assert len(passes._last) <= EXACT_MAX and passes._sketch is None


def test_a_light_key_is_not_forgotten_before_its_longer_step_is_over():
    passes = Passes(rng=Random(0), exact_max=10)
    assert passes.next("light", 0.01) == 1
    for n in range(200):
        passes.dispatched(passes.next(f"k{n}", 1.0) + STRIDE // 4)

    assert passes.top < 100_001 and passes.next("light", 0.01) == 100_001


# ── without fairness, and back ────────────────────────────────────────────────────────────────


def test_with_fairness_off_everybody_stands_in_one_line_behind_what_had_its_pass():
    line = Line()
    line.arrive("aaab")
    line.passes.switch("off")

    line.arrive("cab")

    assert line.given["a"] == [1, 1_001, 2_001, 2_001]
    assert line.given["c"] == [2_001] and line.given["b"] == [1, 2_001]
    assert "".join(line.dispatch()) == "abaacab"
    line.passes.dispatched(9_000)
    line.arrive("dd")
    assert line.given["d"] == [9_000, 9_000]


def test_with_fairness_on_again_all_keys_start_alike_behind_what_had_its_pass():
    line = Line()
    line.arrive("aaaa")
    line.passes.switch("off")
    line.arrive("bb")
    line.passes.switch("count")

    line.arrive("aabbc")

    assert line.given["a"][4:] == [3_001, 4_001] == line.given["b"][2:]
    assert line.given["c"] == [3_001]


def test_to_say_the_same_again_or_to_charge_by_cost_forgets_no_turn():
    line = Line()
    line.arrive("aaa")
    for mode in ("count", "cost", "cost", "count"):
        line.passes.switch(mode)

    line.arrive("ab")

    assert line.given == {"a": [1, 1_001, 2_001, 3_001], "b": [1]}


# ── more keys than counters ───────────────────────────────────────────────────────────────────


def test_beyond_the_bound_keys_share_a_sketch_and_their_turns_go_on():
    line = Line(exact_max=3)

    for _ in range(4):
        line.arrive("abcdefgh")

    assert all(given == [1, 1_001, 2_001, 3_001] for given in line.given.values())
    assert len(line.passes.busiest(100)) <= 3


def test_a_busy_key_of_the_sketch_gets_a_counter_of_its_own():
    line = Line(exact_max=2)
    line.arrive("abcdef")
    line.arrive("f" * 20)

    line.arrive("ghijkl")  # newcomers: the counters are looked through

    assert line.passes.busiest(1) == {"f": 20_001}
    line.arrive("fab")
    assert line.given["f"][-1] == 21_001
    assert line.given["a"] == line.given["b"] == [1, 1_001], "those that lost theirs go on, too"


def test_counters_that_say_nothing_make_room_for_newcomers():
    passes = Passes(rng=Random(0), exact_max=5)
    for number in range(200):
        assert passes.next(f"k{number}", 1.0) == passes.top
        passes.dispatched(passes.top + 2 * STRIDE)

    assert len(passes.busiest(100)) <= 1


def test_a_key_of_little_weight_is_not_forgotten_when_counters_are_looked_through():
    passes = Passes(rng=Random(0), exact_max=3)
    first = passes.next("light", 0.1)
    for number in range(20):
        passes.dispatched(passes.top + 300)
        passes.next(f"k{number}", 1.0)

    assert passes.next("light", 0.1) == first + 10 * STRIDE


def test_a_step_is_one_at_least_and_no_longer_than_a_million():
    assert [stride(weight) for weight in (1_000, 5_000, 0.001, 1e-9, 0, -1)] == [
        1, 1, 10**6, 10**6, STRIDE, STRIDE,
    ]  # fmt: skip


def test_a_takeover_brings_counters_in_only_where_they_say_more():
    passes = Passes(rng=Random(0))
    passes.dispatched(10_000)
    passes.next("known", 1.0)
    passes.next("known", 1.0)

    passes.restore({"known": 500, "ahead": 2_000, "behind": -1_500}, 10_000)

    assert passes.next("known", 1.0) == 12_000
    assert passes.next("ahead", 1.0) == 13_000
    assert passes.next("behind", 1.0) == 10_000
