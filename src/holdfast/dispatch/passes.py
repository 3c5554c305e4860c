"""Passes: whose turn it is within a column, by fairness key and weight.  Pure.

Stride scheduling.  Each key takes a step for each of its triggers, the shorter the heavier it is:

    pass = max(V, the key's last pass + max(1, 1000 / weight))

V, the top pass, is the highest one dispatched.  A key that comes back after a rest starts at V:
it has no credit, and its first trigger stands at most one turn behind what is dispatched now.

A counter that lies a whole step behind V says nothing, so only keys with something waiting need
one.  The keys that are furthest ahead have exact counters.  Beyond a bound the others share a
sketch, where a counter can only be too high: such a key may be served late, but its own triggers
never pass each other.

All partitions of a node share the passes of a column, because their triggers compete for the same
slots.  In the store each partition counts by a clock of its own, as its last owner left it;
`joined` tells how far the two are apart.

Nothing here is durable.  The owner persists V and the counters of the top keys; after a crash the
other keys start again at V.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from heapq import nlargest
from operator import itemgetter
from random import Random

from holdfast.limit import Mode

Key = str | None  # tasks without a key form one group

STRIDE = 1_000
WEIGHT_MIN, WEIGHT_MAX = 0.001, 1_000.0
EXACT_MAX = 10_000  # keys with a counter of their own
FIRST = 1
NO_WEIGHTS: Mapping[Key, float] = {}


def stride(weight: float) -> int:
    """How far one trigger of this weight moves its key."""
    if not weight > 0:
        return STRIDE
    return max(1, int(STRIDE / min(max(weight, WEIGHT_MIN), WEIGHT_MAX)))


class Passes:
    """The passes of one column, over all partitions of this node."""

    def __init__(
        self,
        *,
        rng: Random,
        weights: Mapping[Key, float] = NO_WEIGHTS,
        exact_max: int = EXACT_MAX,
        dither: bool = False,
    ) -> None:
        """`weights` beats the weight of a task; `dither` spreads new keys over their first step."""
        self.top = FIRST  # V
        self.mode: Mode = "count"
        self._floor = 0  # no pass below it: what was given before the mode changed goes first
        self._rng = rng
        self._weights = weights
        self._exact_max = exact_max
        self._dither = dither
        self._last: dict[Key, int] = {}  # the last pass of a key, exactly
        self._light: dict[Key, int] = {}  # the longest step of keys that take longer ones
        self._highest = FIRST  # the highest pass given
        self._sketch: Sketch | None = None
        self._rising: dict[Key, int] = {}  # keys of the sketch that may be among the busiest
        self._until_review = exact_max  # newcomers

    def joined(self, top: int) -> int:
        """What to add to the stored passes of a partition whose own V is `top`."""
        return self.top - max(FIRST, top)

    def next(self, key: Key, weight: float) -> int:
        """The pass of the key's next trigger; its counter moves."""
        if self.mode == "off":
            self._highest = max(self._highest, self.top)
            return self._highest
        step = STRIDE if weight == 1.0 and not self._weights else self.step(key, weight)
        last = self._last.get(key)
        if last is None:
            return self._newcomer(key, step)
        pass_ = last + step
        if pass_ < self.top:
            pass_ = self.top
        self._last[key] = pass_
        if pass_ > self._highest:
            self._highest = pass_
        if step > STRIDE:
            self._light[key] = max(step, self._light.get(key, 0))
        return pass_

    def switch(self, mode: Mode) -> None:
        """Charge keys in another way from now on; what has its pass already goes first."""
        if "off" in (mode, self.mode) and mode != self.mode:
            self._floor = self._highest
            self._last.clear()
            self._light.clear()
            self._rising.clear()
            self._sketch = None
        self.mode = mode

    def step(self, key: Key, weight: float) -> int:
        """How far one trigger moves its key."""
        return stride(self._weights.get(key, weight))

    def dispatched(self, pass_: int) -> None:
        """A trigger of this pass was taken: V moves."""
        if pass_ > self.top:
            self.top = pass_

    def restore(self, counters: Mapping[Key, int], offset: int) -> None:
        """Take in the counters that a partition's last owner left, in that partition's clock."""
        for key, stored in counters.items():
            last = stored + offset
            self._highest = max(self._highest, last)
            if last > max(self.top - STRIDE, self._last_of(key)):
                self._keep(key, last, STRIDE)

    def busiest(self, count: int) -> dict[Key, int]:
        """The last passes of the keys that are furthest ahead, as far as they say anything."""
        return dict(nlargest(count, self._ahead(self._last).items(), key=itemgetter(1)))

    def _newcomer(self, key: Key, step: int) -> int:
        """A key without an exact counter: new, back after a rest, or one of the many."""
        if self._sketch is not None and self._sketch.says_nothing(self.top):
            self._sketch = None
        last = 0 if self._sketch is None else self._sketch.last(key, self.top)
        if last + step > self.top and last:
            pass_ = last + step
        else:
            pass_ = max(self.top, self._floor)
            if self._dither:
                pass_ += self._rng.randrange(step)
        self._keep(key, pass_, step)
        return pass_

    def _last_of(self, key: Key) -> int:
        last = self._last.get(key)
        if last is None:
            last = 0 if self._sketch is None else self._sketch.last(key, self.top)
        return last

    def _keep(self, key: Key, pass_: int, step: int) -> None:
        self._highest = max(self._highest, pass_)
        if key not in self._last and len(self._last) >= self._exact_max:
            self._until_review -= 1
            if self._until_review <= 0:
                self._review()
        if key in self._last or len(self._last) < self._exact_max:
            self._last[key] = pass_
            self._rising.pop(key, None)
            if step > STRIDE:
                self._light[key] = step
            return
        self._note(key, pass_, step)
        self._rising[key] = pass_

    def _review(self) -> None:
        """Drop the counters that say nothing; the busiest of the others stay exact."""
        self._until_review = self._exact_max
        ahead, rising = self._ahead(self._last), self._ahead(self._rising)
        light, self._rising = self._light, {}
        self._last = dict(nlargest(self._exact_max, (ahead | rising).items(), key=itemgetter(1)))
        self._light = {key: step for key, step in light.items() if key in self._last}
        for key in ahead.keys() - self._last.keys():
            self._note(key, ahead[key], light.get(key, STRIDE))

    def _ahead(self, counters: Mapping[Key, int]) -> dict[Key, int]:
        """Those that say something: their next pass would lie above V."""
        light, top = self._light, self.top
        return {
            key: last
            for key, last in counters.items()
            if last + (light.get(key, STRIDE) if light else STRIDE) > top
        }

    def _note(self, key: Key, pass_: int, step: int) -> None:
        if self._sketch is None:
            self._sketch = Sketch(self._rng)
        self._sketch.note(key, pass_, step=step, highest=self._highest)


ROWS = 5
WIDTH = 10_000
RESEED_AFTER = 250_000  # notes; then one row gets new places, so that no collision lasts
_MASK = (1 << 60) - 1


class Sketch:
    """Counters of many keys in few cells.  Never too low, seldom too high.

    A row that is new does not know what was noted before it.  It is written at once, but asked
    only when V has passed everything given until then: from there on the rest says nothing.  Until
    that time the row that it replaces answers.
    """

    def __init__(
        self,
        rng: Random,
        *,
        width: int = WIDTH,
        rows: int = ROWS,
        reseed_after: int = RESEED_AFTER,
    ) -> None:
        self._highest = 0  # the highest last pass, and the longest step after one
        self._step = STRIDE
        self._width = width
        self._rng = rng
        self._reseed_after = reseed_after
        self._rows = [_Row(rng, width) for _ in range(rows)]
        self._coming: _Row | None = None  # replaces the oldest
        self._from = 0  # the top pass at which it does
        self._notes = 0
        self._found: tuple[Key, list[int]] | None = None  # the key asked for last, its places

    def last(self, key: Key, top: int) -> int:
        """The last pass of the key or a higher one; 0 when there is none."""
        if self._coming is not None and top >= self._from:
            self._rows = [*self._rows[1:], self._coming]
            self._coming = self._found = None
        lowest = -1
        for row, place in zip(self._rows, self._places(key), strict=False):
            cell = row.cells[place]
            if cell < lowest or lowest < 0:
                lowest = cell
        return lowest

    def says_nothing(self, top: int) -> bool:
        return self._highest + self._step <= top

    def note(self, key: Key, pass_: int, *, step: int, highest: int) -> None:
        """Remember the key's last pass; `highest` is the highest one given to any key."""
        self._highest = max(self._highest, pass_)
        self._step = max(self._step, step)
        rows = self._rows if self._coming is None else [*self._rows, self._coming]
        for row, place in zip(rows, self._places(key), strict=True):
            if row.cells[place] < pass_:
                row.cells[place] = pass_
        self._notes += 1
        if self._notes >= self._reseed_after and self._coming is None:
            self._coming, self._found = _Row(self._rng, self._width), None
            self._from = highest + self._step
            self._notes = 0

    def _places(self, key: Key) -> list[int]:
        """Where the key stands in each row, the one that is coming included.

        A key is noted right after it was asked for, so the last answer is kept.
        """
        if self._found is None or self._found[0] != key:
            text = b"" if key is None else b"k" + key.encode()
            hashed = int.from_bytes(blake2b(text, digest_size=7).digest(), "little")
            rows = self._rows if self._coming is None else [*self._rows, self._coming]
            width = self._width
            places = [((hashed * row.factor & _MASK) >> 28) * width >> 32 for row in rows]
            self._found = (key, places)
        return self._found[1]


class _Row:
    __slots__ = ("cells", "factor")

    def __init__(self, rng: Random, width: int) -> None:
        self.factor = rng.getrandbits(60) | 1  # a place is in the upper bits of its product
        self.cells = [0] * width
