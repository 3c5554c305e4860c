"""The cleaner: prepares the archive's days ahead and drops what is older than its retention."""

from __future__ import annotations

from holdfast.duties.duty import AT_ONCE
from holdfast.policy import Retention
from holdfast.store import Agenda

EVERY_S = 60.0
BATCH_MAX = 250


class Cleaner:
    name = "cleaner"

    def __init__(self, agenda: Agenda, retention: Retention) -> None:
        self._agenda = agenda
        self._keep_days = retention.finished.total_seconds() / 86_400

    async def run_once(self) -> float:
        cleaned = await self._agenda.clean(keep_days=self._keep_days, limit=BATCH_MAX)
        return AT_ONCE if cleaned >= BATCH_MAX else EVERY_S
