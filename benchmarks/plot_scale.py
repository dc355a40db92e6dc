"""Draws docs/evidence/scale-*.svg and journal-lengths.svg from their records, and writes the tables of docs/scale.md.

The files are the same whenever the figures are. Each names a digest of the figures it shows, so that a test without
matplotlib finds one that is out of date. Colours follow the reader's scheme, light or dark.

    python benchmarks/plot_scale.py [--tables]
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

DOCS = Path(__file__).resolve().parents[1] / "docs"
RECORD = DOCS / "evidence" / "scale.json"
LENGTHS = DOCS / "evidence" / "journal-lengths.json"
PAGE = DOCS / "scale.md"
FAILED = 1
COLOURS = ("#3b82c4", "#d97a1e", "#3a9d63", "#b8559b")
"""Seen well on white and on black."""
CPU = "router CPU us per message"
INK, PAPER, GRID = "#010203", "#fdfcfb", "#e0e1e2"
"""Stand for the variables of STYLE while matplotlib draws."""
STYLE = """<style>
svg { --ink: #24292f; --paper: #ffffff; --grid: #dfe3e8; }
@media (prefers-color-scheme: dark) { svg { --ink: #e3e8ee; --paper: #1e2129; --grid: #3c424d; } }
</style>
"""
SETTINGS: dict[str, Any] = {
    "svg.hashsalt": "oncewire",
    "svg.fonttype": "none",
    "font.size": 9,
    "font.family": "sans-serif",
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "axes.titlesize": 9,
    "axes.titlelocation": "left",
}

Record = Mapping[str, Any]
Row = Mapping[str, Any]


class Panel(NamedTuple):
    """One diagram: lines over an axis.

    Attributes:
        title: what is drawn, with its unit.
        x: what the axis below shows.
        lines: points by the line's name.
        log: the axes that are logarithmic: "", "x", "y" or "xy".
        words: names of the places 0, 1, ... of the axis below, where these are no numbers.
    """

    title: str
    x: str
    lines: dict[str, list[tuple[float, float]]]
    log: str = "x"
    words: Sequence[str] = ()


def column(rows: Sequence[Row], x: str, y: str) -> list[tuple[float, float]]:
    """Two columns of a table."""
    return [(row[x], row[y]) for row in rows]


# --- what is drawn ----------------------------------------------------------------------------------------------------


def connections(part: Record) -> list[Panel]:
    """Memory and CPU time of idle connections."""
    columns = {"kB for each idle connection": "kB each", "CPU us for each heartbeat": "CPU us per heartbeat"}
    return [
        Panel(title, "connections", {name: column(part["rows"], "connections", name)})
        for title, name in columns.items()
    ]


def windows(part: Record) -> list[Panel]:
    """Memory of unsettled deliveries."""
    held = {"bytes": column(part["rows"], "unsettled", "bytes each")}
    return [Panel("bytes for each unsettled delivery", "unsettled deliveries", held)]


def subscriptions(part: Record) -> list[Panel]:
    """What an attach costs, and what is kept of it."""
    places = ("at its router", "at another", "etcd")
    cpu = {place: column(part["rows"], "subscriptions", f"CPU us each, {place}") for place in places}
    memory = {place: column(part["rows"], "subscriptions", f"kB each, {place}") for place in places}
    return [
        Panel("CPU us for each attach", "subscriptions", cpu),
        Panel("kB for each subscription", "subscriptions", memory),
    ]


def storm(part: Record) -> list[Panel]:
    """Times."""
    times = {name: column(part["rows"], "subscriptions", f"{name} after s") for name in ("all answered", "all reached")}
    return [Panel("seconds after a router's death", "subscriptions", times)]


def topics(part: Record) -> list[Panel]:
    """CPU time per message by topics and patterns."""
    rows = part["topics"]
    by_topics = {
        "one subscription, many/#": [row for row in rows if row["subscriptions"] == 1],
        "one for each topic": [row for row in rows if row["subscriptions"] == row["topics"]],
    }
    by_patterns: dict[str, list[tuple[float, float]]] = {}
    for row in part["patterns"]:
        points = by_patterns.setdefault(f"subscription to {row['subscription']}", [])
        points.append((row["idle patterns"] or 1, row[CPU]))
    return [
        Panel(CPU, "topics", {name: column(mine, "topics", CPU) for name, mine in by_topics.items()}),
        Panel(CPU, "subscriptions that do not match", by_patterns),
    ]


def sizes(part: Record) -> list[Panel]:
    """CPU time per message by bytes."""
    cpu = {"us": [(row["bytes"] or 1, row["router CPU us"]) for row in part["rows"]]}
    return [Panel(CPU, "bytes of the body", cpu, "xy")]


def latency(part: Record) -> list[Panel]:
    """By load, the saturated one last."""
    loads = [*part["rows"][1:], part["rows"][0]]
    late = {name: [(place, row[f"{name} ms"]) for place, row in enumerate(loads)] for name in ("p50", "p99", "p99.9")}
    return [Panel("ms end to end", "share of the saturated rate", late, "y", [row["load"] for row in loads])]


def soak(part: Record) -> list[Panel]:
    """Memory over messages."""
    memory = {"MB": [(row["messages"] / 1e6, row["router MB"]) for row in part["rows"]]}
    return [Panel("router MB", "million messages", memory, "")]


def journals(part: Record) -> list[Panel]:
    """CPU time by the length of a journal."""
    names = {"appended": "append", "read": "read"}
    lines = {name: [(int(length), row[what]["cpu_us"]) for length, row in part.items()] for name, what in names.items()}
    return [Panel("CPU us for each message", "messages in the journal", lines)]


PLOTS: Mapping[str, Mapping[str, Callable[[Record], list[Panel]]]] = {
    "scale-idle.svg": {"connections": connections, "windows": windows},
    "scale-attaches.svg": {"subscriptions": subscriptions, "storm": storm},
    "scale-messages.svg": {"topics": topics, "sizes": sizes},
    "scale-time.svg": {"latency": latency, "soak": soak},
    "journal-lengths.svg": {"lengths": journals},
}
"""By the names of their files: the parts of their record that they show."""


def panels_of(name: str, record: Record) -> list[Panel]:
    """What is drawn of the parts that were measured."""
    return [panel for part, make in PLOTS[name].items() if part in record for panel in make(record[part])]


def plots_of(record: Record) -> list[str]:
    """The plots that show something."""
    return [name for name in PLOTS if panels_of(name, record)]


def digest_in(name: str, record: Record) -> str:
    """What the file of this plot must contain: a digest of the figures it shows."""
    return "figures " + hashlib.sha256(json.dumps(panels_of(name, record)).encode()).hexdigest()[:16]


# --- drawing ----------------------------------------------------------------------------------------------------------


def draw(name: str, record: Record) -> str:
    """One of PLOTS as SVG."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    panels = panels_of(name, record)
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(3.3 * len(panels), 2.9), layout="constrained")
        for place, panel in enumerate(panels, 1):
            paint(figure.add_subplot(1, len(panels), place), panel)
        file = io.StringIO()
        metadata = {"Date": None, "Creator": None, "Description": digest_in(name, record)}
        figure.savefig(file, format="svg", metadata=metadata)
    text = "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())
    for stands_for, variable in ((INK, "var(--ink)"), (PAPER, "var(--paper)"), (GRID, "var(--grid)")):
        text = text.replace(stands_for, variable)
    return text.replace(" <metadata>", f"{STYLE} <metadata>", 1)


def paint(axes: Any, panel: Panel) -> None:
    """One panel: from 0 on where an axis is linear."""
    for colour, (label, points) in zip(COLOURS, panel.lines.items(), strict=False):
        axes.plot(*zip(*points, strict=True), marker="o", markersize=3.5, linewidth=1.4, color=colour, label=label)
    axes.set_title(panel.title)
    axes.set_xlabel(panel.x)
    if "x" in panel.log:
        axes.set_xscale("log")
    if "y" in panel.log:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, 1.25 * max(y for points in panel.lines.values() for _, y in points))
    if panel.words:
        axes.set_xticks(range(len(panel.words)), panel.words)
    axes.grid(visible=True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if len(panel.lines) > 1:
        axes.legend()


# --- the tables of the page -------------------------------------------------------------------------------------------


def table(rows: Sequence[Row]) -> str:
    """Markdown, all columns of the rows."""
    lines = [f"| {' | '.join(rows[0])} |", f"|{'--:|' * len(rows[0])}"]
    for row in rows:
        cells = (f"{value:,}" if isinstance(value, int | float) else str(value) for value in row.values())
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def soak_rows(part: Record) -> list[Row]:
    """The first look, the one behind a fifth, and the last, in one row."""
    rows = part["rows"]
    fifth = rows[max(1, round(len(rows) * 0.2))]
    return [
        {
            "messages": part["messages"],
            "flows": part["flows"],
            "router CPU s": part["router CPU s"],
            "router CPU us per message": part["router CPU us per message"],
            "MB at the start": rows[0]["router MB"],
            f"after {fifth['messages']:,}": fifth["router MB"],
            "at the end": rows[-1]["router MB"],
        }
    ]


def transport_rows(part: Record) -> list[Row]:
    """By scheme, with the cheapest as the measure."""
    return [
        {"scheme": name, "router CPU us per message": round(median, 1), "times amqp": round(part["ratios"][name], 2)}
        for name, median in part["medians"].items()
    ]


def rows_of(name: str, part: Record) -> dict[str, Sequence[Row]]:
    """The tables of one part, by their names."""
    if name == "topics":
        return {"topics": part["topics"], "patterns": part["patterns"]}
    return {name: {"transports": transport_rows, "soak": soak_rows}.get(name, lambda part: part["rows"])(part)}


def tables(record: Record) -> dict[str, str]:
    """What stands between the marks of the page, by their names."""
    found = {}
    for part_name, part in record.items():
        for name, rows in rows_of(part_name, part).items():
            after = part["machine"].partition("load average ")[2]
            command = f"`{part['command']}`; load average before {part['load average before']}, after {after}."
            found[name] = f"{table(rows)}\n\n{command}"
    return found


def with_tables(page: str, record: Record) -> str:
    """The page with the tables of this record.

    Raises:
        ValueError: a mark is missing.
    """
    for name, text in tables(record).items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        if begin not in page or end not in page:
            raise ValueError(f"{PAGE.name} has no marks for {name}")
        before, _, rest = page.partition(begin)
        page = f"{before}{begin}{text}\n{end}{rest.partition(end)[2]}"
    return page


def main() -> int:
    """Draw and write."""
    parser = argparse.ArgumentParser(description="Plots and tables of docs/scale.md.")
    parser.add_argument("--tables", action="store_true", help="the tables only")
    options = parser.parse_args()
    record = json.loads(RECORD.read_text())
    PAGE.write_text(with_tables(PAGE.read_text(), record))
    if options.tables:
        return 0
    if find_spec("matplotlib") is None:
        print("plot_scale: the package matplotlib is missing: make tools", file=sys.stderr)
        return FAILED
    for each in (record, json.loads(LENGTHS.read_text())):
        for name in plots_of(each):
            (RECORD.parent / name).write_text(draw(name, each))
    return 0


if __name__ == "__main__":
    sys.exit(main())
