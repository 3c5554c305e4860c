"""Whether a handler may be run in a process of its own.  A new process imports the program anew."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_origin

from holdfast.handler import Handler
from holdfast.outcomes import Later


def reason_against(handler: Handler) -> str | None:
    """Why this handler can only run in its node; None when nothing speaks against it."""
    if "<locals>" in handler.function.__qualname__:
        return "it is defined inside of a function: keep it at the top of its module"
    if _ends_later(handler):
        return "it ends later, and whoever reports its end lives in the node"
    return _main_module()


def is_guarded(source: str) -> bool:
    """Whether the program has a top-level `if __name__ == "__main__":`, and may be imported."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    return any(
        isinstance(part, ast.Name) and part.id == "__name__"
        for statement in tree.body
        if isinstance(statement, ast.If)
        for part in ast.walk(statement.test)
    )


def _ends_later(handler: Handler) -> bool:
    hint: Any = inspect.signature(handler.function, eval_str=True).return_annotation
    kinds = {get_origin(one) or one for one in (hint, *get_args(hint))}
    return Later in kinds


@cache
def _main_module() -> str | None:
    """Why the program's main module must not be imported again; a new process does that.

    Not when it has no file, or is the `__main__` of a package.  Without a guard it would do all
    its work a second time.
    """
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", "")
    path = getattr(main, "__file__", None)
    if name.rpartition(".")[2] == "__main__" or path is None:
        return None
    try:
        source = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return f"{path} cannot be imported by another process"
    if is_guarded(source):
        return None
    return f'{path} works when it is imported: put that under if __name__ == "__main__":'
