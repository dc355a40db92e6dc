"""A process of a demo, from both sides: who starts and kills it, and what it does itself to be started and to end."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from chaos.network.trial import TrialFailed

START_S = 60.0
"""How long a process may take until it is at work, on a slow machine."""
LOG_TAIL_BYTES = 2_000


class ChildProcess:
    """A Python module over all its lives.

    Args:
        name: for people.
        module: what is run.
        arguments: of it.
        log: the file of what it prints to its standard error.
    """

    def __init__(self, name: str, module: str, arguments: Sequence[str], log: Path) -> None:
        self.name = name
        self._command = ["-P", "-m", module, *arguments]
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def is_running(self) -> bool:
        """Whether it was started and not killed."""
        return self._process is not None

    async def start(self) -> None:
        """Start it and wait until it is at work.

        Raises:
            TrialFailed: it ended, or says nothing.
        """
        with self._log.open("ab") as log:
            # In a session of its own: a Ctrl-C in the terminal is for the demo, which then ends its processes.
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *self._command,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert process.stdout is not None
        line = b""
        with suppress(TimeoutError):
            line = await asyncio.wait_for(process.stdout.readline(), START_S)
        if not line:
            raise TrialFailed(f"the {self.name} did not start: {self.last_words()}")

    def check(self) -> None:
        """Raise TrialFailed if it ended by itself."""
        if self._process is not None and self._process.returncode is not None:
            raise TrialFailed(f"the {self.name} ended with code {self._process.returncode}: {self.last_words()}")

    def last_words(self) -> str:
        """The end of what it printed."""
        words = self._log.read_bytes()[-LOG_TAIL_BYTES:] if self._log.exists() else b""
        return words.decode(errors="replace").strip() or "it said nothing"

    def send_signal(self, number: int) -> None:
        """Signal it, if it is running."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def kill(self) -> None:
        """SIGKILL it and wait until it is gone."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


# --- in the process itself -----------------------------------------------------------------------------------------


def say_ready() -> None:
    """Print the line that the demo waits for."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()


def end_with_parent() -> None:
    """End when the standard input is closed: whoever started this has ended."""

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 1):  # not by sys.stdin, whose lock would be held when this process ends
            pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
