"""What a step of a random history may be about: the values to choose from."""

from __future__ import annotations

from hypothesis import strategies as st

from contracts.sides import NODES
from holdfast.limit import Limit
from holdfast.task import Event, Key
from holdfast.testing.contracts.builders import QUEUE, a_task

SETTLED = [
    Event.SUCCEEDED,
    Event.RETRIED,
    Event.REPEATED,
    Event.PARKED,
    Event.GIVEN_UP,
    Event.CANCELLED,
]
# The last two are moves of a task, but nobody may wish for them.
WISHES = [
    Event.RESUMED,
    Event.RESCHEDULED,
    Event.CANCELLED,
    Event.GIVEN_UP,
    Event.GRABBED,
    Event.SUCCEEDED,
]

MINUTES = st.integers(1, 10)
MOSTLY = st.sampled_from([True, True, True, True, False])
SELDOM = st.sampled_from([False, False, False, False, True])
# By how much a version or an epoch is wrong.
OFF = st.sampled_from([0, 0, 0, 0, 0, 1, -1])
DELAY_S = st.sampled_from([0.0, 0.0, 60.0, 180.0])
ERROR = st.sampled_from([None, "why", "why else"])
NODE = st.sampled_from(NODES)
SKIPPED = st.sampled_from([(), ("sms",), ("email", "sms")])
KEYS = st.builds(
    Key, st.just("s"), st.sampled_from("xyz"), st.sampled_from([None, None, 120.0, 600.0])
)
NEW_TASK = st.builds(
    a_task,
    partition=st.integers(0, 2),
    kind=st.sampled_from(["email", "email", "sms"]),
    priority=st.sampled_from([5, 5, 0, 12]),
    delay_s=DELAY_S,
    fairness_key=st.sampled_from([None, "t", "u"]),
    weight=st.sampled_from([1.0, 2.5]),
    ordering_key=st.sampled_from([None, None, "k", "l"]),
    metadata=st.sampled_from([None, b"{}"]),
    key=st.none() | KEYS,
)
NEW_TASKS = st.lists(NEW_TASK, min_size=1, max_size=4) | st.lists(NEW_TASK, min_size=8, max_size=10)
LIMITS = st.sampled_from(
    [
        Limit(name="l", queue=QUEUE, concurrency=0),
        Limit(name="l", queue=QUEUE, concurrency=3),
        Limit(name="l", queue=QUEUE, concurrency=2, kind="email"),
        Limit(name="m", queue=QUEUE, concurrency=2, key="*"),
        Limit(name="m", queue=QUEUE, concurrency=1, key="t"),
        Limit(name="r", queue=QUEUE, rate=0.05, burst=100),
    ]
)
