"""Django: a backend for its tasks, on the database of its models.

    INSTALLED_APPS = [..., "holdfast.integrations.django"]
    TASKS = {"default": {"BACKEND": "holdfast.integrations.django.HoldfastBackend"}}

    python manage.py migrate           makes the tables of Holdfast too
    python manage.py holdfast_worker   runs tasks

`enqueue` inside of `transaction.atomic()` commits or vanishes with the block.
"""

from holdfast.integrations.django import flavour  # noqa: F401  (first: it says what is missing)
from holdfast.integrations.django.backend import HoldfastBackend

__all__ = ["HoldfastBackend"]
