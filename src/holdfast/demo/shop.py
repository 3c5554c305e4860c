"""A small order service: its own tables and its tasks, in one SQLite file.

A customer fills a cart.  Checking out writes the order and its three tasks in one transaction of
the shop's own connection: either all of it exists, or nothing does.
"""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

from holdfast.app import Holdfast
from holdfast.policy import Retry
from holdfast.tasks import TaskDefinition
from holdfast.worker.context import current_task

PACK_S = 1.0  # long enough to be killed in the middle of it
RECEIPT_DELAY_S = 3.0
EXPRESS, STANDARD = 1, 5

_NOW_MS = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"
_TABLES = f"""
CREATE TABLE cart (number INTEGER PRIMARY KEY);
CREATE TABLE purchase (
    number INTEGER PRIMARY KEY, priority INTEGER NOT NULL, waited_for_node INTEGER NOT NULL,
    placed_ms INTEGER NOT NULL DEFAULT ({_NOW_MS})
);
CREATE TABLE charge (place INTEGER PRIMARY KEY AUTOINCREMENT, number INTEGER NOT NULL);
CREATE TABLE receipt (
    number INTEGER NOT NULL, sent_ms INTEGER NOT NULL DEFAULT ({_NOW_MS})
);
"""


class CardNetworkDown(Exception):
    """What the demo's bank says now and then."""


class Shop:
    """The app with its three tasks."""

    def __init__(self, app: Holdfast) -> None:
        self.app = app
        self.charge_card: TaskDefinition[..., None] = app.task(
            transactional=True, retry=Retry(attempts=5, delay=0.5), queue="shop"
        )(charge_card)
        self.pack_parcel: TaskDefinition[..., str] = app.task(queue="shop")(pack_parcel)
        self.send_receipt: TaskDefinition[..., None] = app.task(transactional=True, queue="shop")(
            send_receipt
        )

    async def check_out(
        self, db: sqlite3.Connection, number: int, *, priority: int, early: bool, commits: bool
    ) -> None:
        """One order with its tasks, in one transaction of the shop; it may also be rolled back."""
        db.execute("INSERT INTO cart (number) VALUES (?)", (number,))
        db.execute("BEGIN IMMEDIATE")
        try:
            db.execute(
                "INSERT INTO purchase (number, priority, waited_for_node) VALUES (?, ?, ?)",
                (number, priority, early),
            )
            options: dict[str, Any] = {"within": db, "priority": priority}
            await self.charge_card.options(**options).enqueue(number)
            await self.pack_parcel.options(**options).enqueue(number)
            await self.send_receipt.options(**options, delay=RECEIPT_DELAY_S).enqueue(number)
        except BaseException:
            db.execute("ROLLBACK")
            raise
        db.execute("COMMIT" if commits else "ROLLBACK")


async def charge_card(db: sqlite3.Connection, number: int) -> None:
    """The charge and the task's outcome commit together: exactly once, whatever happens."""
    priority = db.execute("SELECT priority FROM purchase WHERE number = ?", (number,)).fetchone()
    if number % 6 == 0 and priority == (STANDARD,) and current_task().attempt == 1:
        raise CardNetworkDown("the card network does not answer")
    db.execute("INSERT INTO charge (number) VALUES (?)", (number,))


async def pack_parcel(number: int) -> str:
    """Somebody else's service, which takes its time; run again when the node dies meanwhile."""
    await asyncio.sleep(PACK_S)
    return f"parcel-{number}"


async def send_receipt(db: sqlite3.Connection, number: int) -> None:
    db.execute("INSERT INTO receipt (number) VALUES (?)", (number,))


def opened(path: Path) -> sqlite3.Connection:
    """The shop's own connection, with its tables."""
    db = sqlite3.connect(path, isolation_level=None, timeout=10)
    db.execute("PRAGMA journal_mode = WAL")
    db.executescript(_TABLES)
    return db
