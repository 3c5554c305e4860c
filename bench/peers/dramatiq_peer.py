"""Dramatiq on Redis."""

from __future__ import annotations

import dramatiq
from dramatiq.brokers.redis import RedisBroker

import side

broker = RedisBroker(url=side.URL)
dramatiq.set_broker(broker)


@dramatiq.actor
def noop(text: str) -> None:
    side.ran(text)


def setup() -> None:
    """A broker needs nothing."""


def one(text: str) -> None:
    noop.send(text)


def work() -> None:
    side.become("dramatiq", "dramatiq_peer")


PEER = side.Peer(packages=["dramatiq", "redis"], setup=setup, one=one, work=work)
