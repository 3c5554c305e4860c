"""Faults that the histories have found, each as its smallest history.

The second cannot happen today, because the books make one call after the other; it is expected to
fail, and the world steps around it by `World.exempts_overlaps`.
"""

from __future__ import annotations

from random import Random

import pytest

from histories.columns import COLUMN, ModelColumn
from holdfast.dispatch.intake import Intake, Partition
from holdfast.dispatch.limits import Limits
from holdfast.dispatch.table import TriggerTable
from holdfast.ids import NodeId
from holdfast.store import Level, Record
from holdfast.task import Trigger
from holdfast.testing.build import a_trigger
from unit.backlog_steps import a_backlog, ack, choose, passes, read


def an_owner(column: ModelColumn, epoch: int) -> tuple[Intake, Partition]:
    """A node that takes the partition over."""
    raised = column.claim(epoch, NodeId(f"node-{epoch}"))
    assert raised is not None
    intake = Intake("default", TriggerTable(rng=Random(0)), Limits(), handles=lambda _: True)
    return intake, intake.take(column.load(), raised)


def write(column: ModelColumn, owner: tuple[Intake, Partition], *triggers: Trigger) -> list[Level]:
    intake, partition = owner
    (parts,) = intake.choose([(partition, triggers)])
    entries = parts[0].entries
    mark = partition.columns[COLUMN].mark
    record = Record(partition=0, epoch=partition.epoch, entries=entries, marks={COLUMN: mark})
    assert column.record(record)
    intake.merge(intake.appended(partition, parts, early=False))
    return [entry.level for entry in entries]


@pytest.mark.req("FAIR-1")
def test_a_new_owner_gives_no_level_that_is_stored_already():
    column = ModelColumn()
    first = an_owner(column, 0)
    write(column, first, *[a_trigger(id=id, arrived=id, fairness_key="a") for id in (1, 2)])
    taken = write(column, first, a_trigger(id=3, arrived=3, fairness_key="b"))

    second = an_owner(column, 1)
    given = write(column, second, a_trigger(id=4, arrived=4, fairness_key="c"))

    assert given != taken, "the store keeps the old entry, and task 4 is lost"


@pytest.mark.xfail(reason="a read brings the part of an append above its start, before the rest")
def test_a_read_during_an_append_does_not_bring_its_younger_half_alone():
    backlog = a_backlog(batch_max=2, reload_at=1)
    read(backlog, 11, 21)
    choose(backlog, 15, 31)  # of one key, and both are stored; only the reply is still missing
    ack(backlog, 11)

    offered = passes(read(backlog, 31).offered)  # above 21, so 15 is not among them

    assert offered == [], "31 would be dispatched before 15"
