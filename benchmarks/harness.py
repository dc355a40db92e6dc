"""What the benchmarks share: router processes of their own, and one run of the load generator against them."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

LOAD = Path(__file__).with_name("load.py")
LOAD_TIMEOUT_S = 600.0


class BenchmarkError(Exception):
    """A router or the load generator failed; the text says what it said."""


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
        """Physical memory the process holds now (VmRSS of proc(5))."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise BenchmarkError(f"the router with pid {self.pid} has ended")


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
