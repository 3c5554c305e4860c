"""Log lines: what happened, for people and for machines."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from holdfast.telemetry import events
from holdfast.telemetry.events import AttemptFailed, BugFound, Events, NodeStarted, TaskSettled
from holdfast.telemetry.logs import LEVELS, HumanFormatter, JsonFormatter, log_events

FAILED = AttemptFailed(7, "mail", 2, 'Traceback …\n  File "a.py"\nValueError: no such box')


class Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@pytest.fixture
def heard() -> Iterator[Heard]:
    logger = logging.getLogger("holdfast")
    handler, level = Heard(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.removeHandler(handler)
    logger.setLevel(level)


def logged(heard: Heard, event: object) -> logging.LogRecord:
    stream = Events()
    stop = log_events(stream)
    stream.emit(event)
    stop()
    (record,) = heard.records
    return record


def test_a_handler_that_raises_is_a_warning_with_its_last_line(heard: Heard):
    record = logged(heard, FAILED)

    assert record.levelno == logging.WARNING
    assert record.getMessage() == "task 7 failed: mail, attempt 2: ValueError: no such box"


def test_the_facts_of_an_event_travel_as_extra_fields(heard: Heard):
    record = logged(heard, TaskSettled(7, 3, "mail", "SUCCEEDED", 0.25, "post"))

    fields = vars(record)
    assert (fields["task"], fields["kind"], fields["outcome"]) == (7, "mail", "SUCCEEDED")
    assert (fields["version"], fields["ran_s"]) == (3, 0.25)


def test_a_mistake_of_our_own_is_an_error(heard: Heard):
    assert logged(heard, BugFound("a hole")).levelno == logging.ERROR


def test_nothing_is_logged_after_the_listener_was_removed(heard: Heard):
    stream = Events()
    log_events(stream)()
    stream.emit(FAILED)

    assert heard.records == []
    assert not stream.wanted


def test_a_line_for_machines_is_one_json_object(heard: Heard):
    line = JsonFormatter().format(logged(heard, NodeStarted("n1", ("mail", "shop"))))

    found = json.loads(line)
    assert "\n" not in line
    assert found["at"].endswith("+00:00")
    assert {name: value for name, value in found.items() if name != "at"} == {
        "level": "INFO",
        "logger": "holdfast",
        "text": "node n1 serves mail, shop",
        "happened": "NodeStarted",
        "node": "n1",
        "queues": ["mail", "shop"],
    }


def test_a_line_for_people_has_colour_only_when_asked_for(heard: Heard):
    record = logged(heard, FAILED)

    assert HumanFormatter(colour=False).format(record)[8:] == (
        " warning: task 7 failed: mail, attempt 2: ValueError: no such box"
    )
    assert HumanFormatter(colour=True).format(record).startswith("\x1b[33m")


def test_a_program_that_sets_up_no_logging_sees_no_line(capsys: pytest.CaptureFixture[str]):
    stream = Events()
    stop = log_events(stream, logging.getLogger("holdfast.alone"))
    stream.emit(FAILED)
    stop()

    assert capsys.readouterr() == ("", "")
    assert any(
        isinstance(one, logging.NullHandler) for one in logging.getLogger("holdfast").handlers
    )


def test_every_event_has_a_line_or_is_left_out_on_purpose():
    known = {
        found
        for found in vars(events).values()
        if isinstance(found, type) and hasattr(found, "__dataclass_fields__")
    }
    # One for each enqueue, beat or second is a matter for metrics; a survey is a value.
    counted_only = {"TriggersPublished", "LeaseRenewed", "LagMeasured", "QueueSurvey"}

    assert {found.__name__ for found in known - LEVELS.keys()} <= counted_only
