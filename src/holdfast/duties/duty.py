"""A duty does one bounded step and says how long to rest; the loop around it is written once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from holdfast.telemetry.events import Events, StoreFailed

AT_ONCE = 0.0
BACK_OFF_S = 0.2
BACK_OFF_S_MAX = 10.0


class Duty(Protocol):
    name: str

    async def run_once(self) -> float:
        """Do one step, and answer the seconds to rest before the next."""
        ...


class Keeper:
    """Runs a duty for ever, outlives its errors, and can be woken early."""

    def __init__(
        self, duty: Duty, *, events: Events, may_act: Callable[[], bool] = lambda: True
    ) -> None:
        self._duty = duty
        self._events = events
        self._may_act = may_act  # a node without a lease takes no step
        self._wake = asyncio.Event()

    def wake(self) -> None:
        self._wake.set()

    async def keep(self) -> None:
        back_off_s = BACK_OFF_S
        while True:
            self._wake.clear()
            if not self._may_act():
                await asyncio.sleep(BACK_OFF_S)
                continue
            try:
                rest_s = await self._duty.run_once()
                back_off_s = BACK_OFF_S
            except Exception as error:
                self._events.emit(StoreFailed(self._duty.name, str(error)))
                rest_s, back_off_s = back_off_s, min(back_off_s * 2, BACK_OFF_S_MAX)
                await asyncio.sleep(rest_s)
                continue
            try:
                async with asyncio.timeout(rest_s):
                    await self._wake.wait()
            except TimeoutError:
                continue
