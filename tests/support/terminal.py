"""A program on a terminal of its own (a pty), for what it prints for people only."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

DEADLINE_S = 120.0
"""A busy machine takes its time."""
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07|\r")
ONCEWIRE = """
import importlib, sys, click
from oncewire.cli.run import run
commands = {}
for source in sys.argv[1].split(","):
    name, _, place = source.partition("=")
    module, _, attribute = place.partition(":")
    commands[name] = getattr(importlib.import_module(module), attribute)
sys.exit(run(sys.argv[2:], click.Group("oncewire", commands=commands)))
"""


class Terminal:
    """The program, and what it has printed so far."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self._master = master
        self._read = b""

    @property
    def text(self) -> str:
        """What it has printed, without colours and movements."""
        return _CONTROL.sub("", self._read.decode(errors="replace"))

    def wait_for(self, *words: str) -> str:
        """Read until all words were printed; returns everything."""
        ends_at = time.monotonic() + DEADLINE_S
        while not all(word in self.text for word in words):
            assert time.monotonic() < ends_at, self.text
            assert self._take() or all(word in self.text for word in words), self.text
        return self.text

    def type(self, text: str) -> None:
        """Type something."""
        os.write(self._master, text.encode())

    def end(self, number: signal.Signals | None = signal.SIGINT) -> int:
        """Signal it, wait for its end; returns its exit code."""
        if number is not None:
            self.process.send_signal(number)
        ends_at = time.monotonic() + DEADLINE_S
        while self._take():
            assert time.monotonic() < ends_at, self.text
        return self.process.wait(DEADLINE_S)

    def _take(self) -> bool:
        """Read what there is; False = the program has ended and everything was read."""
        ready, _, _ = select.select([self._master], [], [], 0.1)
        if not ready:
            return True
        try:
            found = os.read(self._master, 1 << 16)
        except OSError:  # Linux: nobody has the other end any more
            return False
        self._read += found
        return bool(found)


@contextmanager
def on_terminal(
    commands: str,
    *arguments: str,
    environment: Mapping[str, str] | None = None,
    program: str | None = None,
    folder: Path | None = None,
) -> Iterator[Terminal]:
    """Run `oncewire ARGUMENTS` on a terminal of 120 columns.

    Args:
        commands: `name=module:attribute,...` of what the command line has.
        arguments: of the command line.
        environment: further variables.
        program: what is installed, as it is typed, in the place of `commands`.
        folder: where it runs.
    """
    called = [program] if program else [sys.executable, "-P", "-c", ONCEWIRE, commands]
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [*called, *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        cwd=folder,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", **(environment or {})},
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        if process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(DEADLINE_S)
        process.kill()
        process.wait()
        os.close(master)
