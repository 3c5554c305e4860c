"""The pages of the documentation, taken apart: what is shown, and how it is played.

A fenced block is played in the order of the page.  An HTML comment before a block says more:

    <!-- stores: sqlite, postgres -->   in the first line: the stores that the page is played on
    <!-- file: app.py -->               the block is a file of the reader's, not run by itself
    <!-- only: postgres -->             the block is played on this store only
    <!-- exit: 2 -->                    the command ends with this code
    <!-- raises: DuplicateTask -->      the block raises this
    <!-- background -->                 the command goes on until the end of the page
    <!-- shown -->                      the block is only looked at

A comment that begins with `run` holds Python that is played and not shown.  Blocks of one page
share their names, and `await` may stand at their top level, as in `python -m asyncio`.  A `text`
block is what the block before it prints: each of its lines must occur, `…` stands for anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

PROJECT = Path(__file__).parents[2]
PLAYED = ("python", "sh")
SQLITE, POSTGRES = "sqlite:///orders.db", "//app@localhost/orders"  # with any driver's name

_COMMENT = re.compile(r"<!-- *(\w+)(?:: *(.*?))? *-->")
_HIDDEN = re.compile(r"^<!-- run\n(.*?)^-->$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]\n]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block, or one hidden one, with what the comments before it say."""

    line: int
    language: str
    code: str
    says: dict[str, str] = field(default_factory=dict)
    prints: str | None = None  # the text block that follows

    def is_for(self, store: str) -> bool:
        return self.says.get("only", store) == store


@dataclass(frozen=True, slots=True)
class Page:
    path: Path
    text: str

    @property
    def name(self) -> str:
        return self.path.relative_to(PROJECT).as_posix()

    @property
    def stores(self) -> list[str]:
        match = re.match(r"<!-- stores: (.+?) -->", self.text)
        return match[1].split(", ") if match else []

    @property
    def blocks(self) -> list[Block]:
        return list(_blocks(self.text))

    @property
    def links(self) -> list[str]:
        """Where the page points, code left out."""
        return _LINK.findall(re.sub(r"^```.*?^```|`[^`\n]*`", "", self.text, flags=re.M | re.S))

    @property
    def anchors(self) -> set[str]:
        shown = re.sub(r"^```.*?^```", "", self.text, flags=re.MULTILINE | re.DOTALL)
        return {_anchor(title) for title in _HEADING.findall(shown)}


def page(name: str) -> Page:
    path = PROJECT / name
    return Page(path, path.read_text(encoding="utf-8"))


def pages() -> list[Page]:
    """Every page that a reader may open."""
    files = [*PROJECT.glob("*.md"), PROJECT / "llms.txt", *(PROJECT / "docs").rglob("*.md")]
    return [page(path.relative_to(PROJECT).as_posix()) for path in sorted(files)]


def _blocks(text: str) -> Iterator[Block]:
    lines = _HIDDEN.sub(_as_fence, text).splitlines()
    says: dict[str, str] = {}
    found: list[Block] = []
    number = 0
    while number < len(lines):
        line = lines[number]
        if match := _COMMENT.fullmatch(line.strip()):
            says[match[1]] = match[2] or ""
        elif line.startswith("```"):
            start, language = number + 1, line[3:].strip()
            number = next(n for n in range(start, len(lines)) if lines[n].startswith("```"))
            code = "\n".join(lines[start:number]) + "\n"
            if language == "text" and found and "shown" not in says:
                last = found.pop()
                found.append(Block(last.line, last.language, last.code, last.says, code))
            else:
                found.append(Block(start, language, code, says))
            says = {}
        elif line.strip():
            says = {}  # a comment belongs to the block right after it
        number += 1
    yield from found


def _as_fence(match: re.Match[str]) -> str:
    # As many lines as before, so that a failure names the right one.
    return f"```python\n{match[1]}```"


def _anchor(title: str) -> str:
    kept = re.sub(r"[^\w\- ]", "", title.replace("`", "").lower())
    return kept.replace(" ", "-")
