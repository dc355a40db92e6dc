"""The client's program as a process."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from oncewire.testing.resume.judging import BrokenClaim

SHOWN = 500
"""Characters of the end of its log that a verdict has."""


class Program:
    """Started with ``URLS TOPIC COUNT FOLDER`` behind its command; it may be killed and started again.

    Attributes:
        lines: what it has printed, over all its starts.
    """

    def __init__(self, command: str, arguments: Sequence[str], folder: Path, patience_s: float) -> None:
        self.lines: list[str] = []
        self._command = [*shlex.split(command), *arguments]
        self._log = folder / "log"
        self._patience_s = patience_s
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    async def start(self) -> None:
        """Start it, or start it again.

        Raises:
            BrokenClaim: there is no such program.
        """
        with self._log.open("ab") as log:
            try:
                self._process = await asyncio.create_subprocess_exec(
                    *self._command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=log
                )
            except OSError as error:
                raise BrokenClaim(f"the program cannot be started: {error}") from None
        assert self._process.stdout is not None
        self._reading = asyncio.create_task(self._read(self._process.stdout))

    async def _read(self, stream: asyncio.StreamReader) -> None:
        while line := await stream.readline():
            self.lines.append(line.decode(errors="replace").strip())
            self._news.set()
        self._news.set()

    async def prints(self, line: str) -> None:
        """Wait until it has printed this line.

        Raises:
            BrokenClaim: it has ended without, or takes too long.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience_s):
                while line not in self.lines and not (self._reading is None or self._reading.done()):
                    self._news.clear()
                    await self._news.wait()
        if line not in self.lines:
            raise BrokenClaim(f"the program did not print {line!r} but {self.lines}{self.complaint()}")

    async def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        if self._process is None or self._reading is None:
            return
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading

    async def ended(self) -> None:
        """Wait until it ends by itself."""
        assert self._process is not None
        await self._process.wait()

    def complaint(self) -> str:
        """The end of what it has written to its standard error."""
        text = self._log.read_text(errors="replace").strip()[-SHOWN:] if self._log.exists() else ""
        return f"; its log ends with: {text}" if text else ""
