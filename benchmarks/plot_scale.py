"""Draws docs/evidence/scale-*.svg from docs/evidence/scale.json, and writes the tables of docs/scale.md.

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
PAGE = DOCS / "scale.md"
FAILED = 1
RABBITMQ_KB = 133
"""What RabbitMQ states for an idle connection."""
COLOURS = ("#3b82c4", "#d97a1e", "#3a9d63", "#b8559b")
"""Seen well on white and on black."""
INK, PAPER, GRID = "#010203", "#fdfcfb", "#e0e1e2"
"""Stand for the variables of STYLE while matplotlib draws."""
STYLE = """<style>
svg { --ink: #24292f; --paper: #ffffff; --grid: #dfe3e8; }
@media (prefers-color-scheme: dark) { svg { --ink: #e3e8ee; --paper: #1e2129; --grid: #3c424d; } }
</style>
"""
SETTINGS: dict[str, Any] = {
    "svg.hashsalt": "oncewire", "svg.fonttype": "none", "font.size": 9, "font.family": "sans-serif",
    "text.color": INK, "axes.edgecolor": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
    "figure.facecolor": PAPER, "axes.facecolor": PAPER, "savefig.facecolor": PAPER, "legend.frameon": False,
    "legend.fontsize": 8, "axes.titlesize": 9, "axes.titlelocation": "left",
}  # fmt: skip

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


def idle(record: Record) -> list[Panel]:
    """Connections, and unsettled deliveries."""
    rows, windows = record["connections"]["rows"], record["windows"]["rows"]
    memory = {
        "Oncewire": column(rows, "connections", "kB each"),
        "RabbitMQ, as stated": [(row["connections"], RABBITMQ_KB) for row in rows],
    }
    held = {"bytes": column(windows, "unsettled", "bytes each")}
    return [
        Panel("kB for each idle connection", "connections", memory, "xy"),
        Panel("bytes for each unsettled delivery", "unsettled deliveries", held),
    ]


def attaches(record: Record) -> list[Panel]:
    """Subscriptions and storms."""
    rows, storms = record["subscriptions"]["rows"], record["storm"]["rows"]
    places = ("at its router", "at another", "etcd")
    cpu = {place: column(rows, "subscriptions", f"CPU us each, {place}") for place in places}
    memory = {place: column(rows, "subscriptions", f"kB each, {place}") for place in places}
    times = {
        "all answered": column(storms, "subscriptions", "all answered after s"),
        "all reached": column(storms, "subscriptions", "all reached after s"),
    }
    return [
        Panel("CPU us for each attach", "subscriptions", cpu),
        Panel("kB for each subscription", "subscriptions", memory),
        Panel("seconds after a router's death", "subscriptions", times),
    ]


def messages(record: Record) -> list[Panel]:
    """CPU time per message by topics, patterns and sizes."""
    cpu = "router CPU us per message"
    topics, patterns = record["topics"]["topics"], record["topics"]["patterns"]
    by_topics = {
        "one subscription, many/#": [(row["topics"], row[cpu]) for row in topics if row["subscriptions"] == 1],
        "one for each topic": [(row["topics"], row[cpu]) for row in topics if row["subscriptions"] == row["topics"]],
    }
    by_patterns: dict[str, list[tuple[float, float]]] = {}
    for row in patterns:
        by_patterns.setdefault(f"subscription to {row['subscription']}", []).append((row["idle patterns"] or 1, row[cpu]))
    sizes = {"us": [(row["bytes"] or 1, row["router CPU us"]) for row in record["sizes"]["rows"]]}
    return [
        Panel("router CPU us per message", "topics", by_topics),
        Panel("router CPU us per message", "subscriptions that do not match", by_patterns),
        Panel("router CPU us per message", "bytes of the body", sizes, "xy"),
    ]


def over_time(record: Record) -> list[Panel]:
    """Latency by load, and memory over a long run."""
    loads = [*record["latency"]["rows"][1:], record["latency"]["rows"][0]]
    late = {
        name: [(place, row[f"{name} ms"]) for place, row in enumerate(loads)] for name in ("p50", "p99", "p99.9")
    }
    memory = {"MB": [(row["messages"] / 1e6, row["router MB"]) for row in record["soak"]["rows"]]}
    return [
        Panel("ms end to end", "share of the saturated rate", late, "y", [row["load"] for row in loads]),
        Panel("router MB", "million messages", memory, ""),
    ]


PLOTS: Mapping[str, Callable[[Record], list[Panel]]] = {
    "scale-idle.svg": idle, "scale-attaches.svg": attaches, "scale-messages.svg": messages,
    "scale-time.svg": over_time,
}  # fmt: skip
"""By the names of their files."""


def digest_in(name: str, record: Record) -> str:
    """What the file of this plot must contain: a digest of the figures it shows."""
    return "figures " + hashlib.sha256(json.dumps(PLOTS[name](record)).encode()).hexdigest()[:16]


# --- drawing ----------------------------------------------------------------------------------------------------------


def draw(name: str, record: Record) -> str:
    """One of PLOTS as SVG."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    panels = PLOTS[name](record)
    with mpl.rc_context(SETTINGS):
        figure = Figure(figsize=(3.3 * len(panels), 2.9), layout="constrained")
        for place, panel in enumerate(panels, 1):
            paint(figure.add_subplot(1, len(panels), place), panel)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None, "Description": digest_in(name, record)})
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
    return [{
        "messages": part["messages"], "flows": part["flows"], "router CPU s": part["router CPU s"],
        "router CPU us per message": part["router CPU us per message"], "MB at the start": rows[0]["router MB"],
        f"after {fifth['messages']:,}": fifth["router MB"], "at the end": rows[-1]["router MB"],
    }]  # fmt: skip


def transport_rows(part: Record) -> list[Row]:
    """By scheme, with the cheapest as the measure."""
    return [
        {"scheme": name, "router CPU us per message": round(median, 1), "times amqp": round(part["ratios"][name], 2)}
        for name, median in part["medians"].items()
    ]


def tables(record: Record) -> dict[str, str]:
    """What stands between the marks of the page, by their names."""
    rows: dict[str, Sequence[Row]] = {
        name: record[name]["rows"] for name in ("connections", "subscriptions", "watch", "storm", "windows", "sizes", "latency")
    }
    rows |= {"topics": record["topics"]["topics"], "patterns": record["topics"]["patterns"]}
    rows |= {"transports": transport_rows(record["transports"]), "soak": soak_rows(record["soak"])}
    found = {}
    for name, mine in rows.items():
        part = record["topics" if name == "patterns" else name]
        found[name] = f"{table(mine)}\n\n`{part['command']}`; load average before {part['load average before']}"
        found[name] += f", after {part['machine'].partition('load average ')[2]}."
    return found


def with_tables(page: str, record: Record) -> str:
    """The page with the tables of this record.

    Raises:
        ValueError: a mark is missing.
    """
    for name, text in tables(record).items():
        begin, end = f"<!-- begin {name} -->\n", f"\n<!-- end {name} -->"
        if begin not in page or end not in page:
            raise ValueError(f"{PAGE.name} has no marks for {name}")
        before, _, rest = page.partition(begin)
        page = before + begin + text + end + rest.partition(end)[2]
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
    for name in PLOTS:
        (RECORD.parent / name).write_text(draw(name, record))
    return 0


if __name__ == "__main__":
    sys.exit(main())
