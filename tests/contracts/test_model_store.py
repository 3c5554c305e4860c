"""The model keeps the promises that it is the measure of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from holdfast.clock import SystemClock
from holdfast.store import Store
from holdfast.task import TaskId
from holdfast.testing.contracts.store import StoreContract
from holdfast.testing.model import ModelStore


class AgeingModel(ModelStore):
    def age(self, ids: Sequence[TaskId], days: float) -> None:
        for id in ids:
            task = self._tasks[id]
            assert task.finished_at is not None
            earlier = task.finished_at - timedelta(days=days)
            self._tasks[id] = replace(task, finished_at=earlier)


class TestModelStore(StoreContract):
    @pytest.fixture
    def store(self) -> AgeingModel:
        return AgeingModel(clock=SystemClock())

    async def archived_earlier(self, store: Store, ids: Sequence[TaskId], days: float) -> None:
        assert isinstance(store, AgeingModel)
        store.age(ids, days)
