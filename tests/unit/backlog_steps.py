"""Steps for tests of a backlog.

Levels are written by their pass, as the requirements write them: 11 means level (11, 11).
"""

from random import Random

from holdfast.dispatch.backlog import Backlog
from holdfast.dispatch.passes import Passes
from holdfast.store import Level, Mark
from holdfast.testing.build import a_trigger, an_entry

FAR = Level(10**6, 0)


def new_backlog(*mark, **options):
    """A backlog whose column has no other partition."""
    return Backlog(*mark, passes=Passes(rng=Random(0)), **options)


def a_backlog(ack=10, batch_max=100, reload_at=None, highest=FAR):
    mark = Mark(Level(ack, ack))
    reload_at = min(10, batch_max - 1) if reload_at is None else reload_at
    return new_backlog(mark, highest=highest, batch_max=batch_max, reload_at=reload_at)


def entries(*passes):
    return [an_entry(pass_, pass_) for pass_ in passes]


def read(backlog, *passes):
    """Answer a read with these levels; fewer than it asks for is the end."""
    backlog.start_read()
    return backlog.read(entries(*passes))


def choose(backlog, *passes):
    """Choose a level for one trigger a pass; the seq equals the pass where order allows it."""
    seqs = iter(passes)
    triggers = [a_trigger(id=pass_) for pass_ in passes]
    return backlog.choose(triggers, lambda: next(seqs), pass_for=lambda trigger: trigger.id)


def write(backlog, *passes):
    choose(backlog, *passes)
    return backlog.appended()


def ack(backlog, *passes):
    for pass_ in passes:
        backlog.ack(Level(pass_, pass_))


def passes(found):
    return [entry.level.pass_ for entry in found]


def levels(backlog):
    return backlog.ack_level.pass_, backlog.read_level.pass_
