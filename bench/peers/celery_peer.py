"""Celery on Redis, prefork, late acknowledgement: a task that was begun is not lost."""

from __future__ import annotations

from celery import Celery

import side

app = Celery("celery_peer", broker=side.URL)
app.conf.update(
    task_acks_late=True, task_ignore_result=True, broker_connection_retry_on_startup=True
)


@app.task(name="noop")
def noop(text: str) -> None:
    side.ran(text)


def setup() -> None:
    """A broker needs nothing."""


def one(text: str) -> None:
    noop.delay(text)


def work() -> None:
    side.become("celery", "-A", "celery_peer", "worker", "--loglevel", "WARNING")


PEER = side.Peer(packages=["celery", "redis"], setup=setup, one=one, work=work)
