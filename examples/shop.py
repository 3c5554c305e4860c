"""A small shop on one SQLite file: `python examples/shop.py`.

An order and its tasks are written in one transaction.  The payment is retried until the bank
answers, and marks the order as paid exactly once.  The receipt is added by the payment.  Messages
to one customer keep their order.  Stop it whenever you like, also with kill -9, and start it again.
"""

from __future__ import annotations

import asyncio
import sqlite3
from typing import Any

from holdfast import FixedSlots, Holdfast, PerKind, Retry, current_task

FILE = "shop.db"
CUSTOMERS = ("ada", "grace", "edsger")
app = Holdfast(f"sqlite:///{FILE}")


@app.task(queue="bank", transactional=True, retry=Retry(attempts=10, delay=0.1, factor=1.5))
async def pay(tx: sqlite3.Connection, order: int, customer: str) -> None:
    """Marks the order and adds the receipt in the transaction that settles this task."""
    if current_task().attempt == 1 and order % 3 == 0:
        raise ConnectionError("the bank does not answer")
    tx.execute("UPDATE orders SET payments = payments + 1 WHERE id = ?", [order])
    receipt = message.options(within=tx, ordering_key=customer)
    await receipt.enqueue(customer, f"order {order} is paid")


@app.task(queue="mail")
async def message(customer: str, text: str) -> None:
    await asyncio.sleep(0.01)  # talk to a mail server
    print(f"{customer}: {text}")


def place_order(db: sqlite3.Connection, order: int, customer: str) -> None:
    """The order, the payment and the first message commit together, or none of them exists."""
    with db:
        db.execute("BEGIN IMMEDIATE")
        if db.execute("SELECT 1 FROM orders WHERE id = ?", [order]).fetchone():
            return  # this program was started before
        db.execute("INSERT INTO orders (id, payments) VALUES (?, 0)", [order])
        hello = message.options(within=db, ordering_key=customer)
        hello.enqueue_sync(customer, f"thank you for order {order}")
        pay.options(within=db, priority=1).enqueue_sync(order, customer)


def totals(db: sqlite3.Connection) -> tuple[Any, ...]:
    (row,) = db.execute("SELECT count(*), sum(payments), max(payments) FROM orders").fetchall()
    return tuple(row)


async def main() -> None:
    db = sqlite3.connect(FILE)
    db.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, payments INTEGER)")
    async with app:
        for order in range(1, 13):
            place_order(db, order, CUSTOMERS[order % len(CUSTOMERS)])
        booking = PerKind({"pay": FixedSlots(4)})  # what the bank allows
        async with app.node(booking=booking) as node:
            await node.drained()
    print("{} orders, {} payments, at most {} for one order".format(*totals(db)))
    db.close()


if __name__ == "__main__":
    asyncio.run(main())
