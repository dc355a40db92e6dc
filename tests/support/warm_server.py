"""A Python that has imported what our programs need, and forks for each program that a test starts.

`tests/support/warm_start.py` runs it, once for each process of a test run. A request is one packet: what to run, with
which environment, in which folder, and the three standard files. The program is forked twice, so that the kernel makes
it a child of the test's process (which is a subreaper for that time): there it is waited for and killed as any other.

A program that starts others gets a process beside it that has not run anything yet, and forks those for it.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

Run = Callable[[], object]

IMPORTED = (
    "aiohttp.web",
    "prometheus_client",
    "rich.table",
    "uvloop",
    "sqlite3",
    "ssl",
    "bridges.edge.cli",
    "bridges.edge.running",
    "bridges.workqueue.cli",
    "chaos.clients.load",
    "oncewire.cli.main",
    "oncewire.client.cli",
    "router.commands.cli",
    "router.commands.manage",
    "router.commands.running",
    "topology.cli",
)
"""What most programs of tests import; anything else they import themselves, as always."""
LARGEST_REQUEST = 1 << 20
"""Above what the kernel allows for one packet."""
HIGHEST_FILE = 1024
"""More files than this process opens."""
POLL_S = 0.0005
sys.path.append(str(Path(__file__).parent))
client: Any = importlib.import_module("warm_client")
"""What asks this server, for programs that ask one, too."""
sys.path.pop()


def main() -> Run | None:
    """Serve requests until the test's process has gone; returns, in each fork, what it runs."""
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the test run
    for name in IMPORTED:
        importlib.import_module(name)
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a thread does not survive a fork"
    gc.collect()
    gc.freeze()
    control.send(b"ready")
    return serve(control, os.getppid())


def serve(control: socket.socket, owner: int) -> Run | None:
    """Fork for each request of the owner, until it has gone; returns, in each fork, what it runs."""
    while True:
        data, files, _, _ = socket.recv_fds(control, LARGEST_REQUEST, client.MOST_FILES)
        if not data:
            return None
        between = os.fork()
        if between == 0:
            own = os.getpid()
            if os.fork() != 0:
                os._exit(0)
            while os.getppid() == own:
                time.sleep(POLL_S)
            if os.getppid() != owner:  # which has gone meanwhile
                os._exit(0)
            request = json.loads(data)
            if request["new_group"]:
                os.setpgid(0, 0)
            control.send(str(os.getpid()).encode())
            control.detach()
            keep_only(files, [0, 1, 2, *request["passed"]])
            if request["starts_others"]:
                ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                program = os.getpid()
                if os.fork() == 0:
                    keep_only([os.open(os.devnull, os.O_RDWR)] * 3 + [theirs.detach()], [0, 1, 2, 3])
                    os.setsid()
                    signal.signal(signal.SIGINT, signal.SIG_IGN)
                    return serve(socket.socket(fileno=3), program)
                theirs.close()
                client.WARM.continue_with(ours, client.interpreter_settings(os.environ))
                subprocess.Popen._execute_child = client.start_warm  # type: ignore[attr-defined]
            return become(request)
        for file in files:
            os.close(file)
        os.waitpid(between, 0)


def keep_only(files: Sequence[int], numbers: Sequence[int]) -> None:
    """Leave these files alone open, each at its number, for programs that this one becomes too."""
    aside = [fcntl.fcntl(file, fcntl.F_DUPFD, client.SPARE_FILE) for file in files]
    for number, file in zip(numbers, aside, strict=True):
        os.dup2(file, number)
    kept = sorted(numbers)
    for number, following in zip(kept, [*kept[1:], HIGHEST_FILE], strict=True):
        os.closerange(number + 1, following)


def become(request: dict[str, Any]) -> Run:
    """Make this process what `python ARGUMENTS...` would be; returns what it runs."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if request["new_session"]:
        os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    show_what_exec_would_be_given(request["command"], request["environment"])
    os.environ.update(request["environment"])
    time.tzset()
    tempfile.tempdir = None
    open_standard_files()
    kind, program, *arguments = request["arguments"]
    if not request["is_safe"]:
        sys.path.insert(0, {"-m": request["folder"], "-c": ""}.get(kind, str(Path(program).resolve().parent)))
    sys.argv = [kind or program, *arguments]
    if kind == "-m":
        return lambda: runpy.run_module(program, run_name="__main__", alter_sys=True)
    own = sys.modules["__main__"] = types.ModuleType("__main__")
    if kind == "-c":
        code = compile(program, "<string>", "exec")
    else:
        own.__file__ = program
        code = compile(Path(program).read_bytes(), program, "exec")
    return lambda: exec(code, own.__dict__)


def show_what_exec_would_be_given(command: Sequence[str], environment: dict[str, str]) -> None:
    """Write arguments and environment where the system lists them, over those of this process: `proc(5)`."""
    found = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:49]
    arguments, arguments_end, variables, variables_end = map(int, found)
    settings = [f"{name}={value}" for name, value in environment.items()]
    for begin, end, words in ((arguments, arguments_end, command), (variables, variables_end, settings)):
        ctypes.memmove(begin, client.listed(words).ljust(end - begin, b"\0"), end - begin)


def open_standard_files() -> None:
    """The standard files as Python opens them at its start."""
    is_unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  # open as long as the process
    for number, name, errors in ((1, "stdout", "strict"), (2, "stderr", "backslashreplace")):
        file = open(number, "w", encoding="utf-8", errors=errors, closefd=False)  # noqa: SIM115  # as above
        is_by_line = not is_unbuffered and (number == 2 or file.isatty())
        file.reconfigure(line_buffering=is_by_line, write_through=is_unbuffered)
        setattr(sys, name, file)
        setattr(sys, f"__{name}__", file)


def end_with(code: int) -> NoReturn:
    """End as Python does, but for taking apart what was imported: that would copy all of its memory."""
    threading._shutdown()  # type: ignore[attr-defined]  # typeshed leaves it out
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        code = 120
    os._exit(code & 0xFF)


if __name__ == "__main__":
    run = main()
    if run is None:
        os._exit(0)
    else:
        try:
            run()
        except SystemExit as end:
            if not isinstance(end.code, int | None):
                raise
            end_with(end.code or 0)
        end_with(0)
