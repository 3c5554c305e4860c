"""`holdfast completion`: the script that makes a shell complete commands and options."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

ASKED = "_HOLDFAST_COMPLETE"  # set by the script when a shell wants to know how to go on


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(
    shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")],
) -> None:
    """Print the script of a shell: eval "$(holdfast completion bash)"."""
    # Only who asks for it pays for the import.
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    script = get_completion_script(prog_name="holdfast", complete_var=ASKED, shell=shell.value)
    typer.echo(script)


def prepare() -> None:
    """Teach the parser to answer the scripts; it does so by itself when it runs."""
    from typer.completion import completion_init  # type: ignore[attr-defined]

    completion_init()
