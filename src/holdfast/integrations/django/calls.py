"""A call of a Django task, as it is stored and as it is found again.

The payload names the task by the path of its function.  Only what Django's decorator has made is
ever run: the path is looked up in modules that are imported already or belong to an installed
app, and what stands there must be a Task.  A path that somebody else wrote into the store leads
nowhere.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from django.apps import apps

from holdfast.integrations.django.flavour import InvalidTask, base
from holdfast.task import PRIORITY_DEFAULT


def task_at(path: str) -> Any:
    """The Task that stands at this path; LookupError says why there is none."""
    module_name, _, name = path.rpartition(".")
    module = sys.modules.get(module_name)
    if module is None:
        if apps.get_containing_app_config(path) is None:
            raise LookupError(
                f"{path!r} is in no installed app, and its module is not imported: add the app to "
                "INSTALLED_APPS, or import the module in AppConfig.ready()"
            )
        try:
            module = import_module(module_name)
        except ImportError as error:
            raise LookupError(f"{path!r} cannot be imported: {error}") from error
    found = getattr(module, name, None)
    if not isinstance(found, base.Task):
        raise LookupError(f"{path!r} is no Task: its function needs the decorator @task")
    return found


def path_of(task: Any) -> str:
    """The path by which a worker will find the task; InvalidTask when it would not."""
    path = str(task.module_path)
    if path.startswith("__main__."):
        raise InvalidTask(f"{task.name!r} is in the program itself: move it into a module")
    try:
        found = task_at(path)
    except LookupError as error:
        raise InvalidTask(str(error)) from error
    if found.func is not task.func:
        raise InvalidTask(f"{path!r} is another task: two functions have the same name")
    return path


def our_priority(theirs: int) -> int:
    """Theirs is 100 for the first and -100 for the last, ours 0 and 9; their 0 is our 5.

    Higher ones go in steps of 20, lower ones in steps of 25: 1 to 20 is 4, 81 to 100 is 0, -1 to
    -25 is 6, -76 to -100 is 9.
    """
    if theirs > 0:
        return PRIORITY_DEFAULT + (-theirs // 20)
    return PRIORITY_DEFAULT - (theirs // 25)
