"""Work queues: what an operation costs with ever more items in the store, and how many items workers finish a second.

    python benchmarks/bench_queue.py [--only cost|rate] [--sizes 1000 100000 3000000] [--rounds 100]
                                     [--items 2000] [--runs 3]

Rates stand beside those of procrastinate and PgQueuer in the same PostgreSQL server: pip install "oncewire[bench]".
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import astuple
from pathlib import Path

import queue_cost
import queue_rate
from harness import is_missing, machine

from bridges.workqueue.contents import QueueContents
from oncewire.store.postgres import PostgresStore
from oncewire.store.sqlite import SqliteStore
from oncewire.store.store import Store

ROOT = Path(__file__).resolve().parents[1]
PLOT = ROOT / "docs" / "evidence" / "queue-cost.svg"
WORKERS = (1, 4, 16)
NewDatabase = Callable[[], str]


def server(stack: ExitStack) -> tuple[NewDatabase, int] | None:
    """A PostgreSQL server of this run's own, which syncs to disk: what makes a database, and the server's pid."""
    sys.path.append(str(ROOT))
    from tests.support.postgres import find_postgresql, running_postgresql

    if is_missing("psycopg") or find_postgresql() is None:
        sys.stderr.write("PostgreSQL is not measured: its server or psycopg is missing: make tools\n")
        return None
    import psycopg

    words = stack.enter_context(running_postgresql(is_durable=True))
    known = dict(word.split("=", 1) for word in words.split())
    names = (f"bench_{number}" for number in itertools.count(1))

    def new_database() -> str:
        name = next(names)
        with psycopg.connect(f"{words} dbname=postgres", autocommit=True) as admin:
            admin.execute(f"CREATE DATABASE {name}")
        return f"postgresql:///{name}?host={known['host']}&user={known['user']}"

    pid = int((Path(known["host"]) / "data" / "postmaster.pid").read_text().split()[0])
    return new_database, pid


def print_cost(new_database: NewDatabase | None, sizes: list[int], rounds: int, folder: Path) -> None:
    """Fill the stores, measure, print tables and draw the plot."""
    figures = {}
    for kind in ("sqlite", "postgresql"):
        stores: list[Store] = []
        for size in sizes:
            if kind == "sqlite":
                stores.append(SqliteStore(folder / f"{size}.db", contents=QueueContents()))
            elif new_database is not None:
                stores.append(PostgresStore(new_database(), contents=QueueContents()))
        if not stores:
            continue
        worlds = [queue_cost.filled(kind, store, size) for store, size in zip(stores, sizes, strict=True)]
        queue_cost.measured(worlds, rounds)
        figures[kind] = worlds
        print(f"\n{kind}: microseconds, durable (processor time of the client); medians of {rounds}\n")
        print("\n".join(queue_cost.table(worlds)))
        for store in stores:
            store.close()
    if not is_missing("matplotlib"):
        queue_cost.plot(figures, PLOT)


def print_rates(new_database: NewDatabase | None, pid: int, items: int, runs: int, folder: Path) -> None:
    """Measure all queues in turns, every other round backwards, and print medians and the medians of the ratios."""
    found: dict[tuple[str, int], list[queue_rate.Rate]] = {}
    files = itertools.count(1)
    rivals = {} if new_database is None or is_missing(*queue_rate.RIVALS, "asyncpg") else queue_rate.RIVALS
    names = ["sqlite", *(("postgresql",) if new_database else ()), *rivals]
    for number, workers in itertools.product(range(runs), WORKERS):
        for name in names[:: -1 if number % 2 else 1]:
            run = rivals.get(name, queue_rate.oncewire)
            if name == "sqlite":
                url, server_pid = f"sqlite:///{folder}/rate-{next(files)}.db", 0
            else:
                assert new_database is not None
                url, server_pid = new_database(), pid
            rate = queue_rate.measure(run, url, workers, items, server_pid)
            sys.stderr.write(f"{name}, {workers} workers: {rate.a_second:,.0f}/s, {rate.processor_us:,.0f} us\n")
            found.setdefault((name, workers), []).append(rate)
    print(f"\nItems taken and finished a second (processor us for each, client and server); medians of {runs} rounds.")
    print("Ratios: medians of the rounds' ratios, rates (processor times); more than 1 where ours is better\n")
    print("| workers | " + " | ".join(names) + " | " + " | ".join(f"ratio to {name}" for name in rivals) + " |")
    print("|--:|" + "--:|" * (len(names) + len(rivals)))
    for workers in WORKERS:
        cells = []
        for name in names:
            rates = found[name, workers]
            rate, busy = (statistics.median(values) for values in zip(*map(astuple, rates), strict=True))
            cells.append(f"{rate:,.0f} ({busy:,.0f})")
        for name in rivals:
            pairs = list(zip(found["postgresql", workers], found[name, workers], strict=True))
            rate = statistics.median(ours.a_second / theirs.a_second for ours, theirs in pairs)
            busy = statistics.median(theirs.processor_us / ours.processor_us for ours, theirs in pairs)
            cells.append(f"{rate:.2f} ({busy:.2f})")
        print(f"| {workers} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("cost", "rate"))
    sizes = [1_000, 100_000, 3_000_000]
    parser.add_argument("--sizes", type=int, nargs="+", default=sizes, help="10000000 takes three minutes more")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--runs", type=int, default=3, help="of the rates")
    parser.add_argument("--items", type=int, default=2_000, help="of one run of the rates")
    given = parser.parse_args()
    print(machine())
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        started = server(stack)
        new_database, pid = started or (None, 0)
        if given.only != "rate":
            print_cost(new_database, given.sizes, given.rounds, folder)
        if given.only != "cost":
            print_rates(new_database, pid, given.items, given.runs, folder)
    print(machine())


if __name__ == "__main__":
    main()
