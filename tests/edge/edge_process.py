"""Real edge processes for tests: each is a child of the test, on free ports, and ended by it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.support.waiting import eventually

LONG_S = 120.0
ONCEWIRE = [sys.executable, "-P", "-c", "from oncewire.cli.main import main; main()"]


@dataclass
class EdgeProcess:
    """An edge with a file of settings, which can be killed and started again."""

    file: Path
    process: asyncio.subprocess.Process | None = None
    url: str = ""
    log: list[dict[str, Any]] = field(default_factory=list)
    _reading: asyncio.Task[None] | None = None

    async def start(self, *flags: str, is_ready: bool | None = True) -> None:
        """Start it and wait until it is ready; False: until its parts are begun, None: not at all."""
        self.process = await asyncio.create_subprocess_exec(
            *ONCEWIRE,
            *("edge", "serve", "--config", str(self.file), "--log-format=json", "--announce"),
            *(flags or ("--http-port=0",)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        self.log = []
        self._reading = asyncio.create_task(self._read())
        if is_ready:
            assert self.process.stdout is not None
            line = await asyncio.wait_for(self.process.stdout.readline(), LONG_S)
            assert line, self.log
            self.url = json.loads(line)["http"]
        elif is_ready is not None:
            await self.logged("edge_started")
            self.url = next(line["http"] for line in self.log if line["event"] == "edge_started")

    async def _read(self) -> None:
        assert self.process is not None
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            sys.stderr.write(line.decode())  # pytest shows it when the test has failed
            with contextlib.suppress(ValueError):
                self.log.append(json.loads(line))

    async def logged(self, event: str, **fields: object) -> None:
        """Wait for a line of the log."""
        await eventually(
            lambda: any(each["event"] == event and each.items() >= fields.items() for each in self.log), event
        )

    async def end(self, number: signal.Signals = signal.SIGKILL) -> int:
        """Signal it and wait for its end; returns the exit code."""
        assert self.process is not None
        assert self._reading is not None
        with contextlib.suppress(ProcessLookupError):  # the test has ended it
            self.process.send_signal(number)
        code = await asyncio.wait_for(self.process.wait(), LONG_S)
        await self._reading
        self.process = None
        return code

    async def ask(self, path: str, method: str = "GET", **options: Any) -> tuple[int, Any]:
        """One request: status, and the content as JSON, else as text."""
        async with aiohttp.ClientSession() as session, session.request(method, self.url + path, **options) as answer:
            text = await answer.text()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text

    async def part(self, kind: str, name: str = "") -> dict[str, Any]:
        """The row of a part."""
        _, state = await self.ask("/api/v1/state")
        return next(row for row in state["parts"] if row["kind"] == kind and name in ("", row["name"]))


def settings(store: str, routers: Sequence[str], parts: str, name: str = "edge", more: str = "") -> str:
    """The text of a file of settings."""
    return f'[edge]\nname = "{name}"\nstore = "{store}"\nrouters = {json.dumps(list(routers))}\n{more}\n{parts}\n'


@contextlib.asynccontextmanager
async def running_edge(file: Path, text: str, *flags: str, is_ready: bool | None = True) -> AsyncIterator[EdgeProcess]:
    """An edge with these settings for the time of the block; killed at its end."""
    await asyncio.to_thread(file.write_text, text)
    edge = EdgeProcess(file)
    try:
        await edge.start(*flags, is_ready=is_ready)
        yield edge
    finally:
        if edge.process is not None:
            await edge.end()
        assert not [line for line in edge.log if line["event"] == "internal_error"], edge.log
