"""What people set while nodes run, and how nodes share it."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.errors import ConfigurationError
from holdfast.ids import NodeId
from holdfast.limit import Limit, Want
from holdfast.store import Grab, Store
from holdfast.task import Event
from holdfast.testing.contracts.builders import (
    NODE,
    OTHER,
    QUEUE,
    a_task,
    enqueued,
    eventually,
    grabbed,
    look,
    settle,
    trigger_of,
)

THIRD = NodeId("third")
PAYOUTS = Limit(name="payouts", queue=QUEUE, concurrency=10, kind="payout")
ALL = Want("payouts", "", used=0, wanted=100)


async def are_alive(store: Store, *nodes: NodeId) -> None:
    for node in nodes:
        await store.renew(node, lease_s=60.0, queues=[], kinds=[])


class RulebookContract:
    async def test_limits_and_weights_come_back_as_they_were_set(self, store: Store) -> None:
        before = await store.rules_version()
        mails = Limit(name="mails", queue=QUEUE, rate=2.5, key="*", burst=3.0, local=True)

        version = await store.change_rules(
            QUEUE, limits=[PAYOUTS, mails], weights={"acme": 5.0, "bolt": 0.5}, fairness="cost"
        )

        rules = await store.rules(QUEUE)
        assert version == rules.version == await store.rules_version() > before
        assert list(rules.limits) == [mails, PAYOUTS]
        assert dict(rules.weights) == {"acme": 5.0, "bolt": 0.5}
        assert rules.fairness == "cost"
        another = await store.rules("another")
        assert (list(another.limits), another.fairness) == ([], "count")

    async def test_what_is_set_again_is_replaced_and_what_is_dropped_is_gone(
        self, store: Store
    ) -> None:
        await store.change_rules(QUEUE, limits=[PAYOUTS], weights={"acme": 5.0, "bolt": 2.0})
        lower = Limit(name="payouts", queue=QUEUE, concurrency=3)

        await store.change_rules(QUEUE, limits=[lower], weights={"acme": None})
        changed = await store.rules(QUEUE)
        await store.change_rules(QUEUE, dropped=["payouts", "never set"])
        dropped = await store.rules(QUEUE)

        assert (list(changed.limits), dict(changed.weights)) == ([lower], {"bolt": 2.0})
        assert (list(dropped.limits), dict(dropped.weights)) == ([], {"bolt": 2.0})

    @pytest.mark.req("FAIR-60")
    async def test_a_queue_has_at_most_a_thousand_weights(self, store: Store) -> None:
        await store.change_rules(QUEUE, weights={f"key{n}": 2.0 for n in range(1_000)})

        with pytest.raises(ConfigurationError, match="at most 1000 weights"):
            await store.change_rules(QUEUE, weights={"one more": 2.0})

        await store.change_rules(QUEUE, weights={"key1": None, "one more": 2.0})
        assert len((await store.rules(QUEUE)).weights) == 1_000

    async def test_shares_never_add_up_to_more_than_the_limit(self, store: Store) -> None:
        await store.change_rules(QUEUE, limits=[PAYOUTS])
        await are_alive(store, NODE, OTHER)

        (first,) = await store.allot(QUEUE, [ALL], node=NODE)
        (second,) = await store.allot(QUEUE, [ALL], node=OTHER)
        (busy,) = await store.allot(QUEUE, [ALL._replace(used=10)], node=NODE)
        (fewer,) = await store.allot(QUEUE, [ALL._replace(used=4)], node=NODE)
        (after,) = await store.allot(QUEUE, [ALL], node=OTHER)

        assert (first.held, second.held) == (10, 0), "nobody else wanted any"
        assert (busy.held, busy.target) == (10, 5), "what is used is kept, what is new waits"
        assert (fewer.held, after.held) == (5, 5)

    async def test_what_is_not_wanted_goes_to_whoever_wants_it(self, store: Store) -> None:
        await store.change_rules(QUEUE, limits=[PAYOUTS])
        await are_alive(store, NODE, OTHER)
        await store.allot(QUEUE, [ALL._replace(wanted=3)], node=NODE)

        (second,) = await store.allot(QUEUE, [ALL], node=OTHER)
        (nothing,) = await store.allot(QUEUE, [ALL._replace(wanted=0)], node=NODE)
        (third,) = await store.allot(QUEUE, [ALL], node=OTHER)

        assert (second.held, nothing.held, third.held) == (7, 0, 10)

    async def test_a_limit_of_one_goes_round(self, store: Store) -> None:
        await store.change_rules(QUEUE, limits=[Limit(name="payouts", queue=QUEUE, concurrency=1)])
        nodes = [NODE, OTHER, THIRD]
        await are_alive(store, *nodes)
        seen: set[NodeId] = set()

        async def all_had_it() -> bool:
            held = [(await store.allot(QUEUE, [ALL], node=node))[0].held for node in nodes]
            seen.update(node for node, has in zip(nodes, held, strict=True) if has)
            return len(seen) == 3

        await eventually(all_had_it)

    async def test_keys_are_counted_apart(self, store: Store) -> None:
        limit = Limit(name="partner", queue=QUEUE, concurrency=3, key="*")
        await store.change_rules(QUEUE, limits=[limit])
        wants = [Want("partner", key, used=0, wanted=9) for key in ("acme", "bolt")]

        shares = await store.allot(QUEUE, wants, node=NODE)

        assert [share.held for share in shares] == [3, 3]
        assert len({share.number for share in shares}) == 2

    async def test_a_limit_that_does_not_exist_gives_nothing(self, store: Store) -> None:
        (share,) = await store.allot(QUEUE, [ALL], node=NODE)

        assert (share.held, share.target) == (0, 0)

    async def test_a_rate_gives_a_burst_and_then_what_time_brings(self, store: Store) -> None:
        limit = Limit(name="payouts", queue=QUEUE, rate=20.0)
        await store.change_rules(QUEUE, limits=[limit])

        (burst,) = await store.allot(QUEUE, [ALL], node=NODE)
        (none,) = await store.allot(QUEUE, [ALL], node=OTHER)
        assert burst.held == 20 and none.held <= 2 and 0 <= none.wait_s <= 0.05
        returned = ALL._replace(used=5, wanted=5)
        (again,) = await store.allot(QUEUE, [returned], node=NODE)

        assert again.held == 5, "what was left over may be used after all"

    async def test_a_rate_of_zero_pauses(self, store: Store) -> None:
        await store.change_rules(QUEUE, limits=[Limit(name="payouts", queue=QUEUE, rate=0.0)])

        (share,) = await store.allot(QUEUE, [ALL], node=NODE)

        assert share.held == 0

    async def test_the_share_of_a_dead_node_comes_back_with_its_tasks_and_not_before(
        self, store: Store
    ) -> None:
        await store.change_rules(QUEUE, limits=[PAYOUTS])
        await store.allot(QUEUE, [ALL], node=OTHER)
        await grabbed(store, *[a_task(kind="payout") for _ in range(3)], node=OTHER)

        await store.resume_lost([OTHER], deliveries_max=9, limit=2)
        (before,) = await store.allot(QUEUE, [ALL], node=NODE)
        await store.resume_lost([OTHER], deliveries_max=9, limit=2)
        (after,) = await store.allot(QUEUE, [ALL], node=NODE)

        assert (before.held, after.held) == (0, 10)

    async def test_a_node_that_was_taken_for_dead_grabs_nothing_under_its_old_share(
        self, store: Store
    ) -> None:
        await store.change_rules(QUEUE, limits=[PAYOUTS])
        (share,) = await store.allot(QUEUE, [ALL], node=OTHER)
        (running,) = await grabbed(store, a_task(kind="payout"), node=OTHER)
        (id,) = await enqueued(store, a_task(kind="payout"))
        trigger = await trigger_of(store, id)
        options: dict[str, Any] = {"deadlines_s": {}, "epochs": {}}

        await store.resume_lost([OTHER], deliveries_max=9, limit=0)
        refused = await store.grab([trigger], node=OTHER, shares=[share.number], **options)
        (new,) = await store.allot(QUEUE, [ALL], node=OTHER)
        won = await store.grab([trigger], node=OTHER, shares=[new.number], **options)

        assert refused == Grab([], undecided=[id])
        assert new.number != share.number and [task.id for task in won.tasks] == [id]
        assert running.id != id

    @pytest.mark.req("TASK-93")
    async def test_a_repeated_grab_returns_what_it_took_though_its_share_is_gone(
        self, store: Store
    ) -> None:
        await store.change_rules(QUEUE, limits=[PAYOUTS])
        (share,) = await store.allot(QUEUE, [ALL], node=OTHER)
        ids = await enqueued(store, a_task(kind="payout"), a_task(kind="payout"))
        triggers = [await trigger_of(store, id) for id in ids]
        options: dict[str, Any] = {"deadlines_s": {}, "epochs": {}, "shares": [share.number]}
        first = await store.grab(triggers[:1], node=OTHER, **options)
        await store.resume_lost([OTHER], deliveries_max=9, limit=0)  # only its share has ended yet

        again = await store.grab(triggers, node=OTHER, **options, repeat=True)

        assert again == Grab(first.tasks, undecided=ids[1:])
        assert (await look(store, ids[0])).deliveries == 1

    async def test_what_a_node_without_a_lease_holds_goes_to_whoever_lacks_it(
        self, store: Store
    ) -> None:
        """As when its last question was answered after it had left."""
        await store.change_rules(QUEUE, limits=[PAYOUTS])
        await are_alive(store, NODE)
        await store.allot(QUEUE, [ALL], node=OTHER)

        shares = [(await store.allot(QUEUE, [ALL], node=NODE))[0] for _ in range(2)]

        assert [share.held for share in shares] == [0, 10]

    async def test_a_node_whose_share_was_given_away_holds_only_what_runs_in_its_name(
        self, store: Store
    ) -> None:
        """It counts attempts that were superseded, and must not start others in their place."""
        await store.change_rules(QUEUE, limits=[PAYOUTS])
        await are_alive(store, NODE, OTHER)
        await store.allot(QUEUE, [ALL], node=OTHER)
        await store.leave([OTHER])
        await store.allot(QUEUE, [ALL], node=NODE)
        await are_alive(store, OTHER)

        await grabbed(store, *[a_task(kind="payout") for _ in range(2)], node=OTHER)

        shares = [await store.allot(QUEUE, [ALL._replace(used=3)], node=OTHER) for _ in range(2)]

        assert [share.held for (share,) in shares] == [2, 2]

    async def test_a_node_that_leaves_gives_its_shares_back(self, store: Store) -> None:
        await store.change_rules(QUEUE, limits=[PAYOUTS])
        await store.allot(QUEUE, [ALL], node=OTHER)
        (task,) = await grabbed(store, a_task(kind="payout"))

        await store.leave([OTHER])
        (share,) = await store.allot(QUEUE, [ALL], node=NODE)

        assert share.held == 10
        assert await settle(store, task, Event.SUCCEEDED)
