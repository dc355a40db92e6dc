"""Programs of the JavaScript client as processes: started, read line by line, killed, and started again."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.requirements import PROJECT, TOOLS

CLIENT = PROJECT / "clients" / "js"
DEADLINE_S = 60.0
# Node looks there for packages that are in no folder above the program.
ENVIRONMENT = {**os.environ, "NODE_PATH": str(TOOLS / "node_modules")}


def example(name: str, *arguments: object) -> list[str]:
    """The command line of an example of the client."""
    return ["node", str(CLIENT / "examples" / name), *map(str, arguments)]


class Program:
    """A program that says a line for each step, over all its starts."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self.lines: list[str] = []
        self._command = command
        self._log = log
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._news = asyncio.Event()

    async def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                env=ENVIRONMENT,
            )
        assert self._process.stdout is not None
        self._reading = asyncio.create_task(self._read(self._process.stdout))

    async def _read(self, stream: asyncio.StreamReader) -> None:
        while line := await stream.readline():
            self.lines.append(line.decode().rstrip())
            self._news.set()
        self._news.set()

    async def says(self, count: int) -> None:
        """Wait until it has said so many lines."""
        async with asyncio.timeout(DEADLINE_S):
            while len(self.lines) < count:
                assert self._reading is not None
                assert not self._reading.done(), f"it has ended: {self._log.read_text()}"
                self._news.clear()
                await self._news.wait()

    async def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        if self._process is not None:
            if self._process.returncode is None:
                self._process.kill()
            await self._process.wait()
        if self._reading is not None:
            await self._reading

    async def ended(self) -> None:
        """Wait until it has ended in good order."""
        assert self._process is not None
        async with asyncio.timeout(DEADLINE_S):
            code = await self._process.wait()
        await self.kill()
        assert code == 0, self._log.read_text()


@asynccontextmanager
async def running(command: Sequence[str], log: Path) -> AsyncIterator[Program]:
    """A program for the time of the block."""
    program = Program(command, log)
    await program.start()
    try:
        yield program
    finally:
        await program.kill()
