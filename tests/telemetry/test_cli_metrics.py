"""`holdfast worker --metrics-port`: who may scrape, where, and what happens when that cannot be."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import urllib.request

import pytest

from e2e.test_cli_worker import PATIENCE_S, Place
from holdfast.cli.metrics import metrics_place
from holdfast.errors import ConfigurationError
from holdfast.testing.processes import free_port, until
from telemetry.scrape import Scrape


def scraped(port: int) -> Scrape:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        return Scrape(answer.read())


def ended(place: Place, *options: str) -> tuple[int, str]:
    """The exit code of a worker that does not start, and what it says."""
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", "worker", "orders", *options],
        cwd=place.folder,
        env=place.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def two_free_ports() -> int:
    """The first of two neighbours that nobody uses now."""
    while True:
        port = free_port()
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port + 1)) != 0:
                return port


def test_a_worker_serves_what_it_counted_until_it_stops(place: Place):
    port = free_port()
    worker = place.start("--metrics-port", str(port))
    place.enqueue("note", "noted")
    place.has("noted")
    at = {"queue": "default", "kind": "note", "outcome": "succeeded"}
    worker.has_said(f"http://127.0.0.1:{port}/metrics")

    until(lambda: scraped(port).value("holdfast_attempts_total", **at) == 1, PATIENCE_S)
    assert scraped(port).value("holdfast_slots", mode="async", state="free") == 200

    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(PATIENCE_S) == 0
    with pytest.raises(OSError):
        scraped(port)


def test_each_of_several_nodes_has_the_next_port(place: Place):
    port = two_free_ports()
    worker = place.start("--processes", "2", "--metrics-port", str(port))
    worker.has_said("serves", times=2)

    slots = [scraped(port + number).labels("holdfast_slots", "state") for number in (0, 1)]
    assert slots == [{"booked", "free"}] * 2

    worker.process.send_signal(signal.SIGTERM)
    assert worker.process.wait(PATIENCE_S) == 0


def test_a_port_that_somebody_uses_is_a_clear_error(place: Place):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]

        code, said = ended(place, "--metrics-port", str(port))

    assert code == 2
    assert "error HF1108" in said
    assert f"metrics cannot be served at 127.0.0.1 port {port}: Address already in use" in said


def test_of_several_nodes_a_port_in_use_ends_them_all(place: Place):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()

        code, said = ended(
            place, "--processes", "2", "--metrics-port", str(taken.getsockname()[1] - 1)
        )

    assert code == 2
    assert "Address already in use" in said


def test_a_worker_that_others_could_scrape_is_refused(place: Place):
    code, said = ended(place, "--metrics-port", str(free_port()), "--metrics-host", "0.0.0.0")

    assert code == 2
    assert "error HF1108" in said
    assert "--insecure" in said


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.org", "", "127.0.0.1 "])
def test_an_address_that_others_can_reach_needs_to_be_insisted_on(host: str):
    with pytest.raises(ConfigurationError, match="--insecure"):
        metrics_place(host, 9464, nodes=1, insecure=False)

    assert metrics_place(host, 9464, nodes=1, insecure=True) == (host, 9464, True)
    assert metrics_place(host, None, nodes=1, insecure=False) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "localhost"])
def test_this_machine_may_always_be_named(host: str):
    place = metrics_place(host, 9464, nodes=2, insecure=False)

    assert place.options(1) == ["--metrics-host", host, "--metrics-port", "9465"]


def test_who_insists_may_be_scraped_by_others(place: Place):
    port = free_port()
    worker = place.start("--metrics-port", str(port), "--metrics-host", "0.0.0.0", "--insecure")
    worker.has_said("serves")

    assert "holdfast_slots" in scraped(port).names


def test_a_port_that_is_none_is_wrong_usage(place: Place):
    for port in ("0", "65536", "many"):
        code, said = ended(place, "--metrics-port", port)

        assert code == 2
        assert "error HF1001" in said


def test_ports_beyond_the_last_are_refused_before_a_node_starts(place: Place):
    code, said = ended(place, "--processes", "3", "--metrics-port", "65534")

    assert code == 2
    assert "3 nodes need the ports from 65534 on" in said


def test_without_the_library_the_worker_says_how_to_install_it(place: Place):
    (place.folder / "prometheus_client.py").write_text("raise ImportError\n", encoding="utf-8")

    for options in ([], ["--processes", "2"]):
        code, said = ended(place, *options, "--metrics-port", str(free_port()))

        assert code == 1
        assert "pip install 'holdfast[prometheus]'" in said
        assert "error HF1500" in said
