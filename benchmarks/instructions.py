"""Machine instructions of the router per message, counted by valgrind: the same figure on every machine and every day.

Whole routers run in one process, on transports in memory (`chaos.fuzz.memory_router`), and clients whose frames were
encoded before anything is counted. Each load is carried out by forks of one process that has everything attached: one
carries few messages, one carries many, and the difference is what the messages cost. Sockets and the event loop's own
work are not in it.

    python benchmarks/instructions.py [--sources] [--check] [--write] [--json]

What is installed is counted: the compiled build, or pure Python. `--sources` counts the sources in either case.

In a counted process time does not pass: turns end by time, and a busy machine would count more of them. What is random
in a router (ids, nonces, addresses in memory) changes a figure by half a percent, now and then by two.

The baseline is docs/evidence/instructions.json; `--write` writes the figures of the counted build into it. With
`--check` the exit code is 3 where a figure has grown by more than 3 % in each of three counts, unless Python, compiler
or valgrind are others than there.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

PROJECT = Path(__file__).resolve().parents[1]
BASELINE = PROJECT / "docs" / "evidence" / "instructions.json"
FEW, MANY = 500, 3000
BATCH = 50
"""Messages of one write: what a read of a busy socket brings."""
SIZE = 100
"""Bytes of a message's body."""
GROWTH_LIMIT = 0.03
"""A figure that grows by more needs a changed baseline."""
COUNTS = 3
"""So often `--check` counts a load that seems to have grown; the least is its figure."""
DEADLINE_S = 1200.0
GROWN = 3
"""Exit code."""


@dataclass(frozen=True, slots=True)
class Load:
    """Messages from the first router to subscribers at the last."""

    name: str
    routers: int
    subscribers: int


LOADS = (Load("1 -> 1", 1, 1), Load("1 -> 4", 1, 4), Load("chain of three, 1 -> 1", 3, 1))


class Failed(Exception):
    """The count is not valid; the text says why."""


# --- what is counted: runs under valgrind -----------------------------------------------------------------------------


def serve(loads: Sequence[Load], messages: Sequence[int]) -> None:
    """Carry out each load with each number of messages, in a process of its own; print one line of JSON for it."""
    from chaos.fuzz.memory_loop import run_in_memory
    from delivery_records import records

    print(json.dumps({"build": "pure" if str(records.__file__).endswith(".py") else "compiled"}), flush=True)
    logging.disable(logging.CRITICAL)
    for load in loads:
        run_in_memory(lambda loop, load=load: _carry_out(loop, load, messages))


async def _carry_out(loop: asyncio.AbstractEventLoop, load: Load, messages: Sequence[int]) -> None:
    from instructions_load import Network

    network = await Network.start(load.routers, load.subscribers, BATCH, SIZE)
    try:
        network.encode(max(messages))
        gc.collect()
        for count in messages:  # next to nothing happens in between, for a fork's count begins with its parent's
            pid = os.fork()
            if not pid:
                asyncio._set_running_loop(loop)  # noqa: SLF001  (a forked process has forgotten it)
                await _count(network, count)
            _, status = os.waitpid(pid, 0)  # noqa: ASYNC222  (nothing may happen meanwhile)
            if status:
                raise Failed(f"{load.name}: the process that carried {count} messages ended with status {status}")
            print(json.dumps({"load": load.name, "messages": count, "pid": pid}), flush=True)
    finally:
        await network.stop()


async def _count(network: Any, count: int) -> None:
    """The forked process: nothing is done beside the messages."""
    time.monotonic = partial(float, time.monotonic())
    status = 1
    try:
        await network.carry(count)
        status = 0 if network.is_right(count) else 2
    except BaseException:  # noqa: BLE001  (a forked process may not go on as its parent would)
        traceback.print_exc()
    finally:
        os._exit(status)


# --- counting ---------------------------------------------------------------------------------------------------------


def count_instructions(names: Sequence[str] = (), *, sources: bool = False) -> dict[str, int]:
    """Instructions per message of each load, or of those named; of the sources also where they are compiled.

    Raises:
        Failed: valgrind or a load failed, or another build would have been counted than the one that is installed.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
        command += [f"--log-file={folder}/%p.log", sys.executable, __file__, "--serve", *names]
        command += ["--sources"] if sources else []
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONSAFEPATH": "", "PYTHONDONTWRITEBYTECODE": ""}
        environment.pop("PYTHONPATH", None)  # what is installed is counted; the checkout has no compiled modules
        done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False, env=environment)
        if done.returncode:
            raise Failed(f"the loads failed with code {done.returncode}: {done.stderr[-2000:]}")
        counted: dict[str, dict[int, int]] = {}
        first, *lines = done.stdout.splitlines()
        if (counts := json.loads(first)["build"]) != build(sources=sources):
            raise Failed(f"the {counts} build would be counted, not the {build(sources=sources)} one")
        for found in map(json.loads, lines):
            log = Path(folder, f"{found['pid']}.log").read_text()
            refs = re.search(r"I\s+refs:\s+([\d,]+)", log)
            if refs is None:
                raise Failed(f"valgrind counted nothing: {log}")
            counted.setdefault(found["load"], {})[found["messages"]] = int(refs[1].replace(",", ""))
    return {name: round((by[MANY] - by[FEW]) / (MANY - FEW)) for name, by in counted.items()}


def versions() -> dict[str, str]:
    """What the figures depend on beside the code."""
    valgrind = subprocess.run(["valgrind", "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "python_built_with": platform.python_compiler(),
        "python_flags": str(sysconfig.get_config_var("PY_CFLAGS") or ""),
        "machine": platform.machine(),
        "valgrind": valgrind,
    }


def build(*, sources: bool) -> str:
    """What is counted."""
    from oncewire.cli.version import is_compiled

    return "compiled" if is_compiled() and not sources else "pure"


def compiler() -> str:
    """What compiled cores were compiled with."""
    if shutil.which("cc") is None:
        return ""
    return subprocess.run(["cc", "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


def load_baseline() -> dict[str, Any]:
    """The committed figures: `versions`, `load`, and for each build its figures."""
    return cast("dict[str, Any]", json.loads(BASELINE.read_text())) if BASELINE.exists() else {}


def figures_of(baseline: dict[str, Any], kind: str) -> dict[str, int]:
    """The figures of one build; none if they were never counted."""
    return cast("dict[str, int]", baseline.get(kind, {}).get("instructions_per_message", {}))


def is_comparable(baseline: dict[str, Any], kind: str) -> bool:
    """Whether figures of this machine may be held against the baseline's."""
    if kind not in baseline or baseline["versions"] != versions():
        return False
    return kind == "pure" or bool(baseline[kind]["compiler"] == compiler())


def grown(before: dict[str, int], now: dict[str, int]) -> list[str]:
    """The loads that cost more than the limit allows, and loads the baseline does not have."""
    return [
        f"{name}: {before.get(name, 0):,} -> {figure:,} instructions per message"
        for name, figure in now.items()
        if figure > before.get(name, 0) * (1 + GROWTH_LIMIT)
    ]


def write_baseline(figures: dict[str, int], kind: str) -> None:
    """Keep the figures of one build; those of the other one stay where the versions are the same."""
    before = load_baseline()
    kept = before if before.get("versions") == versions() else {}
    entry = {"compiler": compiler() if kind == "compiled" else "", "instructions_per_message": figures}
    content = {
        "about": "machine instructions of all routers per message, exactly-once; written by benchmarks/instructions.py",
        "load": f"bodies of {SIZE} bytes, {BATCH} messages a write, PYTHONHASHSEED=0",
        "versions": versions(),
        **{name: kept[name] for name in ("pure", "compiled") if name in kept},
        kind: entry,
    }
    BASELINE.write_text(json.dumps(content, indent=1) + "\n")


def main() -> int:
    """Count, print, compare."""
    parser = argparse.ArgumentParser(description="Machine instructions of the router per message.")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--sources", action="store_true", help="count the sources, also where they are compiled")
    parser.add_argument("--check", action="store_true", help="fail if a figure has grown")
    parser.add_argument("--write", action="store_true", help="make these figures the baseline")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("loads", nargs="*", metavar="LOAD", help="some of: " + ", ".join(load.name for load in LOADS))
    options = parser.parse_args()
    chosen = [load for load in LOADS if not options.loads or load.name in options.loads]
    if options.serve:
        if options.sources:
            from chaos.sources import prefer_sources

            prefer_sources()
        serve(chosen, (FEW, MANY))
        return 0
    kind = build(sources=options.sources)
    try:
        figures = count_instructions([load.name for load in chosen], sources=options.sources)
        if options.check and is_comparable(load_baseline(), kind):
            confirm_growth(figures, figures_of(load_baseline(), kind), sources=options.sources)
    except Failed as error:
        print(f"instructions: {error}", file=sys.stderr)
        return 1
    show(figures, kind, options.json)
    if options.write:
        write_baseline(figures, kind)
    return GROWN if options.check and reported_growth(figures, kind) else 0


def confirm_growth(figures: dict[str, int], before: dict[str, int], *, sources: bool) -> None:
    """Count again what has grown, and keep the least of its counts."""
    for _ in range(COUNTS - 1):
        names = [name for name in figures if grown(before, {name: figures[name]})]
        again = count_instructions(names, sources=sources) if names else {}
        figures.update({name: min(figures[name], figure) for name, figure in again.items()})


def show(figures: dict[str, int], kind: str, as_json: bool) -> None:
    """Print the figures, and how they differ from the baseline's."""
    if as_json:
        print(json.dumps({"build": kind, "versions": versions(), "instructions_per_message": figures}))
        return
    before = figures_of(load_baseline(), kind)
    for name, figure in figures.items():
        change = f"  {figure / before[name] - 1:+.2%}" if name in before else ""
        print(f"{kind}  {name:24} {figure:9,}{change}")


def reported_growth(figures: dict[str, int], kind: str) -> bool:
    """Whether a figure has grown, which is then said; with other versions than the baseline's none has."""
    baseline = load_baseline()
    if not is_comparable(baseline, kind):
        print("the baseline was counted with other versions, or not for this build: nothing is compared")
        return False
    found = grown(figures_of(baseline, kind), figures)
    for line in found:
        print(line, file=sys.stderr)
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
