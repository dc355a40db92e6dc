"""What one operation of a work queue costs, by the number of items in the store.

A third of the items is ready, a third waits, a third has ended. The sizes take turns, operation by operation, so that
whatever else the machine does slows all of them alike.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridges.workqueue import Commit, Handle, NewItem, Operations, Rollback, Target
from bridges.workqueue.sql_schema import QUEUES
from oncewire.store.store import Store

PAYLOAD = b"x" * 100
PORTION = 100_000
"""Items of one statement of the fill."""
LATER_S = 864_000.0
US = 1_000_000
NUMBERS = "WITH RECURSIVE n (i) AS (SELECT CAST(? AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i < ?) "
INDEXES = [
    statement
    for migration in QUEUES.migrations
    for statement in migration
    if statement.startswith("CREATE INDEX") and {"oncewire_items", "oncewire_history"} & set(statement.split())
]
"""Made when the rows are there: ten million entries one after the other take many times as long."""
# By database: a time between 0 and LATER_S from now, and payloads of 100 bytes.
RANDOM = {"sqlite": "abs(random()) % 864000000000", "postgresql": "CAST(random() * 864000000000 AS BIGINT)"}
BYTES = {"sqlite": "zeroblob(100)", "postgresql": "decode(repeat('00', 100), 'hex')"}


@dataclass
class Filled:
    """A store with so many items, and what was measured there.

    Attributes:
        durable_us: of each run of an operation, by its name.
        processor_us: time of this process, and so of all of SQLite.
    """

    store: Store
    items: int
    durable_us: dict[str, list[float]] = field(default_factory=dict)
    processor_us: dict[str, list[float]] = field(default_factory=dict)
    held: list[Handle] = field(default_factory=list)

    def do(self, job: Callable[[Operations], Any]) -> Any:
        """Run a job in a transaction."""
        return self.store.transact([job])[0][0]

    def measure(self, name: str, job: Callable[[Operations], Any]) -> Any:
        """Run a job in a transaction, and note what it took."""
        processor, began = time.process_time(), time.perf_counter()
        result = self.do(job)
        self.durable_us.setdefault(name, []).append((time.perf_counter() - began) * US)
        self.processor_us.setdefault(name, []).append((time.process_time() - processor) * US)
        return result


def filled(kind: str, store: Store, items: int) -> Filled:
    """Fill a new store."""
    world = Filled(store, items)
    for queue in ("ready", "waiting", "other"):
        world.do(lambda do: do.configure(queue))  # noqa: B023
    began = time.perf_counter()
    now = int(time.time() * US)
    part = items // 3
    for index in INDEXES:
        world.do(lambda do: do.execute(f"DROP INDEX {index.split()[2]}"))  # noqa: B023
    for queue, due in (("ready", f"{now - items} + i"), ("waiting", f"{now + 3600 * US} + {RANDOM[kind]}")):
        _in_portions(
            world,
            part,
            f"INSERT INTO oncewire_items (queue, priority, due, created, payload) {NUMBERS}"
            f"SELECT '{queue}', 3 + i % 3, {due}, {now}, {BYTES[kind]} FROM n",
        )
    _in_portions(
        world,
        part,
        "INSERT INTO oncewire_history (item, queue, ending, created, ended, expires, retries, reservation, priority,"
        f" payload, reason, targets) {NUMBERS}"
        f"SELECT {10 * items} + i, 'ready', 'done', 0, {now - items} + i, {now + 86400 * US} + i, 0, 1, 4,"
        f" {BYTES[kind]}, '', '[]' FROM n",
    )
    before, after = (["SET LOCAL statement_timeout = 0"], ["ANALYZE"]) if kind == "postgresql" else ([], [])
    world.do(lambda do: [do.execute(statement) for statement in (*before, *INDEXES, *after)])
    sys.stderr.write(f"{kind}: {items:,} items stored in {time.perf_counter() - began:.0f} s\n")
    return world


def _in_portions(world: Filled, items: int, statement: str) -> None:
    for start in range(0, items, PORTION):
        end = min(start + PORTION, items) - 1
        world.do(lambda do: do.execute(statement, (start, end)))  # noqa: B023


def one_round(world: Filled, number: int) -> None:
    """Each operation once, on one item each."""
    item = [NewItem(PAYLOAD)]
    later = [NewItem(PAYLOAD, delay=(number * 7919) % 1000 / 1000 * LATER_S)]
    world.measure("push", lambda do: do.push("ready", item))
    world.measure("push, later", lambda do: do.push("waiting", later))
    (taken,) = world.measure("reserve", lambda do: do.reserve("ready", 1, 3600.0))
    world.measure("rollback", lambda do: do.rollback([Rollback(taken.handle, 0.0)]))
    commit, move = (each.handle for each in world.do(lambda do: do.reserve("ready", 2, 3600.0)))
    world.measure("commit", lambda do: do.commit([Commit(commit)]))
    world.measure("move", lambda do: do.move(move, [Target("other")]))
    # One is ready, behind all those that wait.
    world.do(lambda do: do.push("waiting", [NewItem(PAYLOAD, priority=0)]))
    (found,) = world.measure("reserve, others wait", lambda do: do.reserve("waiting", 1, 3600.0))
    world.do(lambda do: do.commit([Commit(found.handle)]))
    if not number % 10:
        world.measure("statistics", lambda do: do.statistics("ready"))


def measured(worlds: list[Filled], rounds: int) -> None:
    """Run all operations at all sizes, in turns."""
    for number in range(rounds):
        for world in worlds:
            one_round(world, number)


def table(worlds: list[Filled]) -> list[str]:
    """Markdown: the median of each operation, durable and as processor time, by size."""
    head = ["operation", *(f"{world.items:,}" for world in worlds), "largest / smallest"]
    lines = ["| " + " | ".join(head) + " |", "|---|" + "--:|" * (len(head) - 1)]
    for name in worlds[0].durable_us:
        medians = [
            (statistics.median(world.durable_us[name]), statistics.median(world.processor_us[name])) for world in worlds
        ]
        cells = [f"{durable:,.0f} ({processor:,.0f})" for durable, processor in medians]
        ratio = f"{medians[-1][0] / medians[0][0]:.2f} ({medians[-1][1] / medians[0][1]:.2f})"
        lines.append("| " + " | ".join([name, *cells, ratio]) + " |")
    return lines


def plot(figures: Mapping[str, list[Filled]], path: Path) -> None:
    """Draw the processor time, or the durable time where another process works, by size."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    settings: Any = {"svg.hashsalt": "oncewire", "svg.fonttype": "none", "font.size": 9, "font.family": "sans-serif"}
    with mpl.rc_context(settings):
        figure = Figure(figsize=(4.6 * len(figures), 3.6), layout="constrained")
        for place, (kind, worlds) in enumerate(figures.items(), 1):
            axes = figure.add_subplot(1, len(figures), place)
            for name in worlds[0].durable_us:
                times = [statistics.median(world.durable_us[name]) / 1000 for world in worlds]
                axes.plot([world.items for world in worlds], times, marker="o", markersize=3, linewidth=1, label=name)
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.set_xlabel("items in the store")
            axes.set_ylabel("milliseconds, durable (median)")
            axes.set_title(kind)
            axes.grid(visible=True, color="#e4e4e4", linewidth=0.8)
            axes.legend(fontsize=7)
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    path.write_text("".join(f"{line.rstrip()}\n" for line in path.read_text().splitlines()))
