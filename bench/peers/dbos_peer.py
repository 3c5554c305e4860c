"""DBOS, on PostgreSQL or SQLite: a workflow without steps on a queue."""

from __future__ import annotations

import threading

from dbos import DBOS, DBOSClient, EnqueueOptions

import side

URL = side.URL.replace("postgresql://", "postgresql+psycopg://")
QUEUE = "bench"


@DBOS.workflow(name="noop")
def noop(text: str) -> None:
    side.ran(text)


def launched() -> None:
    DBOS(config={"name": "bench", "system_database_url": URL, "log_level": "WARNING"})
    DBOS.launch()
    DBOS.register_queue(QUEUE)


def setup() -> None:
    launched()
    DBOS.destroy()


def opened() -> None:
    global client
    client = DBOSClient(system_database_url=URL)


def one(text: str) -> None:
    options: EnqueueOptions = {"queue_name": QUEUE, "workflow_name": "noop"}
    client.enqueue(options, text)


def work() -> None:
    launched()
    threading.Event().wait()


PEER = side.Peer(packages=["dbos", "psycopg"], setup=setup, opened=opened, one=one, work=work)
