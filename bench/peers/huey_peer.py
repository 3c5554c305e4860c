"""huey on an SQLite file, that syncs."""

from __future__ import annotations

from huey import SqliteHuey

import side

huey = SqliteHuey("bench", filename=side.URL.removeprefix("sqlite:///"), results=False, fsync=True)


@huey.task()
def noop(text: str) -> None:
    side.ran(text)


def setup() -> None:
    """The file is made when it is opened."""


def one(text: str) -> None:
    noop(text)


def work() -> None:
    side.become("huey_consumer", "huey_peer.huey", "--workers", "4", "--quiet")


PEER = side.Peer(packages=["huey"], setup=setup, one=one, work=work)
