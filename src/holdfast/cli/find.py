"""Finding what a command works on: the app in a module, or the store at an address."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from difflib import get_close_matches
from pathlib import Path
from random import Random
from typing import Annotated

import typer

from holdfast.address import secrets_of, sqlite_path
from holdfast.app import Holdfast
from holdfast.cli.problems import note
from holdfast.clock import SystemClock
from holdfast.config import Config, load_config
from holdfast.errors import ConfigurationError, StoreUnavailable
from holdfast.node.compose import Runtime, make_store, open_runtime
from holdfast.store import Store
from holdfast.telemetry.events import Events

UrlOption = Annotated[
    str | None,
    typer.Option(
        "--url", help="The store's address; else HOLDFAST_URL or holdfast.toml. No passwords here."
    ),
]
SchemaOption = Annotated[
    str | None, typer.Option("--schema", help="The PostgreSQL schema of the tables.")
]
AppArgument = Annotated[
    str, typer.Argument(metavar="APP", help="module:attribute, or a module with `app` in it.")
]


def find_config(url: str | None, schema: str | None = None) -> Config:
    """The configuration of a command without an app."""
    if secrets_of(url):
        raise ConfigurationError(
            "a password in --url can be read by every user of this machine: "
            "set HOLDFAST_URL, or name a file with the address in HOLDFAST_URL_FILE"
        )
    return load_config({"url": url, "schema": schema})


@asynccontextmanager
async def found_store(config: Config) -> AsyncIterator[Store]:
    """The open store of the address.  Makes no SQLite file: a typo would look like success."""
    require_file(config)
    store = make_store(config.address, clock=SystemClock(), rng=Random())
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def found_runtime(config: Config) -> AsyncIterator[Runtime]:
    """The same with a client, for commands that change tasks and must tell the nodes."""
    require_file(config)
    store = make_store(config.address, clock=SystemClock(), rng=Random())
    runtime = await open_runtime(config.address, store, events=Events(), owns_store=True)
    try:
        yield runtime
    finally:
        await runtime.close()


def require_file(config: Config) -> None:
    if is_sqlite(config) and not Path(sqlite_path(config.url)).exists():
        raise StoreUnavailable(f"there is no file {sqlite_path(config.url)}")


def is_sqlite(config: Config) -> bool:
    return config.url.startswith("sqlite:")


def find_app(name: str) -> Holdfast:
    """The app that `module:attribute` names, imported with the working directory on the path."""
    module_name, _, attribute = name.partition(":")
    if not module_name or module_name.endswith(".py") or "/" in module_name:
        wanted = module_name.removesuffix(".py").strip("./").replace("/", ".") or "module"
        raise ConfigurationError(f"{name!r} is no module: write {wanted}:{attribute or 'app'}")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    found: object = _imported(module_name)
    for step in (attribute or "app").split("."):
        if not hasattr(found, step):
            raise ConfigurationError(_no_attribute(module_name, step, found))
        found = getattr(found, step)
    if not isinstance(found, Holdfast):
        raise ConfigurationError(
            f"{module_name}:{attribute or 'app'} is a {type(found).__name__}, not a Holdfast app"
        )
    return found


def _imported(module_name: str) -> object:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            _show_frames(error)
            raise ConfigurationError(f"{module_name} cannot be imported: {error}") from None
        files = [path.stem for path in Path.cwd().glob("*.py")]
        near = get_close_matches(module_name, files, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"looked in {os.getcwd()} and sys.path"
        raise ConfigurationError(f"there is no module {module_name!r}; {hint}") from None
    except ConfigurationError:
        raise
    except Exception as error:
        _show_frames(error)
        what = f"{type(error).__name__}: {error}"
        raise ConfigurationError(f"{module_name} cannot be imported: {what}") from None


def _show_frames(error: BaseException) -> None:
    """Where the user's own module failed; the frames of the import system help nobody."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [one for one in frames if "importlib" not in one.filename and one.filename != __file__]
    for line in traceback.format_list(own):
        note(line.rstrip())


def _no_attribute(module_name: str, attribute: str, module: object) -> str:
    apps = [
        name
        for name, value in getattr(module, "__dict__", {}).items()
        if isinstance(value, Holdfast)
    ]
    hint = f"did you mean {module_name}:{apps[0]}?" if apps else "it has no Holdfast app"
    return f"{module_name} has no attribute {attribute!r}; {hint}"
