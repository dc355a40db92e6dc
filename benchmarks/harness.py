"""What the benchmarks share: router processes of their own, and one run of the load generator against them."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from load import Failed, cpu_s

from oncewire.client import ClientError
from router.commands.local_network import LocalNetworkError
from topology.etcd.server import EtcdFailed, EtcdNotFound

FAILED = 1
"""Exit code of a benchmark that could not measure, or whose claim does not hold."""
Row = dict[str, Any]
"""Of a table: figures by the headings of their columns."""
LOAD = Path(__file__).with_name("load.py")
LOAD_TIMEOUT_S = 600.0


class BenchmarkError(Exception):
    """A router or the load generator failed; the text says what it said."""


_EXPECTED = (BenchmarkError, ClientError, EtcdFailed, EtcdNotFound, Failed, LocalNetworkError, OSError)
"""What may end a measurement: it is said in one line."""


def whole(text: str) -> int:
    """For options: a whole number from 1 on."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return int(text)


def amount(text: str) -> float:
    """For options: a number above 0."""
    if float(text) <= 0:
        raise argparse.ArgumentTypeError("must be more than 0")
    return float(text)


def carry_out(parser: argparse.ArgumentParser, measure: Callable[[argparse.Namespace], bool | None]) -> NoReturn:
    """The main program: with the option --json, and with exit code 1 where `measure` fails or returns False."""
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        is_good = measure(options)
    except _EXPECTED as error:
        print(f"{Path(sys.argv[0]).stem}: {str(error) or type(error).__name__}", file=sys.stderr)
        is_good = False
    sys.exit(FAILED if is_good is False else 0)


def show(name: str, rows: Sequence[Row], as_json: bool, **beside: object) -> None:
    """Print rows for people or, with what else is known of them, for programs."""
    if as_json:
        print(json.dumps({"benchmark": name, "machine": machine(), **beside, "rows": rows}))
    else:
        print(f"{machine()}\n\n{table(rows)}")


def show_figures(found: Mapping[str, float], form: str, unit: str, as_json: bool) -> None:
    """Print figures, each with what it is of."""
    if as_json:
        print(json.dumps({"machine": machine(), **{what: round(figure, 1) for what, figure in found.items()}}))
        return
    print(machine())
    for what, figure in found.items():
        print(f"{what:55} {figure:{form}} {unit}")


def table(rows: Sequence[Row]) -> str:
    """Rows with the same headings, as Markdown; numbers stand to the right."""
    lines = [f"| {' | '.join(rows[0])} |", f"|{'--:|' * len(rows[0])}"]
    for row in rows:
        cells = (value if isinstance(value, str) else f"{value:,}" for value in row.values())
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def spread(results: Sequence[Row], name: str, form: str) -> str:
    """Median, smallest and largest of one figure of several runs."""
    figures = [result[name] for result in results]
    low, middle, high = (format(each, form) for each in (min(figures), statistics.median(figures), max(figures)))
    return f"{middle} ({low}-{high})"


def is_missing(*modules: str) -> bool:
    """Says, on standard error, which optional packages are not there; a benchmark cannot do without."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        sys.stderr.write(f"{Path(sys.argv[0]).name}: not measured, {', '.join(missing)} missing: make tools\n")
    return bool(missing)


@dataclass(frozen=True, slots=True)
class Router:
    """A running router: its process, where clients connect, and where HTTP is."""

    pid: int
    address: str
    http: str

    def resident_bytes(self) -> int:
        """Physical memory the process holds now."""
        return memory_of(self.pid)

    def cpu_s(self) -> float:
        """CPU seconds the process has used."""
        return cpu_s(self.pid)


def memory_of(pid: int, line: str = "VmRSS") -> int:
    """Physical memory of a process, in bytes; `VmHWM` for the most that it has held (proc(5)).

    Raises:
        BenchmarkError: it has ended.
    """
    for found in Path(f"/proc/{pid}/status").read_text().splitlines():
        if found.startswith(f"{line}:"):
            return int(found.split()[1]) * 1024
    raise BenchmarkError(f"the router with pid {pid} has ended")


@contextlib.contextmanager
def standalone_router(*flags: str) -> Iterator[Router]:
    """One router alone, without etcd, for the time of the block."""
    command = [sys.executable, "-P", "-m", "router", f"--parent-pid={os.getpid()}", "--announce"]
    command += ["--standalone", "--listen-port=0", "--http-port=0", "--log-level=warning", *flags]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise BenchmarkError(f"the router ended with code {process.wait()} before it was ready")
        announced = json.loads(line)
        yield Router(announced["pid"], *(urlsplit(announced[name]).netloc for name in ("url", "http")))
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def run_load(
    publish: Router, subscribe: Sequence[Router], watched: Sequence[Router], *options: str, **environment: str
) -> dict[str, Any]:
    """Run the load generator once.

    Args:
        publish: where the publisher attaches.
        subscribe: where the subscribers attach, taken in turn.
        watched: the routers whose CPU time counts.
        options: further options of load.py.
        environment: further variables for it.

    Returns:
        What it printed.

    Raises:
        BenchmarkError: it could not finish, or a message was lost, repeated or not settled.
    """
    command = [sys.executable, str(LOAD), "--publish", publish.address]
    command += ["--subscribe", *(router.address for router in subscribe)]
    command += ["--pid", *(str(router.pid) for router in watched), *options]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S, check=False, env={**os.environ, **environment}
    )
    if done.returncode:
        raise BenchmarkError(f"the load generator failed: {done.stderr}{done.stdout}")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def machine() -> str:
    """The machine and the interpreter, for the head of a table."""
    model = platform.machine()
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                model = line.partition(":")[2].strip()
                break
    load = ", ".join(f"{number:.1f}" for number in os.getloadavg())
    implementation = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{model}, {os.cpu_count()} cores, {implementation}, load average {load}"
