"""Django's tasks on Holdfast: enqueued in its transactions, run by its functions, asked by id."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import connections, transaction
from django.test import override_settings
from django.utils import timezone

from holdfast import Retry, State
from holdfast.integrations.background import BackgroundNode
from holdfast.integrations.django import HoldfastBackend
from holdfast.integrations.django.calls import our_priority
from holdfast.integrations.django.flavour import InvalidTask, api, base, exceptions, signals
from holdfast.integrations.django.results import exception_path
from holdfast.store import Filter
from holdfast.testing.processes import until
from integrations.django_rig import shop, tasks

__all__ = ["shop"]

DONE = (base.TaskResultStatus.SUCCESSFUL, base.TaskResultStatus.FAILED)


@contextmanager
def working(backend: HoldfastBackend | None = None) -> Iterator[None]:
    """A worker of the backend, in this process."""
    node = BackgroundNode((backend or api.task_backends["default"]).holdfast)
    node.start()
    try:
        yield
    finally:
        node.stop()


def finished(result: Any, of: Callable[[Any], bool] = lambda one: one.status in DONE) -> Any:
    def is_so() -> bool:
        result.refresh()
        return of(result)

    until(is_so, 20, lambda: f"{result}")
    return result


def stored(**wanted: Any) -> list[Any]:
    app = api.task_backends["default"].holdfast

    async def find() -> list[Any]:
        return await (await app.store()).find(Filter(**wanted))

    return app.call(find())


# ── running ───────────────────────────────────────────────────────────────────────────────────


def test_a_function_runs_in_a_thread_and_its_result_is_found_by_id(shop):
    before = timezone.now()
    with working():
        result = shop.add.enqueue(1, two=2)
        assert result.status == "READY" and not result.is_finished
        again = shop.add.get_result(result.id)
        finished(again)

    assert again.status == "SUCCESSFUL" and again.return_value == 3
    assert (again.args, again.kwargs, again.backend) == ([1], {"two": 2}, "default")
    assert again.attempts == 1 and again.worker_ids != ["unknown"] and again.errors == []
    assert again.task.func is shop.add.func and again.task.queue_name == "default"
    late = timezone.now() + timedelta(seconds=1)
    times = [again.enqueued_at, again.started_at, again.finished_at]
    assert before - timedelta(seconds=1) <= times[0] <= times[1] <= times[2] <= late
    assert again.last_attempted_at == again.started_at
    assert shop.seen[0][1].startswith("holdfast-handler")


def test_a_coroutine_function_runs_on_the_loop(shop):
    with working():
        result = finished(shop.greet.enqueue("ada"))

    assert result.return_value == {"hello": "ada", "bytes": "ok"}


async def test_async_code_enqueues_and_asks_as_well(shop):
    async with ThreadSensitiveContext():  # as a request has
        result = await shop.add.aenqueue(1)
        assert (await shop.add.aget_result(result.id)).status == "READY"
        with pytest.raises(exceptions.TaskResultMismatch):
            await shop.greet.aget_result(result.id)
        await asyncio.to_thread(run_once)
        await result.arefresh()
        await sync_to_async(connections.close_all)()

    assert result.return_value == 2


def run_once() -> None:
    """A worker that ends when nothing is left."""
    app = api.task_backends["default"].holdfast

    async def drained() -> None:
        async with app.node() as node:
            await node.drained(20)

    app.call(drained())


def test_a_task_may_use_the_database_and_leaves_no_connection_behind(shop):
    with working():
        with transaction.atomic(), connections["default"].cursor() as cursor:
            cursor.execute("INSERT INTO orders VALUES ('ada'), ('bob')")
            sync, asynchronous = shop.look.enqueue(), shop.look_async.enqueue()
        assert finished(sync).return_value == ["ada", "bob"]
        assert finished(asynchronous).return_value == 2


def test_a_task_that_takes_context_is_told_of_its_attempt(shop):
    with working():
        result = finished(shop.count.using(queue_name="mail", priority=40).enqueue(7))
        other = finished(shop.count_async.enqueue(step=1))

    assert result.return_value == {
        "attempt": 1,
        "id": result.id,
        "status": "RUNNING",
        "args": [7],
        "queue": "mail",
        "priority": 40,
    }
    assert (result.task.queue_name, result.task.priority) == ("mail", 40)
    assert other.return_value == 2


def test_signals_tell_of_the_enqueue_the_start_and_the_end(shop):
    told: list[tuple[str, Any]] = []

    def hear(name: str) -> Callable[..., None]:
        def receive(sender: Any, task_result: Any, **kwargs: Any) -> None:
            assert sender is HoldfastBackend
            told.append((name, task_result.id, task_result.status.value))

        return receive

    names = ("task_enqueued", "task_started", "task_finished")
    receivers = {name: hear(name) for name in names}
    for name, receiver in receivers.items():
        getattr(signals, name).connect(receiver)
    try:
        with working():
            one, two, three = shop.add.enqueue(1), shop.greet.enqueue("ada"), shop.broken.enqueue()
            for result in (one, two, three):
                finished(result)
    finally:
        for name, receiver in receivers.items():
            getattr(signals, name).disconnect(receiver)

    for result, end in ((one, "SUCCESSFUL"), (two, "SUCCESSFUL"), (three, "FAILED")):
        mine = [(name, status) for name, id, status in told if id == result.id]
        # The caller and the node are two: a quick start is told before the caller comes to it.
        mine.remove(("task_enqueued", "READY"))
        assert mine == [("task_started", "RUNNING"), ("task_finished", end)]


# ── transactions ──────────────────────────────────────────────────────────────────────────────


def test_a_task_commits_or_vanishes_with_the_block_that_it_was_enqueued_in(shop):
    with pytest.raises(LookupError), transaction.atomic():
        gone = shop.add.enqueue(1)
        raise LookupError
    with transaction.atomic():
        kept = shop.add.enqueue(2)
        with pytest.raises(LookupError), transaction.atomic():
            shop.add.enqueue(3)
            raise LookupError
        with pytest.raises(exceptions.TaskResultDoesNotExist):
            shop.add.get_result(kept.id)  # nobody else sees it yet

    (task,) = stored()
    assert str(task.id) == kept.id
    if gone.id != kept.id:  # SQLite gives the id of a task that never was to the next
        with pytest.raises(exceptions.TaskResultDoesNotExist):
            shop.add.get_result(gone.id)


def test_outside_of_a_block_the_task_is_a_transaction_of_its_own(shop):
    result = shop.add.enqueue(1)

    assert [str(task.id) for task in stored()] == [result.id]


def test_the_trigger_leaves_at_the_commit(shop):
    with working():
        began = timezone.now()
        with transaction.atomic():
            result = shop.add.enqueue(1)
        finished(result)

    assert timezone.now() - began < timedelta(seconds=4)  # a poll would take five


def test_a_backend_with_an_address_alone_never_joins_a_transaction(store_url, shop):
    with tasks(url=store_url), pytest.raises(LookupError), transaction.atomic():
        shop.add.enqueue(1)
        raise LookupError

    assert len(stored()) == 1


# ── options of a task ─────────────────────────────────────────────────────────────────────────


def test_run_after_is_the_due_time(shop):
    later = timezone.now() + timedelta(hours=1)
    result = shop.add.using(run_after=later).enqueue(1)

    (task,) = stored(states=[State.WAITING])
    assert abs(task.due_at - later) < timedelta(milliseconds=1)
    result.refresh()
    assert result.status == "READY"
    with override_settings(USE_TZ=False):
        naive = datetime.now() + timedelta(hours=1)
        shop.add.using(run_after=naive).enqueue(1)
        (other,) = stored(states=[State.WAITING], after=task.id)
        assert abs(other.due_at - timezone.make_aware(naive)) < timedelta(milliseconds=1)
        assert shop.add.get_result(str(other.id)).enqueued_at.tzinfo is None


def test_a_higher_number_of_theirs_goes_first_with_us():
    ours = [our_priority(theirs) for theirs in range(-100, 101)]

    assert all(one >= two for one, two in pairwise(ours))
    assert set(ours) == set(range(10))
    found = [our_priority(theirs) for theirs in (-100, -26, -25, -1, 0, 1, 20, 21, 100)]
    assert found == [9, 7, 6, 6, 5, 4, 4, 3, 0]


def test_priority_and_queue_reach_the_store(shop):
    shop.add.using(priority=100, queue_name="mail").enqueue(1)
    shop.greet.using(priority=-100).enqueue("ada")

    one, two = stored()
    assert (one.kind, one.queue, one.priority) == ("django.mail", "mail", 0)
    assert (two.kind, two.queue, two.priority) == ("django.default.async", "default", 9)


# ── failures ──────────────────────────────────────────────────────────────────────────────────


def test_a_task_that_raises_has_failed_with_its_class_and_its_traceback(shop):
    with working():
        result = finished(shop.broken.enqueue())
        other = finished(shop.give_up.enqueue())

    (error,) = result.errors
    assert error.exception_class is shop.Broken
    assert "in broken\n" in error.traceback and error.traceback.endswith("Broken: as ever")
    with pytest.raises(ValueError, match="failed"):
        result.return_value  # noqa: B018
    assert other.errors[0].exception_class_path == "holdfast.outcomes.GiveUp"


def test_a_policy_of_the_backend_repeats_a_failed_task(shop):
    with tasks(retry=Retry(attempts=3, delay=0.01)) as backend, working(backend):
        result = finished(shop.flaky.enqueue(2))
        failed = finished(shop.broken.enqueue())

    assert result.return_value == "at last" and result.attempts == 3
    assert failed.status == "FAILED" and failed.attempts == 3


def test_a_result_that_is_no_json_is_a_failure(shop):
    with working():
        result = finished(shop.strange.enqueue())

    assert result.errors[0].exception_class is TypeError


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("ValueError: no", "builtins.ValueError"),
        ("KeyboardInterrupt", "builtins.KeyboardInterrupt"),
        ('Traceback…\n  File "a", line 1, in f\n    x\na.b.Error: one\ntwo: three', "a.b.Error"),
        (
            '  File "a"\n    x\nKeyError: 1\n\nDuring…\n\n  File "b"\n    ^\nOSError',
            "builtins.OSError",
        ),
        ("no node that serves queue 'a' has a handler", "holdfast.errors.TaskNotDone"),
        ("parked: by hand", "holdfast.errors.TaskNotDone"),
        ("", "holdfast.errors.TaskNotDone"),
    ],
)
def test_the_class_of_an_error_is_read_from_its_text(text, path):
    assert exception_path(text) == path


def test_the_class_of_a_group_is_read_from_its_text():
    from holdfast.worker.verdict import error_text

    try:
        raise ExceptionGroup("two", [ValueError(1), KeyError(2)])
    except ExceptionGroup as error:
        assert exception_path(error_text(error)) == "builtins.ExceptionGroup"


@pytest.mark.parametrize("id", ["1", "0", "-1", "x", "", "9" * 18, "9" * 30, "1.5"])
def test_an_id_of_no_task_has_no_result(shop, id):
    with pytest.raises(exceptions.TaskResultDoesNotExist):
        api.task_backends["default"].get_result(id)


# ── what may run ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("os.system", "is no Task"),
        ("builtins.print", "is no Task"),
        ("integrations.shop_tasks.helper", "is no Task"),
        ("integrations.shop_tasks.add.func", "is in no installed app"),
        ("antigravity.webbrowser", "is in no installed app"),
        ("django.contrib.nowhere.task", "is in no installed app"),
        ("nothing", "is in no installed app"),
    ],
)
def test_only_tasks_run_whatever_path_is_in_the_store(shop, path, reason):
    definition = api.task_backends["default"]._program.definition(shop.add)
    before = set(sys.modules)
    handle = definition.enqueue_sync(path, ["x"], {}, 0)
    with working():
        until(lambda: handle.state_sync() is State.ERROR, 20, lambda: path)

    error = stored()[0].error
    assert reason in error and "ParkInError" in error
    assert "antigravity" not in set(sys.modules) - before
    assert shop.seen == []


def test_a_task_of_an_installed_app_is_imported_when_it_is_needed(shop, tmp_path, monkeypatch):
    package = tmp_path / "later_app"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "tasks.py").write_text(
        "from holdfast.integrations.django.flavour import api\n"
        "@api.task\n"
        "def late():\n"
        "    return 42\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with override_settings(INSTALLED_APPS=["later_app"]), working():
        definition = api.task_backends["default"]._program.definition(shop.add)
        handle = definition.enqueue_sync("later_app.tasks.late", [], {}, 0)
        until(lambda: handle.state_sync() is State.DONE, 20, lambda: str(stored()))
        wrong = definition.enqueue_sync("later_app.missing.late", [], {}, 0)
        until(lambda: wrong.state_sync() is State.ERROR, 20, lambda: str(stored()))
        assert api.task_backends["default"].get_result(str(handle.id)).return_value == 42

    assert "cannot be imported" in stored(states=[State.ERROR])[0].error


def test_what_a_worker_would_not_find_is_refused_at_once(shop):
    with pytest.raises(InvalidTask, match="is no Task"):
        shop.renamed.enqueue()
    with pytest.raises(TypeError, match="missing a required argument"):
        shop.add.enqueue()
    with pytest.raises(TypeError, match="Unsupported type"):
        shop.add.enqueue(object())
    with pytest.raises(InvalidTask, match="Queue 'other' is not valid"):
        shop.add.using(queue_name="other")

    assert stored() == []
