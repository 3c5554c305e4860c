"""Power losses on SQLite: what was answered is there afterwards."""

from __future__ import annotations

from random import Random

import pytest

from holdfast.chaos import power
from holdfast.chaos.blackouts import Blackouts
from holdfast.chaos.power import Disk

LOSSES = 20


async def test_every_answer_survives_a_power_loss(tmp_path):
    found = await Blackouts(tmp_path, Random(1)).run(LOSSES)

    assert found.broken == []
    assert found.losses == LOSSES and found.went_on == 1
    assert found.answers > 10 * LOSSES


async def test_a_disk_that_syncs_nothing_is_found_out(tmp_path, monkeypatch):
    """The same with syncs that do nothing, once the tables are there."""
    blackouts = Blackouts(tmp_path, Random(1))
    sync, count = Disk.sync, 0

    def lazy(disk: Disk, path: str) -> None:
        nonlocal count
        count += 1
        if count < 200:
            sync(disk, path)

    monkeypatch.setattr(power.Disk, "sync", lazy)
    found = await blackouts.run(LOSSES)

    assert len(found.broken) > 0  # answers that are not there, or a damaged file


def test_a_write_is_on_the_disk_after_its_sync(tmp_path):
    disk = Disk()
    disk.write("/a/f", b"old", 0)
    disk.sync("/a/f")
    disk.write("/a/f", b"new", 0)
    disk.write("/a/g", b"never synced", 0)

    class Never(Random):
        def randrange(self, *_: int) -> int:
            return 0

    disk.after_power_loss(tmp_path, Never())
    assert (tmp_path / "f").read_bytes() == b"old" and not (tmp_path / "g").exists()
    disk.sync("/a/f")
    disk.truncate("/a/f", 1)
    disk.sync("/a/f")
    disk.after_power_loss(tmp_path, Never())
    assert (tmp_path / "f").read_bytes() == b"n"


@pytest.mark.parametrize("choice", [1, 2])
def test_what_was_not_synced_may_be_there_whole_or_torn(tmp_path, choice):
    disk = Disk()
    disk.write("/a/f", bytes(4096), 0)
    disk.sync("/a/f")
    disk.write("/a/f", b"\x01" * 4096, 0)

    class Choice(Random):
        def randrange(self, *_: int) -> int:
            return choice

    disk.after_power_loss(tmp_path, Choice(3))
    count = (tmp_path / "f").read_bytes().count(1)
    assert count == 4096 if choice == 1 else 0 < count < 4096 and count % 512 == 0
