"""Where the store is: an address, and how it is shown without its secrets."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from urllib.parse import unquote

from holdfast.errors import ConfigurationError

_PASSWORD = re.compile(r"(://[^:/@]*:)(.*)@", re.DOTALL)  # up to the last @, to be on the safe side
_SECRET_PARAMETER = re.compile(r"([?&](?:password|sslpassword)=)([^&#]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where the store is, and how to use it."""

    url: str = field(repr=False)  # may hold a password
    schema: str = "holdfast"
    connections_max: int = 8
    durability: str = "full"
    pooled: bool | None = None  # behind PgBouncer in transaction mode; None: find out
    # A direct address for LISTEN, when `url` leads to a pooler.
    listen_url: str | None = field(default=None, repr=False)


def sqlite_path(url: str) -> str:
    """`sqlite:///orders.db` is a relative path, `sqlite:////var/orders.db` an absolute one."""
    rest = url.removeprefix("sqlite://")
    path = rest.removeprefix("/")
    if not path:
        raise ConfigurationError("the address names no file: write sqlite:///orders.db")
    return path


def redacted_url(url: str) -> str:
    """The address without its passwords, for messages, logs and tables.

    Works on the text itself: a password that was not escaped must not slip through a parser.
    """
    return _SECRET_PARAMETER.sub(r"\1***", _PASSWORD.sub(r"\1***@", url))


def secrets_of(*urls: str | None) -> list[str]:
    """The passwords in these addresses, as written and as meant, so that a text can be cleaned."""
    found: list[str] = []
    for url in filter(None, urls):
        found += [match.group(2) for match in _PASSWORD.finditer(url)]
        found += [match.group(2) for match in _SECRET_PARAMETER.finditer(url)]
    return sorted({text for one in found for text in (one, unquote(one)) if text}, key=len)[::-1]
