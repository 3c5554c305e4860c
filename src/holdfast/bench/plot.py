"""Pictures of `fairness`: what each tenant gets, and how long it waits, in two ways to dispatch.

matplotlib is imported when something is drawn, after everything is measured: its memory would
count as the node's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from holdfast.bench.fairness import HEAVY, LIGHT, Comparison, Turn
from holdfast.errors import ConfigurationError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHARES, WAITS = "fairness_shares", "fairness_waits"
FORMATS = ("svg", "png")
TENANTS = {LIGHT: "light tenant (5 % of the tasks)", HEAVY: "heavy tenant (95 %)"}
# The light one on top of the wide one: where both have half, both are seen.
LINES: Mapping[str, Mapping[str, Any]] = {
    LIGHT: {"color": "#d95f02", "linewidth": 2, "zorder": 3},
    HEAVY: {"color": "#7fb2d9", "linewidth": 5, "zorder": 2},
}
FAIR, FIRST_COME = "fair", "first come, first served"
MODE_COLOURS = {FAIR: "#2a9d6f", FIRST_COME: "#9aa0a6"}
PERCENTILES = (50, 90, 99)
WINDOWS = 50  # so many shares are drawn for the whole run
SIZE_INCHES, DOTS_PER_INCH = (10.0, 4.4), 130
BAR = 0.38


@contextmanager
def drawing(folder: Path | None) -> Iterator[list[Comparison] | None]:
    """A list for what is to be drawn: its last entry is, at the end of the block.

    None without a folder.  A missing matplotlib is told before anything is measured.
    """
    if folder is None:
        yield None
        return
    if find_spec("matplotlib") is None:
        raise ConfigurationError(
            "--plot needs matplotlib, which is not installed: pip install holdfast[bench]"
        )
    folder.mkdir(parents=True, exist_ok=True)
    compared: list[Comparison] = []
    try:
        yield compared
    finally:
        if compared:
            draw(compared[-1], folder)


def draw(comparison: Comparison, folder: Path) -> list[Path]:
    """Write both pictures, each as SVG and PNG; answers the files."""
    ways = {FAIR: comparison.fair, FIRST_COME: comparison.first_come}
    pictures = {SHARES: _shares_figure(ways), WAITS: _waits_figure(ways)}
    files = []
    for name, figure in pictures.items():
        for ending in FORMATS:
            files.append(folder / f"{name}.{ending}")
            figure.savefig(files[-1], dpi=DOTS_PER_INCH)
    return files


def shares_over_time(turns: Sequence[Turn], key: str) -> tuple[list[float], list[float]]:
    """The key's share of each window of turns in per cent, and when the window's middle was."""
    size = max(len(turns) // WINDOWS, 1)
    times_s, shares = [], []
    for first in range(0, len(turns) - size + 1, size):
        window = turns[first : first + size]
        times_s.append(window[size // 2].started_s - turns[0].started_s)
        shares.append(100 * sum(turn.key == key for turn in window) / size)
    return times_s, shares


def waits_s(turns: Sequence[Turn], key: str) -> list[float]:
    """How long the key's tasks waited from the first turn of all: the percentiles, in order."""
    waited = sorted(turn.started_s - turns[0].started_s for turn in turns if turn.key == key)
    if not waited:
        return [0.0] * len(PERCENTILES)
    return [waited[min(len(waited) * p // 100, len(waited) - 1)] for p in PERCENTILES]


def _figure(title: str) -> Figure:
    from matplotlib.figure import Figure  # without pyplot: no window, no global state

    figure = Figure(figsize=SIZE_INCHES, layout="constrained")
    figure.suptitle(title, fontsize=13, fontweight="bold")
    return figure


def _shares_figure(ways: dict[str, Sequence[Turn]]) -> Figure:
    figure = _figure("Who is dispatched while 95 % of the tasks belong to one tenant")
    panels: Sequence[Axes] = figure.subplots(1, len(ways), sharex=True, sharey=True)
    for axes, (way, turns) in zip(panels, ways.items(), strict=True):
        for key, label in TENANTS.items():
            axes.plot(*shares_over_time(turns, key), label=label, **LINES[key])
        axes.set(title=way, xlabel="seconds since the first dispatch", ylim=(-3, 103))
        _tidy(axes, "both")
    panels[0].set_xlim(left=0)  # of both, when both are drawn
    panels[0].set_ylabel("share of the dispatches, %")
    return _with_legend(figure, panels[0])


def _waits_figure(ways: dict[str, Sequence[Turn]]) -> Figure:
    figure = _figure("How long tasks wait when all are there at the start")
    panels: Sequence[Axes] = figure.subplots(1, len(TENANTS), sharey=True)
    for axes, (key, label) in zip(panels, TENANTS.items(), strict=True):
        for number, (way, turns) in enumerate(ways.items()):
            places = [place + (number - 0.5) * BAR for place in range(len(PERCENTILES))]
            bars = axes.bar(places, waits_s(turns, key), BAR, label=way, color=MODE_COLOURS[way])
            axes.bar_label(bars, fmt="%.2f", padding=2, fontsize=9)
        axes.set_xticks(range(len(PERCENTILES)), [f"p{percent}" for percent in PERCENTILES])
        axes.set(title=label, xlabel="percentile of the tenant's tasks")
        axes.margins(y=0.12)
        _tidy(axes, "y")
    panels[0].set_ylabel("seconds from the first dispatch to the start")
    return _with_legend(figure, panels[0])


def _with_legend(figure: Figure, axes: Axes) -> Figure:
    """One legend below all panels: they show the same."""
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _tidy(axes: Axes, grid: Literal["both", "y"]) -> None:
    axes.grid(axis=grid, color="#dddddd", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
