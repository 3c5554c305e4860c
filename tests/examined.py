"""What the doctor finds at an address, and how a test reads it."""

from __future__ import annotations

from random import Random
from typing import Any

from holdfast.clock import SystemClock
from holdfast.config import Config
from holdfast.doctor.examine import examine
from holdfast.doctor.finding import Finding, Thresholds, Verdict
from holdfast.node.compose import make_store

OK, WARN, FAIL = Verdict.OK, Verdict.WARN, Verdict.FAIL


def a_store(url: str, **options: Any) -> Any:
    return make_store(Config(url=url, **options).address, clock=SystemClock(), rng=Random(0))


async def examined(url: str, *, limits: Thresholds | None = None, **options: Any) -> Report:
    config = Config(url=url, **options)
    found = await examine(config, a_store(url, **options), clock=SystemClock(), thresholds=limits)
    return Report({one.name: one for one in found})


async def prepared(url: str) -> str:
    """The address, with our tables there."""
    store = a_store(url)
    await store.migrate()
    await store.close()
    return url


class Report(dict[str, Finding]):
    """The findings by their names."""

    def says(self, name: str, verdict: Verdict, *words: str) -> None:
        found = self[name]
        assert found.verdict is verdict, found
        for word in words:
            assert word in f"{found.what}\n{found.fix}", found
        assert bool(found.fix) == (verdict is not OK), "whatever is wrong has a fix"
