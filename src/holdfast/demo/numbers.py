"""The demo's numbers: every one is read from the store or from the shop's tables, none counted."""

from __future__ import annotations

import sqlite3
from collections import Counter
from dataclasses import dataclass

import msgspec

from holdfast.demo.shop import EXPRESS, RECEIPT_DELAY_S, STANDARD
from holdfast.payload import body_text
from holdfast.store import Filter, Search
from holdfast.task import State, Task, TaskId

TASKS_PER_ORDER = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Numbers:
    """What is true now."""

    orders: int
    tasks: int
    done: int
    states: dict[str, int]
    retried: int  # failures that were recorded and repeated
    recovered: int  # tasks that were delivered, lost with their node, and done all the same
    rolled_back: int  # carts whose transaction was rolled back
    left_by_rollback: int  # tasks of those
    without_one_outcome: int  # orders that have not exactly three tasks, each DONE
    not_charged_once: int
    express: int  # orders that waited for the first node, and should go first
    overtaken: int  # standard ones charged before the last express one
    receipts: int
    half_within_s: float  # how long after its time half of the delayed tasks had started
    latest_s: float  # the most: those came due while no node was alive
    too_early: int

    @property
    def broken(self) -> list[str]:
        """The invariants that do not hold."""
        promises = {
            "every committed order has exactly one outcome for each task": self.without_one_outcome,
            "every committed order is charged exactly once": self.not_charged_once,
            "a transaction that is rolled back leaves no task": self.left_by_rollback,
            "the first priority goes first": self.overtaken,
            "no delayed task starts before its time": self.too_early,
            "what ran on the killed node is recovered": int(self.recovered == 0),
        }
        return [f"{promise}: {count} do not" for promise, count in promises.items() if count]


async def all_tasks(store: Search) -> list[Task]:
    found: list[Task] = []
    after: TaskId | None = None
    while page := await store.find(Filter(after=after, limit=1_000)):
        found += page
        after = page[-1].id
    return found


async def read_numbers(store: Search, db: sqlite3.Connection) -> Numbers:
    tasks = await all_tasks(store)
    orders = {number for (number,) in db.execute("SELECT number FROM purchase")}
    carts = {number for (number,) in db.execute("SELECT number FROM cart")}
    of_order = Counter(_order(task) for task in tasks)
    done = Counter(_order(task) for task in tasks if task.state is State.DONE)
    charges = Counter(number for (number,) in db.execute("SELECT number FROM charge"))
    express, overtaken = _seen_order(db)
    late_s = _lateness_s(db)
    return Numbers(
        orders=len(orders),
        tasks=len(tasks),
        done=sum(done.values()),
        states={state.name: sum(task.state is state for task in tasks) for state in State},
        retried=sum(task.attempts for task in tasks),
        recovered=sum(
            task.state is State.DONE and task.deliveries > task.attempts + 1 for task in tasks
        ),
        rolled_back=len(carts - orders),
        left_by_rollback=sum(of_order[number] for number in carts - orders),
        without_one_outcome=sum(
            not of_order[number] == done[number] == TASKS_PER_ORDER for number in orders
        ),
        not_charged_once=sum(charges[number] != 1 for number in orders),
        express=express,
        overtaken=overtaken,
        receipts=len(late_s),
        half_within_s=late_s[len(late_s) // 2] if late_s else 0.0,
        latest_s=late_s[-1] if late_s else 0.0,
        too_early=sum(late < 0 for late in late_s),
    )


def _seen_order(db: sqlite3.Connection) -> tuple[int, int]:
    """Of the orders that waited for the first node: how many express, and whom they let pass."""
    places = db.execute(
        "SELECT priority, place FROM charge JOIN purchase USING (number) WHERE waited_for_node"
    ).fetchall()
    express = [place for priority, place in places if priority == EXPRESS]
    standard = [place for priority, place in places if priority == STANDARD]
    last = max(express, default=0)
    return len(express), sum(place < last for place in standard)


def _lateness_s(db: sqlite3.Connection) -> list[float]:
    """How long after its time each delayed task started, the smallest first."""
    rows = db.execute("SELECT sent_ms - placed_ms FROM receipt JOIN purchase USING (number)")
    return sorted(ms / 1000 - RECEIPT_DELAY_S for (ms,) in rows)


def _order(task: Task) -> int:
    number: int = msgspec.json.decode(body_text(task.payload))["number"]
    return number
