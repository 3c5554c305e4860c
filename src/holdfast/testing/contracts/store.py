"""The suite that every store passes.

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def store(self, tmp_path):
            store = MyStore(tmp_path / "tasks")
            await store.open()
            yield store
            await store.close()

The fixture gives an opened, migrated and empty store.  Override `archived_earlier` to say how
the store's archive is aged, else the promises about cleaning are skipped, visibly.
"""

from __future__ import annotations

from holdfast.testing.contracts import (
    backlogs,
    duties,
    insight,
    ordering,
    records,
    rings,
    rules,
    schedules,
    surveys,
    tasks,
)


class StoreContract(
    tasks.EnqueueContract,
    tasks.GrabContract,
    tasks.SettleContract,
    ordering.OrderingContract,
    tasks.TransactionContract,
    tasks.ChangeContract,
    records.RecordsContract,
    backlogs.ArrivalsContract,
    backlogs.RecordContract,
    backlogs.LoadContract,
    backlogs.ClaimContract,
    duties.LeasesContract,
    duties.DutiesContract,
    duties.WakerContract,
    duties.ResumerContract,
    duties.CleanerContract,
    rules.RulebookContract,
    rings.RingsContract,
    schedules.SchedulesContract,
    duties.SearchContract,
    insight.InsightContract,
    surveys.SurveyContract,
    duties.LifeContract,
):
    """Every promise of `holdfast.store.Store`."""
