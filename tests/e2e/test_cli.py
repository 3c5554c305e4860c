"""The command line in a process of its own: what it prints, where, and with which exit code."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import holdfast
from holdfast import errors
from holdfast.cli.problems import ANSWERS, ENDINGS, EXPLAINED
from holdfast.cli.root import root
from holdfast.testing.postgres import Server
from schema import NEWEST

PACKAGE = Path(holdfast.__file__).parents[1]
REFERENCE = Path(__file__).parents[2] / "docs" / "reference"
CANARY = "can4ry-pa55word"

PROGRAM = """
from holdfast import Holdfast, Retry

app = Holdfast()

@app.task(queue="mail")
async def send_email(to: str, subject: str = "hello") -> None: ...

@app.task
def add(a: int, b: int = 0) -> int:
    return a + b
"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
    return kept | {"PYTHONPATH": str(PACKAGE)} | more


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The working directory of the commands, with a program in it."""
    folder = tmp_path / "program"
    folder.mkdir()
    (folder / "orders.py").write_text(PROGRAM, encoding="utf-8")
    return folder


@pytest.fixture
def bare(folder: Path) -> Run:
    """Runs a command without an address."""

    def run(*arguments: str, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "holdfast.cli", *arguments],
            cwd=folder,
            env=environment(**environ),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


@pytest.fixture
def run(bare: Run, store_url: str) -> Run:
    """Runs a command on a prepared store."""

    def run(*arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        return bare(*arguments, **({"HOLDFAST_URL": store_url} | more))

    if store_url.startswith("postgresql"):  # an SQLite store makes its tables by itself
        assert run("db", "migrate").returncode == 0
    return run


def items(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["items"]
    return found


def enqueued(run: Run, *arguments: str) -> str:
    done = run("task", "enqueue", "orders", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["id"])


def assert_says(done: subprocess.CompletedProcess[str], code: str, exit_code: int, *lines: str):
    """Three lines on stderr, nothing on stdout, no traceback."""
    found = done.stderr.strip().splitlines()
    assert done.returncode == exit_code, done.stderr
    assert [row[:6] for row in found] == ["error ", "  why:", "  do: "], done.stderr
    assert found[0].startswith(f"error {code}: ")
    for line in lines:
        assert line in done.stderr


def assert_no_task(run: Run) -> None:
    listed = run("task", "list", "--json")
    if listed.returncode != 6:  # no file at all: nothing can have been written to it
        assert items(listed) == []


# ── messages: what, why, what to do; and nothing was written ──────────────────────────────────


def test_an_unreachable_database_is_named_without_its_password(bare: Run):
    done = bare("task", "list", HOLDFAST_URL=f"postgresql://app:{CANARY}@127.0.0.1:1/app")

    assert_says(
        done,
        "HF1301",
        6,
        "PostgreSQL at 127.0.0.1:1/app cannot be reached",
        "nothing was written",
        "check that the database runs",
    )
    assert CANARY not in done.stderr + done.stdout


def test_a_missing_file_is_named_and_not_made(bare: Run, folder: Path):
    done = bare("task", "list", "--url", "sqlite:///typo.db")

    assert_says(done, "HF1301", 6, "there is no file typo.db")
    assert not (folder / "typo.db").exists()


@pytest.mark.store("postgres")
def test_a_missing_schema_says_how_to_make_it(bare: Run, bare_postgres_url: str):
    done = bare("task", "list", HOLDFAST_URL=bare_postgres_url)

    assert_says(
        done, "HF1401", 4, "the tables of Holdfast are missing in", "run `holdfast db migrate`"
    )
    status = bare("db", "status", "--json", HOLDFAST_URL=bare_postgres_url)
    assert status.returncode == 4
    assert json.loads(status.stdout)["database"] == 0


def test_a_newer_schema_says_that_holdfast_is_too_old(
    run: Run, store_url: str, request: pytest.FixtureRequest
):
    enqueued(run, "add", "[1]")
    make_newer(store_url, request)

    done = run("task", "enqueue", "orders", "add", "[2]")

    assert_says(done, "HF1402", 4, f"this code knows {NEWEST}", "install a newer Holdfast")
    assert count_tasks(store_url, request) == 1


def test_an_unknown_kind_suggests_the_nearest(run: Run):
    done = run("task", "enqueue", "orders", "send_emial")

    assert_says(done, "HF1103", 3, "unknown kind 'send_emial'; did you mean 'send_email'?")
    assert_no_task(run)


def test_an_unknown_queue_suggests_the_nearest(run: Run):
    done = run("task", "enqueue", "orders", "send_email", '{"to": "a"}', "--queue", "mial")

    assert_says(done, "HF1104", 3, "unknown queue 'mial'; did you mean 'mail'?")
    assert_no_task(run)
    served = run("worker", "orders", "--queue", "mial")
    assert_says(served, "HF1104", 3, "unknown queue 'mial'; did you mean 'mail'?")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("{}", "wrong arguments for task 'send_email': Object missing required field `to`"),
        ('{"to": 5}', "wrong arguments for task 'send_email': Expected `str`, got `int`"),
        ('{"to": "a", "cc": "b"}', "task 'send_email' has no parameter 'cc'; it takes to, subject"),
        ('["a", "b", "c"]', "task 'send_email' takes 2 positional arguments, 3 were given"),
        ("{to: a}", "the arguments are no JSON"),
        ("5", "the arguments are an object of named ones, or a list"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_written(
    bare: Run, tmp_path: Path, arguments: str, said: str
):
    url = f"sqlite:///{tmp_path / 'app.db'}"
    done = bare("task", "enqueue", "orders", "send_email", arguments, HOLDFAST_URL=url)

    assert_says(done, "HF1101", 2, said, "nothing was written")
    assert not (tmp_path / "app.db").exists() or count_in_file(url) == 0


async def test_a_payload_that_cannot_be_encoded_is_refused(store_url: str):
    app = holdfast.Holdfast(store_url)
    await migrated(app)

    @app.task
    async def keep(what) -> None: ...

    async with app:
        with pytest.raises(
            errors.PayloadRefused, match="the arguments of 'keep' cannot be written"
        ):
            await keep.enqueue(object())
        assert sum((await (await app.store()).counts()).values()) == 0


def test_a_payload_that_is_too_large_names_its_size_and_the_limit(run: Run):
    arguments = json.dumps({"to": "x" * 200})

    done = run(
        "task", "enqueue", "orders", "send_email", arguments, HOLDFAST_PAYLOAD_BYTES_MAX="100"
    )

    assert_says(
        done,
        "HF1102",
        2,
        "the arguments of 'send_email' take 2",
        "bytes, more than payload_bytes_max = 100",
        "the key of data that is stored elsewhere",
    )
    assert_no_task(run)


def test_a_missing_address_says_where_it_can_be_given(bare: Run):
    done = bare("task", "list")

    assert_says(done, "HF1108", 2, "set HOLDFAST_URL", 'url = "…" in holdfast.toml')


def test_a_password_in_a_flag_is_refused_and_not_repeated(bare: Run):
    done = bare("task", "list", "--url", f"postgresql://app:{CANARY}@db/app")

    assert_says(done, "HF1108", 2, "a password in --url can be read by every user of this machine")
    assert CANARY not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["wroker"], "No such command 'wroker'. Did you mean 'worker'?"),
        (["task", "lst"], "No such command 'lst'. Did you mean 'list'"),
        (["task", "list", "--limt", "3"], "--limit"),
        (["task", "list", "--state", "broken"], "there is no state 'broken'; known: waiting, "),
        (["task", "fail"], "name at least one task by its id"),
        (["task", "resume", "--all"], "name tasks by their ids, or all of a kind: --kind K --all"),
        (["task", "cancel", "1", "2", "--version", "1"], "name one id"),
    ],
)
def test_wrong_usage_is_three_lines_with_a_suggestion(bare: Run, arguments: list[str], said: str):
    done = bare(*arguments, HOLDFAST_URL="sqlite:///none.db")

    assert_says(done, "HF1001", 2, said, "--help`")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("ordres", "there is no module 'ordres'; did you mean 'orders'?"),
        ("orders.py", "'orders.py' is no module: write orders:app"),
        ("orders:application", "orders has no attribute 'application'; did you mean orders:app?"),
        ("orders:Retry", "orders:Retry is a type, not a Holdfast app"),
        ("broken", "broken cannot be imported: ZeroDivisionError: division by zero"),
    ],
)
def test_an_app_that_cannot_be_found_says_why(bare: Run, folder: Path, name: str, said: str):
    (folder / "broken.py").write_text("1 / 0\n", encoding="utf-8")

    done = bare("task", "enqueue", name, "add", HOLDFAST_URL="sqlite:///none.db")

    assert done.returncode == 2
    assert f"error HF1108: {said}" in done.stderr
    assert ("broken.py" in done.stderr) == (name == "broken")
    assert not (folder / "none.db").exists()


# ── tasks ─────────────────────────────────────────────────────────────────────────────────────


def test_a_task_is_enqueued_with_its_options(run: Run):
    first = enqueued(
        run,
        *("send_email", '{"to": "a"}', "--priority", "1", "--delay", "1h"),
        *("--fairness-key", "acme", "--ordering-key", "order-7", "--unique", "welcome"),
    )
    again = run("task", "enqueue", "orders", "send_email", '["b"]', "--unique", "welcome", "--json")

    assert json.loads(again.stdout) == {
        "schema": "holdfast.enqueued.v1",
        "id": first,
        "created": False,
        "kind": "send_email",
        "queue": "mail",
    }
    (row,) = items(run("task", "list", "--json"))
    assert (row["state"], row["priority"], row["queue"]) == ("WAITING", 1, "mail")
    assert (row["fairness_key"], row["ordering_key"]) == ("acme", "order-7")


def test_a_list_is_filtered_by_several_values_and_paged(run: Run):
    for key in ("acme", "zeta", "acme", "omega"):
        enqueued(run, "add", "[1]", "--fairness-key", key)
    enqueued(run, "send_email", '["a"]', "--delay", "1h")

    keys = ["--fairness-key", "acme", "--fairness-key", "zeta"]
    assert len(items(run("task", "list", "--json", *keys))) == 3
    assert len(items(run("task", "list", "--json", "--kind", "add", "--kind", "send_email"))) == 5
    (waiting,) = items(run("task", "list", "--json", "--state", "waiting", "--queue", "mail"))
    page = json.loads(run("task", "list", "--json", "--limit", "2").stdout)
    rest = items(run("task", "list", "--json", "--after", page["next_after"]))
    assert [row["id"] for row in page["items"]] + [row["id"] for row in rest] == [
        row["id"] for row in items(run("task", "list", "--json"))
    ]
    assert waiting["kind"] == "send_email"


def test_the_same_rows_come_as_table_json_lines_and_csv(run: Run):
    id = enqueued(run, "add", "[1]")

    lines = run("task", "list", "--output", "jsonl").stdout.splitlines()
    table = run("task", "list").stdout.splitlines()
    (row,) = csv.DictReader(io.StringIO(run("task", "list", "-o", "csv").stdout))

    assert [json.loads(line)["schema"] for line in lines] == ["holdfast.task.v1"]
    assert json.loads(lines[0])["id"] == row["id"] == id
    assert table[0].split()[:4] == ["id", "state", "kind", "queue"]
    assert table[1].split()[:4] == [id, "SUBMITTED", "add", "default"]
    assert "\x1b" not in "".join(table)


def test_a_payload_is_shown_only_on_request_and_with_a_warning(run: Run):
    id = enqueued(run, "send_email", json.dumps({"to": "canary@example.org"}))

    plain = run("task", "show", id)
    asked = run("task", "show", id, "--payload", "--json")

    assert "canary@example.org" not in plain.stdout
    assert "payload" not in plain.stdout
    assert json.loads(asked.stdout)["payload"]["to"] == "canary@example.org"
    assert f"the payload of task {id} was shown" in asked.stderr


def test_a_task_that_does_not_exist_is_not_found(run: Run):
    enqueued(run, "add", "[1]")

    assert_says(run("task", "show", "4711"), "HF1105", 3, "no task has the id 4711")


@pytest.mark.req("TASK-82")
def test_a_change_needs_the_current_version_and_an_allowed_state(run: Run):
    id = enqueued(run, "add", "[1]")

    def change(verb: str, *options: str) -> tuple[str, int]:
        done = run("task", verb, *options, "--output", "csv")
        return done.stdout.splitlines()[1].split(",")[1], done.returncode

    assert change("reschedule", id, "--delay", "1h", "--version", "9") == ("FAILED", 4)
    assert change("reschedule", id, "--delay", "1h", "--version", "1") == ("OK", 0)
    assert change("resume", id, "--version", "1", "--force") == ("FAILED", 4)
    assert change("resume", id, "--version", "2", "--force") == ("OK", 0)
    assert change("resume", id, "--version", "3") == ("NOT_ALLOWED", 4)
    assert change("cancel", id, "--version", "2") == ("FAILED", 4)
    assert change("cancel", id, "--version", "3") == ("OK", 0)
    assert change("cancel", id) == ("NOT_ALLOWED", 4)
    assert change("cancel", "4711") == ("NOT_FOUND", 3)
    (row,) = items(run("task", "list", "--json"))
    assert (row["state"], row["version"]) == ("CANCELLED", 4)


def test_a_refused_change_says_why_and_what_to_do(run: Run):
    id = enqueued(run, "add", "[1]")

    done = run("task", "cancel", id, "--version", "7")

    assert done.returncode == 4
    assert f"error HF2104: task {id} has moved on from version 7" in done.stderr
    assert "nothing was changed" in done.stderr
    assert items(run("task", "list", "--json"))[0]["state"] == "SUBMITTED"


def test_a_task_can_be_given_up_with_a_reason(run: Run):
    id = enqueued(run, "add", "[1]")

    assert run("task", "fail", id, "--reason", "obsolete").returncode == 0

    shown = json.loads(run("task", "show", id, "--json").stdout)
    assert (shown["state"], shown["error"]) == ("FAILED", "obsolete")


# ── the store, the settings, the rest ─────────────────────────────────────────────────────────


def test_status_is_4_until_the_tables_are_migrated(bare: Run, bare_store_url: str):
    before = bare("db", "status", "--json", HOLDFAST_URL=bare_store_url)
    migrated_twice = [bare("db", "migrate", HOLDFAST_URL=bare_store_url) for _ in range(2)]
    after = bare("db", "status", "--json", HOLDFAST_URL=bare_store_url)

    assert (before.returncode, json.loads(before.stdout)["fits"]) == (4, False)
    assert "run `holdfast db migrate`" in before.stderr
    assert [done.returncode for done in migrated_twice] == [0, 0]
    assert (after.returncode, json.loads(after.stdout)["fits"]) == (0, True)


def test_the_statements_of_the_schema_can_be_printed_for_review(bare: Run, store_url: str):
    done = bare("db", "sql", HOLDFAST_URL=store_url)

    assert done.returncode == 0
    assert "CREATE TABLE" in done.stdout


def test_the_resolved_configuration_names_sources_and_hides_the_password(bare: Run, folder: Path):
    (folder / "holdfast.toml").write_text('[node]\nlease = "30s"\n', encoding="utf-8")
    url = f"postgresql://app:{CANARY}@db/app"

    done = bare("config", "show", "--resolved", "--json", HOLDFAST_URL=url)
    short = bare("config", "show", "--json", HOLDFAST_URL=url)

    rows = {row["name"]: row for row in items(done)}
    assert rows["node.lease"] == {"name": "node.lease", "value": "30s", "source": "holdfast.toml"}
    assert rows["url"]["value"] == "postgresql://app:***@db/app"
    assert rows["schema"]["source"] == "default"
    assert {row["name"] for row in items(short)} == {"url", "node.lease"}
    assert CANARY not in done.stdout + done.stderr


def test_the_address_can_come_from_a_file_of_secrets(bare: Run, folder: Path):
    (folder / "secret").write_text(f"postgresql://app:{CANARY}@127.0.0.1:1/app", encoding="utf-8")

    done = bare("task", "list", HOLDFAST_URL_FILE="secret")

    assert_says(done, "HF1301", 6, "127.0.0.1:1/app cannot be reached")
    assert CANARY not in done.stderr


def test_the_version_is_printed_on_stdout(bare: Run):
    assert bare("version").stdout == f"{holdfast.__version__}\n"


def test_every_command_shows_an_example(bare: Run):
    assert "Example: holdfast task list" in bare("task", "list", "--help").stdout
    wrong = [name for name, one in commands() if not (one.epilog or "").startswith("Example: ")]

    assert wrong == []


def test_a_person_who_wants_no_colour_sees_none(bare: Run, tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'app.db'}"
    assert bare("task", "enqueue", "orders", "add", "[1]", HOLDFAST_URL=url).returncode == 0

    coloured = on_a_terminal(tmp_path, "task", "list", HOLDFAST_URL=url, TERM="xterm")
    plain = on_a_terminal(tmp_path, "task", "list", HOLDFAST_URL=url, TERM="xterm", NO_COLOR="1")

    assert "SUBMITTED" in coloured
    assert "\x1b[" in coloured
    assert "\x1b[" not in plain


def test_every_error_has_a_code_of_its_own_and_a_place_in_the_reference():
    kinds = {
        found
        for found in vars(errors).values()
        if isinstance(found, type) and issubclass(found, errors.HoldfastError)
    }
    codes = [one.code for one in (*EXPLAINED.values(), *ANSWERS.values(), *ENDINGS)]
    page = (REFERENCE / "errors.md").read_text(encoding="utf-8")

    assert kinds == EXPLAINED.keys()
    assert len(codes) == len(set(codes))
    assert [code for code in codes if f"| {code} |" not in page] == []


def test_every_setting_stands_in_the_reference():
    from holdfast.config import SETTINGS

    page = (REFERENCE / "configuration.md").read_text(encoding="utf-8")
    wrong = [one.name for one in SETTINGS if f"| `{one.name}` | `{one.variable}` |" not in page]
    assert wrong == []


def test_every_command_stands_in_the_reference():
    page = (REFERENCE / "cli.md").read_text(encoding="utf-8")

    wrong = [name for name, _ in commands() if not re.search(rf"\| `holdfast {name}\b", page)]
    assert wrong == []


def commands() -> Iterator[tuple[str, Any]]:
    """Every command by its words, but for those that are not for people."""

    def below(group: Any, words: list[str]) -> Iterator[tuple[str, Any]]:
        for name, one in group.commands.items():
            if hasattr(one, "commands"):
                yield from below(one, [*words, name])
            elif not one.hidden:
                yield " ".join([*words, name]), one

    yield from below(get_command(root), [])


# ── what the tests need ──────────────────────────────────────────────────────────────────────


async def migrated(app: holdfast.Holdfast) -> None:
    from random import Random

    from holdfast.clock import SystemClock
    from holdfast.node.compose import make_store

    if app.config.url.startswith("postgresql"):
        store = make_store(app.config.address, clock=SystemClock(), rng=Random(0))
        await store.migrate()
        await store.close()


def make_newer(url: str, request: pytest.FixtureRequest) -> None:
    """Pretend that a Holdfast of the future has migrated the store."""
    if url.startswith("sqlite"):
        in_file(url, "UPDATE holdfast_meta SET value = 99 WHERE name IN ('schema', 'code_min')")
        return
    server: Server = request.getfixturevalue("postgres")
    for statement in (
        "INSERT INTO holdfast.migration (number, name, checksum) VALUES (99, 'future', 'x')",
        "UPDATE holdfast.meta SET value = '99' WHERE name = 'code_min'",
    ):
        server.execute(statement, database=url.rpartition("/")[2])


def count_tasks(url: str, request: pytest.FixtureRequest) -> int:
    if url.startswith("sqlite"):
        return count_in_file(url)
    server: Server = request.getfixturevalue("postgres")
    (row,) = server.execute("SELECT count(*) FROM holdfast.task", database=url.rpartition("/")[2])
    return int(row)


def count_in_file(url: str) -> int:
    return int(in_file(url, "SELECT count(*) FROM holdfast_task")[0][0])


def in_file(url: str, sql: str) -> list[Any]:
    db = sqlite3.connect(url.removeprefix("sqlite:///"))
    try:
        with db:
            return db.execute(sql).fetchall()
    finally:
        db.close()


def on_a_terminal(folder: Path, *arguments: str, **environ: str) -> str:
    """What a person would see: the command's stdout is a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli", *arguments],
        cwd=folder,
        env=environment(**environ),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs)
    seen = b""
    try:
        while chunk := os.read(ours, 4096):
            seen += chunk
    except OSError:
        pass  # the terminal's way to say that the other end is closed
    process.wait(30)
    os.close(ours)
    return seen.decode()
