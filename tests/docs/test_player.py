"""The player of pages finds what is not true: else its silence would mean nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from docs.pages import Page
from docs.test_pages import PLAYER, environment

TRUE = {
    "code that runs": "```python\nassert 1 + 1 == 2\n```\n",
    "await at the top": "```python\nimport asyncio\nawait asyncio.sleep(0)\n```\n",
    "names are shared": "```python\none = 1\n```\n\n```python\nassert one == 1\n```\n",
    "what is printed": "```python\nprint('a   b 17 c')\n```\n\n```text\na b … c\n```\n",
    "what is raised": "<!-- raises: KeyError -->\n```python\n{}['a']\n```\n",
    "a command": "```sh\nholdfast version\n```\n\n```text\n0.1.0\n```\n",
    "an exit code": "<!-- exit: 2 -->\n```sh\nholdfast wroker\n```\n",
    "another store": "<!-- only: postgres -->\n```python\nassert False\n```\n",
    "a file": "<!-- file: a.py -->\n```python\nprint(7)\n```\n\n```sh\npython a.py\n```\n",
    "only shown": "<!-- shown -->\n```sh\nrm -rf nothing\n```\n",
}
FALSE = {
    "code that raises": "```python\nassert 1 + 1 == 3\n```\n",
    "hidden code that raises": "<!-- run\nassert False\n-->\n",
    "what is not printed": "```python\nprint('a')\n```\n\n```text\nb\n```\n",
    "what is not raised": "<!-- raises: KeyError -->\n```python\n{}.get('a')\n```\n",
    "something else is raised": "<!-- raises: KeyError -->\n```python\n1 / 0\n```\n",
    "a command that fails": "```sh\nholdfast wroker\n```\n",
    "another exit code": "<!-- exit: 3 -->\n```sh\nholdfast version\n```\n",
    "an unknown program": "```sh\nrm -rf nothing\n```\n",
    "PostgreSQL on SQLite": "```python\n'postgresql://app@localhost/orders'\n```\n",
}


def play(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = folder / "page.md"
    path.write_text(f"# A page\n\n{text}", encoding="utf-8")
    return subprocess.run(
        [sys.executable, PLAYER, path, "sqlite", "sqlite:///orders.db"],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_a_page_of_true_blocks_passes(tmp_path: Path):
    done = play("\nSome words.\n\n".join(TRUE.values()), tmp_path)

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("text", FALSE.values(), ids=FALSE.keys())
def test_a_block_that_is_not_true_is_named_with_its_line(text: str, tmp_path: Path):
    done = play(text, tmp_path)

    assert done.returncode == 1
    line = 3 if text.startswith("```") or "run" in text else 4
    assert f"page.md:{line}: this block is not true" in done.stderr


def test_links_and_headings_are_found_and_code_is_not():
    text = "# A `b` c\n\n[x](y.md#z), `[no](n.md)`\n\n```python\n# no heading\nd[0](e)\n```\n"
    found = Page(Path("page.md"), text)

    assert found.links == ["y.md#z"]
    assert found.anchors == {"a-b-c"}
