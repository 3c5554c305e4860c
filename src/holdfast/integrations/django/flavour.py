"""Which tasks: `django.tasks` of Django 6 and later, else the backport `django_tasks`.

This is the only place that knows there are two.  Both have the same classes; a name that differs
gets Django's own here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from holdfast.errors import MissingExtra


def _imported() -> Any:
    for name in ("django.tasks", "django_tasks"):
        try:
            return import_module(name)
        except ModuleNotFoundError as error:
            if error.name not in (name, "django"):
                raise  # it is there, and something that it needs is not
    raise MissingExtra("django", "the backend for Django's tasks")


api: Any = _imported()
base: Any = import_module(f"{api.__name__}.base")
exceptions: Any = import_module(f"{api.__name__}.exceptions")
signals: Any = import_module(f"{api.__name__}.signals")
BaseTaskBackend: Any = import_module(f"{api.__name__}.backends.base").BaseTaskBackend
InvalidTask: Any = getattr(exceptions, "InvalidTask", None) or exceptions.InvalidTaskError

_IS_DJANGO = api.__name__ == "django.tasks"
normalize_json: Any = import_module(
    "django.utils.json" if _IS_DJANGO else "django_tasks.utils"
).normalize_json
