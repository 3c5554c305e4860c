"""What a type checker makes of tasks: wrong arguments are errors, results have their types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import holdfast

RIGHT = """
from typing import Any, assert_type
from holdfast import Handle, Holdfast

app = Holdfast("sqlite:///app.db")

@app.task(queue="mail")
async def send(to: str, times: int = 1) -> str:
    return to

@app.task
def resize(width: int) -> float:
    return width / 2

@app.task(transactional=True)
async def book(connection: Any, amount: int) -> bool:
    return amount > 0

@app.batch_task(max=10)
async def index(pages: list[int]) -> None: ...

async def main() -> None:
    handle = await send.enqueue("me", times=2)
    assert_type(handle, Handle[str])
    assert_type(await handle.result(), str)
    assert_type(await (await resize.enqueue(3)).result(), float)
    assert_type(await (await book.enqueue(3)).result(), bool)
    assert_type(await (await send.options(delay=3).enqueue("me")).result(timeout=1), str)
    assert_type(send.enqueue_sync("me").result_sync(), str)
    assert_type(await index.enqueue(7), Handle[None])
"""

WRONG = {
    "await send.enqueue(3)": '"enqueue" of "Enqueuer" has incompatible type "int"',
    "await send.enqueue()": "Missing positional argument",
    'await send.enqueue("me", colour=1)': "Unexpected keyword argument",
    "await send.options(delay=1).enqueue(3)": "incompatible type",
    'await book.enqueue("much")': "incompatible type",
    "await index.enqueue([7])": "incompatible type",
    'number: int = await (await send.enqueue("me")).result()': "Incompatible types in assignment",
}


def checked(tmp_path: Path, text: str) -> str:
    path = tmp_path / "program.py"
    path.write_text(text)
    source = Path(holdfast.__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.11", str(path)],
        cwd=tmp_path,
        env={"MYPYPATH": str(source), "PATH": "", "MYPY_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done.stdout + done.stderr


def test_arguments_and_results_of_tasks_are_checked_by_their_types(tmp_path):
    lines = [f"    {wrong}" for wrong in WRONG]
    first = RIGHT.count("\n") + 1

    found = checked(tmp_path, RIGHT + "\n".join(lines) + "\n")

    errors = [row for row in found.splitlines() if "program.py" in row and " error: " in row]
    for number, (wrong, message) in enumerate(WRONG.items(), start=first):
        row = [e for e in errors if e.startswith(f"program.py:{number}:")]
        assert row and message in row[0], f"{wrong}: {found}"
    rest = [e for e in errors if int(e.split(":")[1]) < first]
    assert not rest, "\n".join(rest)
