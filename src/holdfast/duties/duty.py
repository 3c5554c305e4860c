"""A duty does one bounded step and says how long to rest; the loop around it is written once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from holdfast.telemetry.events import Events, StoreFailed

AT_ONCE = 0.0
BACK_OFF_S = 0.2
BACK_OFF_S_MAX = 10.0
DOUBT_S = 0.2  # between two looks whether we may act again


class Duty(Protocol):
    name: str

    async def run_once(self) -> float:
        """Do one step, and answer the seconds to rest before the next."""
        ...


class Keeper:
    """Runs a duty for ever, outlives its errors, and can be woken early.

    While `may_act` says no, because our lease is in doubt, no step begins.
    """

    def __init__(
        self, duty: Duty, *, events: Events, may_act: Callable[[], bool] = lambda: True
    ) -> None:
        self._duty = duty
        self._events = events
        self._may_act = may_act
        self._wake = asyncio.Event()
        self._rest_until: float | None = None  # after a good step, by the loop's clock
        self.steps = 0  # that have ended

    @property
    def is_resting(self) -> bool:
        """Whether the last step went well and the next one is not due yet."""
        return self._rest_until is not None

    def rest_left_s(self) -> float:
        """How long until the next step begins by itself."""
        if self._rest_until is None:
            return 0.0
        return max(self._rest_until - asyncio.get_running_loop().time(), 0.0)

    def wake(self) -> None:
        self._wake.set()

    async def keep(self) -> None:
        self._rest_until = None
        back_off_s = BACK_OFF_S
        while True:
            while not self._may_act():  # noqa: ASYNC110
                await asyncio.sleep(DOUBT_S)
            self._wake.clear()
            if not self._may_act():
                await asyncio.sleep(BACK_OFF_S)
                continue
            try:
                rest_s = await self._duty.run_once()
            except Exception as error:
                self._events.emit(StoreFailed(self._duty.name, str(error)))
                await asyncio.sleep(back_off_s)
                back_off_s = min(back_off_s * 2, BACK_OFF_S_MAX)
                continue
            back_off_s = BACK_OFF_S
            self.steps += 1
            await self._rest(rest_s)

    async def _rest(self, rest_s: float) -> None:
        self._rest_until = asyncio.get_running_loop().time() + rest_s
        try:
            async with asyncio.timeout(rest_s):
                await self._wake.wait()
        except TimeoutError:
            pass
        finally:
            self._rest_until = None
