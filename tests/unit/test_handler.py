"""The registry: one handler a kind, and answers that help."""

from __future__ import annotations

import pytest

from holdfast import Holdfast
from holdfast.errors import ConfigurationError, UnknownKind, UnknownQueue


@pytest.fixture
def app() -> Holdfast:
    app = Holdfast("sqlite:///never-opened.db")

    @app.task(queue="mails")
    async def send_email(to: str) -> None: ...

    @app.task
    def resize(width: int) -> None: ...

    return app


@pytest.mark.req("TASK-65")
def test_two_handlers_for_one_kind_name_both_places(app):
    with pytest.raises(ConfigurationError) as refused:

        @app.task(name="send_email")
        async def another() -> None: ...

    assert "send_email" in str(refused.value) and "another" in str(refused.value)


def test_an_unknown_name_is_answered_with_the_nearest_one(app):
    with pytest.raises(UnknownKind, match="did you mean 'send_email'"):
        app.registry.require("send_emial")
    with pytest.raises(UnknownQueue, match="did you mean 'mails'"):
        app.registry.require_queue("mail")


def test_the_registry_knows_its_queues_and_their_kinds(app):
    assert app.registry.queues == ["default", "mails"]
    assert app.registry.kinds(["mails"]) == ["send_email"]
    assert [handler.mode for handler in app.registry] == ["async", "thread"]


def test_a_definition_is_still_the_function_that_it_was(app):
    @app.task
    def add(one: int, two: int = 2) -> int:
        """Adds."""
        return one + two

    assert add(1) == 3
    assert (add.__name__, add.__doc__) == ("add", "Adds.")


@pytest.mark.parametrize(
    ("options", "is_async"),
    [({"mode": "thread"}, True), ({"mode": "async"}, False), ({"transactional": True}, False)],
    ids=str,
)
def test_a_mode_that_does_not_fit_the_function_is_refused(app, options, is_async):
    async def on_the_loop() -> None: ...

    def plain() -> None: ...

    with pytest.raises(ConfigurationError):
        app.task(name="odd", **options)(on_the_loop if is_async else plain)


@pytest.mark.parametrize("turns", [0, -1, 1_000.1, float("nan"), float("inf"), "3", None, True])
def test_turns_that_are_no_number_from_0_to_1000_are_refused_at_the_decoration(app, turns):
    async def many(one: list[int]) -> None: ...

    for decorator in (app.task(turns=turns), app.batch_task(turns=turns)):
        with pytest.raises(ConfigurationError, match="turns= is a number above 0, at most 1000"):
            decorator(many)


@pytest.mark.parametrize("turns", [0.001, 0.5, 1, 3, 1_000])
def test_turns_are_kept_with_the_handler_and_are_one_unless_given(app, turns):
    @app.task(turns=turns)
    async def often() -> None: ...

    @app.batch_task(turns=turns)
    async def many(one: list[int]) -> None: ...

    kept = {handler.kind: handler.turns for handler in app.registry}
    assert kept == {"send_email": 1, "resize": 1, "often": turns, "many": turns}


def test_parameters_that_cannot_be_validated_are_refused(app):
    with pytest.raises(ConfigurationError, match="name every parameter"):

        @app.task
        async def many(*args: int) -> None: ...

    with pytest.raises(ConfigurationError, match="takes one parameter, a list"):

        @app.batch_task()
        async def batch(one: list[int], two: list[int]) -> None: ...

    with pytest.raises(ConfigurationError, match="cannot be resolved"):

        @app.task
        async def unknown(one: Missing) -> None: ...  # noqa: F821


def test_a_handler_without_annotations_takes_anything(app):
    @app.task
    async def loose(one, two=None): ...

    sealed = loose.handler.arguments.seal(({"a": [1]},), {})
    assert loose.handler.arguments.unseal(sealed) == (({"a": [1]}, None), {})
