"""Callers with habits: every option of an enqueue, many at once, impatient, wrong, repeated."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import Random
from typing import Any

import msgspec

from holdfast.errors import DuplicateTask, OutcomeUnknown, Refused, Unavailable
from holdfast.policy import Unique
from holdfast.simulation.kinds import QUEUES
from holdfast.simulation.processes import Place, Program
from holdfast.simulation.truth import SPOILT_UNTIL, UNWRITABLE
from holdfast.simulation.wild_kinds import WORDS
from holdfast.task import NewTask, TaskId

NOWHERE = "nowhere"  # a queue that no node serves
CROWD_MAX = 5
PATIENCE_S = 0.01  # mean, of a caller that does not wait
REPEAT_S = 0.2

Drawn = tuple[str, tuple[Any, ...], dict[str, Any]]  # kind, arguments, options


class Callers(Program):
    """One process that enqueues as its seed's habits say."""

    def __init__(self, place: Place) -> None:
        super().__init__(place, "callers")
        self._rng = Random(f"callers {place.plan.seed}")
        self._habits = [habit for habit in sorted(place.plan.habits) if habit in _HABITS]

    def start(self) -> asyncio.Task[None]:
        return self.place.world.start(self.process, self._live())

    async def tidy_up(self) -> None:
        """Nothing of theirs goes on for ever."""

    async def _live(self) -> None:
        plan = self.place.plan
        if not self._habits:
            return
        async with asyncio.TaskGroup() as group:
            for number in range(plan.wild_requests):
                await asyncio.sleep(self._rng.expovariate(plan.wild_requests / plan.faulty_s))
                habit = self._rng.choice(self._habits)
                group.create_task(_HABITS[habit](self, f"w{number}"))

    # ── one task ──────────────────────────────────────────────────────────────────────────

    async def one(self, request: str, drawn: Drawn) -> None:
        """One task, with what else a caller may say of it."""
        kind, args, options = drawn
        rng = self._rng
        metadata = {"request": request} | options.pop("metadata", {})
        if rng.random() < 0.4:
            options.setdefault("fairness_key", f"tenant {rng.randrange(self.place.plan.keys)}")
            options.setdefault("weight", rng.choice((0.5, 1.0, 4.0)))
        if rng.random() < 0.2:
            options.setdefault("priority", rng.randrange(10))
        if rng.random() < 0.1:
            options.setdefault("queue", rng.choice(QUEUES))
        enqueuer = self.definitions[kind].options(metadata=metadata, **options)

        async def add() -> tuple[TaskId, bool]:
            handle = await enqueuer.enqueue(*args)
            return handle.id, handle.created

        await self._ask(request, kind, add)

    async def _ask(
        self, request: str, kind: str, add: Callable[[], Awaitable[tuple[TaskId, bool]]]
    ) -> None:
        tell = self.place.tell
        tell("enqueue", phase="invoke", request=request, kind=kind)
        while True:
            try:
                id, is_created = await add()
            except DuplicateTask as error:
                id, is_created = TaskId(error.existing), False
            except OutcomeUnknown as error:
                if error.repeat_is_safe:
                    await asyncio.sleep(REPEAT_S)
                    continue
                return tell("enqueue", phase="info", request=request)
            except TimeoutError:
                return tell("enqueue", phase="info", request=request)
            except (Unavailable, Refused):
                return tell("enqueue", phase="fail", request=request)
            self.place.known.append(id)
            return tell("enqueue", phase="ok", request=request, task=id, created=is_created)

    def _new(self, request: str, drawn: Drawn) -> NewTask:
        kind, args, options = drawn
        definition = self.definitions.get(kind)
        queue = QUEUES[0] if definition is None else definition.handler.queue
        payload = b"{}" if definition is None else definition.handler.arguments.seal(args, {})
        partition = self._rng.randrange(self.place.truth.partitions)
        metadata = msgspec.json.encode({"request": request})
        words: dict[str, Any] = {
            "queue": queue, "partition": partition, "kind": kind, "payload": payload,
            "metadata": metadata,
        }  # fmt: skip
        return NewTask(**(words | options))

    async def _raw(self, request: str, drawn: Drawn) -> None:
        """One task that no app of today would make."""
        task = self._new(request, drawn)

        async def add() -> tuple[TaskId, bool]:
            answer = await (await self.app.client()).enqueue(task)
            return answer.id, answer.created

        await self._ask(request, task.kind, add)

    # ── habits ────────────────────────────────────────────────────────────────────────────

    async def of_strangers(self, request: str) -> None:
        """A kind that no node handles, a queue that none serves, or a payload that does not fit."""
        options = self._rng.choice(
            ({"kind": "unheard of"}, {"queue": NOWHERE}, {"payload": b"\x01{}"}, {})
        )
        kind = self._rng.choice(("plain", "gathered")) if "payload" in options else "plain"
        args = (("w", "", 0.0),) if kind == "gathered" else (0.0,)
        await self._raw(request, (kind, args, dict(options)))

    async def of_crowds(self, request: str) -> None:
        """Many at once, each for itself or all in one transaction; some do not wait."""
        rng = self._rng
        names = [f"{request}.{number}" for number in range(rng.randint(2, CROWD_MAX))]
        if rng.random() < 0.5:
            await self._many(names)
            return
        async with asyncio.TaskGroup() as group:
            for name in names:
                group.create_task(self._impatient(name))

    async def _many(self, names: list[str]) -> None:
        tasks = [self._new(name, ("plain", (0.01,), {})) for name in names]
        tell = self.place.tell
        for name in names:
            tell("enqueue", phase="invoke", request=name, kind="plain")
        try:
            answers = await (await self.app.client()).enqueue_many(tasks)
        except Unavailable as error:
            phase = "info" if isinstance(error, OutcomeUnknown) else "fail"
            for name in names:
                tell("enqueue", phase=phase, request=name)
            return
        for name, answer in zip(names, answers, strict=True):
            tell("enqueue", phase="ok", request=name, task=answer.id)

    async def _impatient(self, request: str) -> None:
        rng = self._rng
        options: dict[str, Any] = {"fairness_key": UNWRITABLE} if rng.random() < 0.15 else {}
        enqueuer = self.definitions["plain"].options(metadata={"request": request}, **options)
        patience_s = rng.expovariate(1 / PATIENCE_S) if rng.random() < 0.3 else None

        async def add() -> tuple[TaskId, bool]:
            async with asyncio.timeout(patience_s):
                handle = await enqueuer.enqueue(0.01)
            return handle.id, handle.created

        await self._ask(request, "plain", add)

    async def of_keys(self, request: str) -> None:
        """Of a key there is one task, however often it is asked for."""
        rng = self._rng
        key = f"key {rng.randrange(self.place.plan.keys)}"
        period = rng.choice((None, 2.0, timedelta(seconds=5)))
        options: dict[str, Any] = {"on_duplicate": rng.choice((None, "error", "existing"))}
        if rng.random() < 0.5:
            options |= {"external_id": key, "external_id_period": period}
        else:
            options |= {"unique": Unique(key, period, rng.choice(("existing", "error")))}
        if rng.random() < 0.3:
            options["at"] = self.place.world.now() + timedelta(seconds=rng.uniform(-1.0, 3.0))
        await self.one(request, ("plain", (_short(rng),), options))


def _short(rng: Random) -> float:
    return round(rng.expovariate(10.0), 3)


def _words(rng: Random, request: str) -> Drawn:
    words, takes_s = rng.choice(WORDS), _short(rng)
    kind = rng.choice(("speaking", "speaking", "writing", "reporting", "unruly"))
    if kind == "unruly":
        return kind, (takes_s,), {}
    if kind == "reporting" and rng.random() < 0.2:
        takes_s = 5.0  # too late
    return kind, (words, takes_s), {}


def _threads(rng: Random, request: str) -> Drawn:
    return "threaded", (rng.choice(WORDS), rng.choice((0.0, 0.1, 3.0))), {}


def _pools(rng: Random, request: str) -> Drawn:
    return "pooled", (rng.choice(WORDS), rng.choice((0.0, 0.1, 4.0))), {}


def _batches(rng: Random, request: str) -> Drawn:
    deed = rng.choice(("", "", "", "fail", "late", "again", "gone"))
    return "gathered", ((request, deed, 12.0),), {}


def _deadlines(rng: Random, request: str) -> Drawn:
    kind = rng.choice(("overdue_error", "overdue_failed", "overdue_ignored", "deaf"))
    return kind, (round(rng.uniform(1.0, 12.0), 3),), {}


def _skipping(rng: Random, request: str) -> Drawn:
    words = rng.choice(("nothing", "fail", "park", "again", "retry after"))
    return "skipping", (words, _short(rng)), {"ordering_key": f"key {rng.randrange(3)}"}


def _poison(rng: Random, request: str) -> Drawn:
    return "poison", (rng.choice((0, 0, 1, 1, 6)),), {}


def _bookings(rng: Random, request: str) -> Drawn:
    return rng.choice(("misjudged", "plain", "plain", "plain")), (_short(rng),), {}


def _spoilt(rng: Random, request: str) -> Drawn:
    if rng.random() < 0.4:
        return "speaking", ("unstorable", _short(rng)), {}
    until_s = round(rng.uniform(1.0, 25.0), 3)
    return "plain", (_short(rng),), {"metadata": {SPOILT_UNTIL: until_s}}


def _one(draw: Callable[[Random, str], Drawn]) -> Callable[[Callers, str], Any]:
    async def ask(callers: Callers, request: str) -> None:
        await callers.one(request, draw(callers._rng, request))

    return ask


_HABITS: dict[str, Callable[[Callers, str], Any]] = {
    "words": _one(_words),
    "threads": _one(_threads),
    "pools": _one(_pools),
    "batches": _one(_batches),
    "deadlines": _one(_deadlines),
    "skipping": _one(_skipping),
    "poison": _one(_poison),
    "bookings": _one(_bookings),
    "spoilt": _one(_spoilt),
    "strangers": Callers.of_strangers,
    "crowds": Callers.of_crowds,
    "keys": Callers.of_keys,
}
