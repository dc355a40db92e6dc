"""The plots of the record, as SVG files that are the same whenever the ledger is.

Each file names a digest of the numbers it shows, so that a test without matplotlib can know whether it is up to date.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from chaos.experiments.catalogue import MIXED, catalogue
from chaos.experiments.results import ANYWHERE, percentiles
from chaos.record.runs import Run, recorded_code, runs_of

BY_KIND = "chaos-by-kind.svg"
BY_PLACE = "chaos-by-place.svg"
SALT = "oncewire"
"""For the ids inside a file, which would differ from run to run otherwise."""
LINEAR_BELOW_S = 0.1
"""The axis of times is logarithmic above, so that faults nobody noticed have their place at 0."""
TICKS_S = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
DOT, MEDIAN, WHOLE = "#2f6fab", "#b3261e", "#8a8a8a"


class PlotsNotPossible(Exception):
    """matplotlib is missing. The text says how to get it."""


def require_matplotlib() -> None:
    """Raise PlotsNotPossible unless plots can be drawn."""
    if find_spec("matplotlib") is None:
        raise PlotsNotPossible("the package matplotlib is missing")


def draw(name: str, runs: Sequence[Run]) -> str:
    """One of PLOTS as SVG, of the code that the page is about.

    Raises:
        PlotsNotPossible: matplotlib cannot be imported.
    """
    require_matplotlib()
    import matplotlib as mpl
    from matplotlib.figure import Figure

    data = PLOTS[name].data(runs_of(runs, recorded_code(runs)))
    settings: Any = {"svg.hashsalt": SALT, "svg.fonttype": "none", "font.size": 9, "font.family": "sans-serif"}
    with mpl.rc_context(settings):
        figure = Figure(layout="constrained")
        if data:
            PLOTS[name].paint(figure, data)
        else:
            figure.text(0.5, 0.5, "No fault was fired with this code.", ha="center")
        file = io.StringIO()
        metadata = {"Date": None, "Creator": None, "Description": digest_of(data)}
        figure.savefig(file, format="svg", metadata=metadata)
    # Some lines end in a space.
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def digest_in(name: str, runs: Sequence[Run]) -> str:
    """What the file of this plot must contain."""
    return digest_of(PLOTS[name].data(runs_of(runs, recorded_code(runs))))


def digest_of(data: object) -> str:
    """A digest of the numbers that a plot shows."""
    return "numbers " + hashlib.sha256(json.dumps(data).encode()).hexdigest()[:16]


# --- each fault, by kind ----------------------------------------------------------------------------------------------


def _by_kind(runs: Sequence[Run]) -> list[list[Any]]:
    """Experiment, kind, recoveries, times until whole again; in seconds, in the order of the catalogue."""
    rows: list[list[Any]] = []
    for name in catalogue(1):
        rounds = [each for run in runs if run.experiment == name for each in run.rounds]
        kinds = dict.fromkeys(each.kind for each in rounds)
        for kind in sorted(kinds) if name == MIXED else kinds:
            mine = [each for each in rounds if each.kind == kind]
            rows.append(
                [name, kind, [each.recovery_ms / 1000 for each in mine], [each.repaired_ms / 1000 for each in mine]]
            )
    return rows


def _paint_by_kind(figure: Any, rows: Sequence[Any]) -> None:
    figure.set_size_inches(9.5, 1.2 + 0.2 * len(rows))
    axes = figure.subplots()
    before = None
    for place, (name, _, recoveries, whole) in enumerate(rows):
        if name != before:
            axes.axhline(place - 0.5, color="#d8d8d8", linewidth=0.8, zorder=0)
            before = name
        (whole_mark,) = axes.plot(_median(whole), place, "|", color=WHOLE, markersize=9, markeredgewidth=2, zorder=1)
        (dots,) = axes.plot(
            recoveries,
            [place] * len(recoveries),
            "o",
            color=DOT,
            alpha=0.45,
            markersize=4.5,
            markeredgewidth=0,
            zorder=2,
        )
        (median,) = axes.plot(_median(recoveries), place, "|", color=MEDIAN, markersize=9, markeredgewidth=2, zorder=3)
    axes.set_yticks(range(len(rows)), [kind for _, kind, _, _ in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.5, -0.5)
    _time_axis(axes, "recovery: seconds from the fault until every subscription is back at rate")
    axes.legend(
        [dots, median, whole_mark],
        ["one round", "median", "the fault itself is over (median)"],
        loc="lower center",
        bbox_to_anchor=(0.5, 1.0),
        ncols=3,
        frameon=False,
    )


# --- how soon all is well, by place -----------------------------------------------------------------------------------


def _by_place(runs: Sequence[Run]) -> dict[str, list[float]]:
    """Recoveries in seconds, smallest first, by what the fault took hold of."""
    found: dict[str, list[float]] = {}
    for run in runs:
        for each in run.rounds:
            found.setdefault(each.place, []).append(each.recovery_ms / 1000)
    ordered = sorted(found, key=lambda place: (place == ANYWHERE, place))
    return {place: sorted(found[place]) for place in ordered}


def _paint_by_place(figure: Any, found: Mapping[str, Sequence[float]]) -> None:
    figure.set_size_inches(9.5, 4.6)
    axes = figure.subplots()
    longest = max(max(times) for times in found.values())
    for times, place in zip(found.values(), found, strict=True):
        shares = [100 * (number + 1) / len(times) for number in range(len(times))]
        style = "--" if place == ANYWHERE else "-"
        axes.step(
            [0, *times, longest], [0, *shares, 100], where="post", linestyle=style, label=f"{place} ({len(times)})"
        )
    axes.set_ylim(0, 102)
    axes.set_ylabel("% of rounds")
    _time_axis(axes, "seconds from the fault until every subscription is back at rate")
    axes.legend(title="what the fault took hold of (rounds)", loc="lower right", frameon=True)


# --- both -------------------------------------------------------------------------------------------------------------


def _median(times: Sequence[float]) -> float:
    return percentiles(times)["p50"] / 1000


def _time_axis(axes: Any, label: str) -> None:
    axes.set_xscale("symlog", linthresh=LINEAR_BELOW_S, linscale=0.5)
    axes.set_xlim(left=-0.02)
    right = axes.get_xlim()[1]
    axes.set_xticks([tick for tick in TICKS_S if tick <= right])
    axes.set_xticks([], minor=True)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_xlabel(label)
    axes.grid(visible=True, axis="x", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


class _Plot:
    """What a plot shows, and how."""

    def __init__(self, data: Callable[[Sequence[Run]], Any], paint: Callable[[Any, Any], None]) -> None:
        self.data = data
        self.paint = paint


PLOTS: Mapping[str, _Plot] = {BY_KIND: _Plot(_by_kind, _paint_by_kind), BY_PLACE: _Plot(_by_place, _paint_by_place)}
"""By the names of their files, which lie beside the ledger."""
