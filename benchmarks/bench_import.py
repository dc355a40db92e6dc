"""CPU time of what a first program imports, beside Python's own start.

Each row is the median of starts that take turns: user and system time of the whole process. The standard library's row
is what the client needs of it. A program pays for the engine when it first calls `connect()`.

    python benchmarks/bench_import.py [--rounds 20] [--json]
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
from statistics import median

from harness import Row, carry_out, show, whole

PROGRAMS = {
    "nothing": "pass",
    "standard library": "import asyncio, dataclasses, ssl, urllib.parse",
    "oncewire.connect": "from oncewire import connect",
    "oncewire.client.sync.connect": "from oncewire.client.sync import connect",
    "a client that dials": "from oncewire import connect; connect('amqp://127.0.0.1')",
    "the same with a journal": "from oncewire.client import SqliteJournal, connect; connect('amqp://127.0.0.1')",
}
BYTECODE = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
"""Without these, as a user's program starts: a source that was imported before is not compiled again."""


def cpu_ms(program: str) -> float:
    """User and system time of one process that runs it."""
    environment = {name: value for name, value in os.environ.items() if name not in BYTECODE}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-P", "-c", program], check=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def measure(options: argparse.Namespace) -> None:
    """Start each program in turn; the first round writes bytecode and does not count."""
    starts: dict[str, list[float]] = {name: [] for name in PROGRAMS}
    for turn in range(options.rounds + 1):
        for name, program in PROGRAMS.items():
            taken = cpu_ms(program)
            if turn:
                starts[name].append(taken)
    bare = median(starts["nothing"])
    rows: list[Row] = [
        {"imports": name, "CPU ms": round(median(taken), 1), "above Python's start": round(median(taken) - bare, 1)}
        for name, taken in starts.items()
    ]
    show("import", rows, options.json)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="CPU time of importing the client.")
    parser.add_argument("--rounds", type=whole, default=20, help="starts of each program")
    carry_out(parser, measure)
