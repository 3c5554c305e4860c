"""Flask: handlers run inside the application context, and a node may run beside the requests.

    init_app(flask_app, holdfast)               handlers may use current_app, and extensions
    init_app(flask_app, holdfast, node=True)    and this process runs tasks too

Flask is not imported here: the application brings what is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any

from holdfast.app import Holdfast
from holdfast.errors import ConfigurationError
from holdfast.handler import Handler
from holdfast.integrations.background import BackgroundNode

NAME = "holdfast"


def init_app(
    flask_app: Any,
    holdfast: Holdfast,
    *,
    node: bool = False,
    queues: str | Sequence[str] | None = None,
    **settings: Any,
) -> BackgroundNode:
    """Bind the tasks of `holdfast` to this application, as `flask_app.extensions["holdfast"]`.

    From now on handlers of threads and of the loop run inside `flask_app.app_context()`, also in
    `holdfast worker`; those of processes make an application of their own.  With `node` a node
    starts in a thread at the first request, so that neither a command nor the parent of forked
    servers ever runs one.  It stops when the process exits: running attempts finish first.
    """
    if NAME in flask_app.extensions:
        raise ConfigurationError("this Flask application has a Holdfast already")
    holdfast.registry.wrap(_inside(flask_app))
    extension = BackgroundNode(holdfast, queues, **settings)
    flask_app.extensions[NAME] = extension
    if node:
        flask_app.before_request(extension.start)
    return extension


def _inside(flask_app: Any) -> Callable[[Handler], Handler]:
    """Puts the application context around a handler that runs in this process."""

    def around(handler: Handler) -> Handler:
        function = handler.function
        if handler.mode == "process":
            return handler

        @wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            with flask_app.app_context():
                return function(*args, **kwargs)

        @wraps(function)
        async def run_async(*args: Any, **kwargs: Any) -> Any:
            with flask_app.app_context():
                return await function(*args, **kwargs)

        return replace(handler, function=run_async if handler.mode == "async" else run)

    return around
