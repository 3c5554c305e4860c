"""Faults that the histories have found, each as its smallest history or by its seed.

One cannot happen today, because the books make one call after the other: it is expected to fail,
and the world steps around it by `World.exempts_overlaps`.  Two of the lanes are expected to fail
until they are mended; `LaneWorld` steps around them by the attributes that are set here.
"""

from __future__ import annotations

from random import Random

import pytest

from histories.columns import COLUMN, ModelColumn, drive
from histories.lanes import LaneWorld
from holdfast.dispatch.intake import Intake, Partition
from holdfast.dispatch.limits import Limits
from holdfast.dispatch.table import TriggerTable
from holdfast.ids import NodeId
from holdfast.store import Entry, Level, LevelCursor, Record
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
    (entries,) = intake.choose([(partition, triggers)])
    mark = partition.columns[COLUMN].mark
    record = Record(partition=0, epoch=partition.epoch, entries=entries, marks={COLUMN: mark})
    assert column.record(record)
    intake.merge(intake.appended(partition, entries, early=False))
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


class Ordered(LaneWorld):
    orders_early_reads = True


@pytest.mark.xfail(reason="a newer version waits behind its lane, which waits for the older one")
def test_a_task_that_is_to_run_again_does_not_keep_its_lane_from_being_used_up():
    column = ModelColumn()
    column.claim(0, NodeId("node-0"))
    old, new = (a_trigger(id=5, version=version, fairness_key="a") for version in (1, 3))
    entries = [Entry(Level(1, 1), old, "fa"), Entry(Level(2, 2), new)]
    column.record(Record(partition=0, epoch=1, entries=entries))

    intake, partition = an_owner(column, 1)
    lanes = intake.stored.to_read()
    backlogs = [lane for _, _, lane in lanes] + [partition.columns[COLUMN]]
    for backlog in backlogs:
        where = LevelCursor(0, COLUMN._replace(lane=backlog.lane), *backlog.start_read())
        intake.merge([(backlog, backlog.read(column.levels(where)))])

    found = intake.table.take(lambda _: None)
    assert found is not None and found.trigger == new


@pytest.mark.xfail(reason="what an early read brings again counts as younger than what was heard")
def test_what_waits_to_be_written_keeps_its_turn_when_an_early_read_brings_it_again():
    drive(Ordered(90).play(), ModelColumn())


@pytest.mark.parametrize("seed", [5, 76])
def test_a_call_that_ends_after_its_partition_was_taken_anew_changes_nothing(seed):
    """The answer is about an ownership that has ended: it must not touch the new one."""
    drive(LaneWorld(seed).play(), ModelColumn())
