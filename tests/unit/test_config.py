"""Configuration: argument > environment > file > default, and no password in any text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import FrozenInstanceError
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.address import redacted_url, secrets_of
from holdfast.config import (
    BY_NAME,
    SETTINGS,
    Config,
    duration,
    load_config,
)
from holdfast.errors import ConfigurationError
from holdfast.node.settings import NodeSettings

PASSWORD = "s3cr3t/%40"
URL = "postgresql://app:s3cr3t%2F%2540@db.example/app"

Load = Callable[..., Config]


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """`load_config` in an empty folder and an empty environment."""

    def load(arguments: dict[str, Any] | None = None, **environ: str) -> Config:
        return load_config(arguments or {}, environ=environ, folder=tmp_path)

    return load


def write(folder: Path, text: str, name: str = "holdfast.toml") -> None:
    (folder / name).write_text(text, encoding="utf-8")


def refusal(load: Load, arguments: dict[str, Any] | None = None, **environ: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(arguments, **environ)
    return str(caught.value)


def test_an_argument_beats_the_environment_which_beats_the_file(load: Load, tmp_path: Path):
    write(tmp_path, 'url = "sqlite:///file.db"\nschema = "of_file"\nconnections_max = 3')

    config = load({"url": "sqlite:///argument.db"}, HOLDFAST_SCHEMA="of_environment")

    assert (config.url, config.schema) == ("sqlite:///argument.db", "of_environment")
    assert config.connections_max == 3


def test_what_nobody_set_has_its_default(load: Load):
    config = load({"url": "sqlite:///a.db", "schema": None})

    assert config == Config(url="sqlite:///a.db")
    assert config.node == NodeSettings()


def test_an_empty_variable_is_unset(load: Load, tmp_path: Path):
    write(tmp_path, 'url = "sqlite:///file.db"')

    assert load(HOLDFAST_URL="", HOLDFAST_NODE__LEASE="").url == "sqlite:///file.db"


def test_every_setting_can_stand_in_the_file_and_in_the_environment(load: Load, tmp_path: Path):
    write(
        tmp_path,
        """
        url = "postgresql://app@db/app"
        listen_url = "postgresql://app@direct/app"
        schema = "q"
        pooled = true
        durability = "fast"
        payload_bytes_max = 1000
        connections_max = 4
        [node]
        queues = ["mail", "billing"]
        loop = "asyncio"
        lease = "30s"
        renewer = "loop"
        stall_limit = "2m"
        drain = "1m"
        unknown_kind_wait = "10m"
        order = "arrival"
        deliveries_max = 7
        retention = "2d"
        [node.slots]
        async = 20
        threads = 2
        processes = 3
        suspects = 0
        """,
    )
    of_file = load()
    environ = {
        "HOLDFAST_URL": "postgresql://app@db/app",
        "HOLDFAST_LISTEN_URL": "postgresql://app@direct/app",
        "HOLDFAST_SCHEMA": "q",
        "HOLDFAST_POOLED": "true",
        "HOLDFAST_DURABILITY": "fast",
        "HOLDFAST_PAYLOAD_BYTES_MAX": "1000",
        "HOLDFAST_CONNECTIONS_MAX": "4",
        "HOLDFAST_NODE__QUEUES": "mail,billing",
        "HOLDFAST_NODE__LOOP": "asyncio",
        "HOLDFAST_NODE__LEASE": "30",
        "HOLDFAST_NODE__RENEWER": "loop",
        "HOLDFAST_NODE__STALL_LIMIT": "120",
        "HOLDFAST_NODE__DRAIN": "60s",
        "HOLDFAST_NODE__UNKNOWN_KIND_WAIT": "600",
        "HOLDFAST_NODE__ORDER": "arrival",
        "HOLDFAST_NODE__DELIVERIES_MAX": "7",
        "HOLDFAST_NODE__RETENTION": "48h",
        "HOLDFAST_NODE__SLOTS__ASYNC": "20",
        "HOLDFAST_NODE__SLOTS__THREADS": "2",
        "HOLDFAST_NODE__SLOTS__PROCESSES": "3",
        "HOLDFAST_NODE__SLOTS__SUSPECTS": "0",
    }

    assert environ.keys() == {setting.variable for setting in SETTINGS}
    assert load_config({}, environ=environ, folder=tmp_path / "nowhere") == of_file
    assert of_file.queues == ("mail", "billing")
    assert (of_file.node.lease_s, of_file.node.drain_s) == (30.0, 60.0)
    assert (of_file.node.renewer, of_file.node.stall_limit_s) == ("loop", 120.0)
    assert (of_file.node.slots_async, of_file.node.slots_processes) == (20, 3)
    assert of_file.node.retention.finished == timedelta(days=2)


def test_the_address_of_the_store_carries_what_the_adapters_need(load: Load):
    address = load(HOLDFAST_URL=URL, HOLDFAST_POOLED="yes", HOLDFAST_LISTEN_URL="postgresql://d/a")

    found = address.address
    assert (found.pooled, found.listen_url, found.durability) == (True, "postgresql://d/a", "full")


def test_the_project_file_is_read_when_there_is_no_file_of_our_own(load: Load, tmp_path: Path):
    project = '[project]\nname = "shop"\n[tool.holdfast]\nurl = "sqlite:///project.db"\n'
    write(tmp_path, project, "pyproject.toml")

    assert load().url == "sqlite:///project.db"

    write(tmp_path, 'url = "sqlite:///own.db"')
    assert load().url == "sqlite:///own.db"


def test_a_project_file_without_our_table_is_left_alone(load: Load, tmp_path: Path):
    write(tmp_path, "this is = not TOML", "pyproject.toml")

    assert load({"url": "sqlite:///a.db"}).url == "sqlite:///a.db"


def test_the_address_can_come_from_a_file_of_secrets(load: Load, tmp_path: Path):
    write(tmp_path, f"{URL}\n", "secret")

    assert load(HOLDFAST_URL_FILE=str(tmp_path / "secret")).url == URL


def test_a_file_of_secrets_that_cannot_be_read_is_named(load: Load, tmp_path: Path):
    text = refusal(load, HOLDFAST_URL_FILE=str(tmp_path / "missing"))

    assert text == (
        f"HOLDFAST_URL_FILE: cannot read {tmp_path / 'missing'}: No such file or directory"
    )


def test_two_addresses_from_the_environment_are_refused(load: Load, tmp_path: Path):
    text = refusal(load, HOLDFAST_URL=URL, HOLDFAST_URL_FILE="secret")

    assert text == "HOLDFAST_URL and HOLDFAST_URL_FILE are both set: unset one of them"


def test_without_an_address_the_error_says_where_it_can_be_given(load: Load):
    text = refusal(load)

    for place in (
        "Holdfast('sqlite:///app.db')",
        "HOLDFAST_URL",
        "HOLDFAST_URL_FILE",
        "holdfast.toml",
    ):
        assert place in text


@pytest.mark.parametrize(
    ("written", "said"),
    [
        (
            "[node]\nleese = 3",
            "holdfast.toml: unknown key 'node.leese'; did you mean 'node.lease'?",
        ),
        ("uri = 'a'", "holdfast.toml: unknown key 'uri'; did you mean 'url'?"),
        ("lease = '3s'", "holdfast.toml: unknown key 'lease'; did you mean 'node.lease'?"),
        ("[zebra]\nx = 1", f"holdfast.toml: unknown key 'zebra'; known: {', '.join(BY_NAME)}"),
    ],
)
def test_an_unknown_key_is_an_error_with_a_suggestion(
    load: Load, tmp_path: Path, written: str, said: str
):
    write(tmp_path, written)

    assert refusal(load) == said


def test_an_unknown_variable_that_looks_like_ours_is_an_error_with_a_suggestion(load: Load):
    assert refusal(load, HOLDFAST_NODE__LEESE="3s") == (
        "environment: unknown variable HOLDFAST_NODE__LEESE; did you mean HOLDFAST_NODE__LEASE?"
    )
    assert "did you mean HOLDFAST_SCHEMA?" in refusal(load, HOLDFAST_SHEMA="q")


def test_variables_that_an_orchestrator_makes_are_left_alone(load: Load):
    config = load(
        HOLDFAST_URL="sqlite:///a.db",
        HOLDFAST_SERVICE_HOST="10.0.0.1",
        HOLDFAST_PORT="tcp://10.0.0.1:80",
    )

    assert config.url == "sqlite:///a.db"


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("NODE__LEASE", "soon", 'node.lease must be a duration such as "30s", "5m", "1h" or a'),
        ("NODE__LEASE", "-3s", "node.lease must be a duration"),
        ("NODE__SLOTS__ASYNC", "0", "node.slots.async must be a whole number of at least 1, not"),
        ("NODE__ORDER", "random", "node.order must be one of fair, arrival, not 'random'"),
        ("POOLED", "maybe", "pooled must be true or false, not 'maybe'"),
        ("SCHEMA", 'x"; DROP', "schema must be up to 48 letters, digits and underscores"),
        ("DURABILITY", "none", "durability must be one of full, fast, not 'none'"),
    ],
)
def test_a_value_that_cannot_be_used_names_its_source(
    load: Load, setting: str, value: str, said: str
):
    text = refusal(load, **{"HOLDFAST_URL": "sqlite:///a.db", f"HOLDFAST_{setting}": value})

    assert text.startswith(f"HOLDFAST_{setting}: {said}")


def test_a_file_that_is_no_toml_is_named(load: Load, tmp_path: Path):
    write(tmp_path, "url = ")

    assert refusal(load).startswith("holdfast.toml: cannot be read: ")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("5m", 300),
        ("1h", 3600),
        ("1h30m", 5400),
        ("1 h 30 m", 5400),
        ("250ms", 0.25),
        ("2d", 172_800),
        ("90", 90),
        (1.5, 1.5),
        (timedelta(minutes=1), 60),
    ],
)
def test_durations_are_written_with_their_units(text: object, seconds: float):
    assert duration(text) == seconds


@given(st.text(max_size=12))
def test_whatever_is_written_as_a_duration_gives_seconds_or_a_clear_refusal(text: str):
    try:
        assert duration(text) >= 0
    except ValueError as error:
        assert str(error).startswith("a duration")


def test_a_password_is_in_no_text_of_the_configuration(load: Load):
    config = load(HOLDFAST_URL=URL, HOLDFAST_LISTEN_URL=f"{URL}?sslpassword=hidden")

    texts = [repr(config), str(config), f"{config}", str(config.describe())]
    for secret in ("s3cr3t", "hidden", PASSWORD):
        assert not any(secret in text for text in texts)
    assert "postgresql://app:***@db.example/app" in texts[0]


def test_a_password_is_in_no_message_of_a_refusal(load: Load, tmp_path: Path):
    write(tmp_path, "url = 5\n")
    assert refusal(load) == "holdfast.toml: url must be a text"

    write(tmp_path, f'url = "{URL}"\nurll = "{URL}"\n')
    assert "s3cr3t" not in refusal(load)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///orders.db", "sqlite:///orders.db"),
        ("sqlite:////var/orders.db", "sqlite:////var/orders.db"),
        ("postgresql://db/app", "postgresql://db/app"),
        ("postgresql://u@db/app", "postgresql://u@db/app"),
        ("postgresql://u:p@db:5432/app?a=1", "postgresql://u:***@db:5432/app?a=1"),
        ("postgresql://u:p@ss@db/app", "postgresql://u:***@db/app"),
        ("postgresql://u@db/app?password=x&a=1", "postgresql://u@db/app?password=***&a=1"),
        ("postgresql://u:p/w?x#@db/app", "postgresql://u:***@db/app"),
        ("postgresql://[broken", "postgresql://[broken"),
    ],
)
def test_an_address_is_shown_without_its_password(url: str, shown: str):
    assert redacted_url(url) == shown


@given(st.text(st.characters(exclude_characters="@"), min_size=4))
def test_whatever_the_password_is_the_shown_address_does_not_hold_it(password: str):
    url = f"postgresql://user:{password}@db.example/app"

    assert redacted_url(url) == "postgresql://user:***@db.example/app"


def test_the_passwords_of_an_address_are_known_as_written_and_as_meant():
    assert secrets_of(URL, None, "sqlite:///a.db") == ["s3cr3t%2F%2540", "s3cr3t/%40"]


def test_each_setting_is_described_with_its_value_and_its_source(load: Load, tmp_path: Path):
    write(tmp_path, '[node]\nlease = "30s"')

    rows = {row.name: row for row in load({"schema": "q"}, HOLDFAST_URL=URL).describe()}

    assert list(rows) == [setting.name for setting in SETTINGS]
    assert rows["url"] == ("url", "postgresql://app:***@db.example/app", "HOLDFAST_URL")
    assert rows["node.lease"] == ("node.lease", "30s", "holdfast.toml")
    assert rows["schema"][1:] == ("q", "argument")
    assert rows["node.queues"][1:] == ("all", "default")
    assert rows["node.retention"][1:] == ("2592000s", "default")


def test_a_configuration_cannot_be_changed():
    config = Config(url="sqlite:///a.db")

    with pytest.raises(FrozenInstanceError):
        config.schema = "other"  # type: ignore[misc]
