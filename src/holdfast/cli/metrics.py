"""Where a worker serves its metrics: on this machine only, unless somebody insists."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import NamedTuple

from holdfast.app import Holdfast
from holdfast.errors import ConfigurationError
from holdfast.telemetry.logs import LOGGER

LOOPBACK = "127.0.0.1"
PORT_MAX = 65535


class MetricsPlace(NamedTuple):
    """A host and the port of the first node."""

    host: str
    port: int
    insecure: bool = False

    def options(self, number: int) -> list[str]:
        """For the command of the node with this number, from 0."""
        at = ["--metrics-host", self.host, "--metrics-port", str(self.port + number)]
        return [*at, "--insecure"] if self.insecure else at


def metrics_place(
    host: str, port: int | None, *, nodes: int, insecure: bool
) -> MetricsPlace | None:
    """Where to serve, or None; what cannot work is refused before anything is started."""
    if port is None:
        return None
    if not insecure and not _is_loopback(host):
        raise ConfigurationError(
            f"--metrics-host {host} would show the metrics to other machines, without a password; "
            "add --insecure if that is what you want"
        )
    if port + nodes - 1 > PORT_MAX:
        raise ConfigurationError(
            f"{nodes} nodes need the ports from {port} on, and {PORT_MAX} is the last"
        )
    from holdfast.telemetry import metrics  # noqa: F401  # MissingExtra now, not in each child

    return MetricsPlace(host, port, insecure)


@contextmanager
def metrics_served(app: Holdfast, place: MetricsPlace | None) -> Iterator[None]:
    """Serve the app's metrics there for as long as the block lasts."""
    if place is None:
        yield
        return
    from holdfast.telemetry.metrics import Served

    with app.metrics() as metrics:
        served = Served(metrics, host=place.host, port=place.port)
        host = f"[{place.host}]" if ":" in place.host else place.host
        LOGGER.info("metrics are at http://%s:%d/metrics", host, place.port)
        try:
            yield
        finally:
            served.close()


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
