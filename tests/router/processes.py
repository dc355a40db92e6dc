"""Real router processes for tests: each is a child of the test, on free ports, and stopped at the end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp

START_TIMEOUT_S = 60.0


@dataclass
class RouterProcess:
    """One running router."""

    process: asyncio.subprocess.Process
    url: str
    http: str

    @property
    def port(self) -> int:
        """Where AMQP clients connect."""
        port = urlsplit(self.url).port
        assert port is not None
        return port

    async def get(self, path: str) -> tuple[int, Any]:
        """GET a JSON document: (status, content)."""
        async with aiohttp.ClientSession() as session, session.get(self.http + path) as answer:
            found = answer.status, await answer.json()
        await asyncio.sleep(0)  # the session's transport closes in the next turn of the loop
        return found

    async def state(self) -> Any:
        """The tables of /api/v1/state."""
        return (await self.get("/api/v1/state"))[1]

    async def stop(self, number: signal.Signals = signal.SIGTERM) -> str:
        """Signal the process and wait for its end; returns its log."""
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(number)
        assert self.process.stderr is not None
        log = await asyncio.wait_for(self.process.stderr.read(), START_TIMEOUT_S)
        await self.process.wait()
        return log.decode()


def router_command(*flags: str) -> list[str]:
    """The command line of a router process."""
    return [sys.executable, "-P", "-m", "router", f"--parent-pid={os.getpid()}", *flags]


async def start_router(*flags: str, descriptors: int | None = None) -> RouterProcess:
    """Start a router and wait until it is ready; it can be given less descriptors than others."""
    limited = () if descriptors is None else ("sh", "-c", f'ulimit -n {descriptors} && exec "$@"', "sh")
    process = await asyncio.create_subprocess_exec(
        *limited,
        *router_command("--announce", "--listen-port=0", "--http-port=0", "--log-format=json", *flags),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    line = await asyncio.wait_for(process.stdout.readline(), START_TIMEOUT_S)
    if not line:
        raise AssertionError(f"the router did not start: {(await process.stderr.read()).decode()}")
    announced = json.loads(line)
    assert announced["pid"] == process.pid
    return RouterProcess(process, announced["url"], announced["http"])


@contextlib.asynccontextmanager
async def running_router(*flags: str, descriptors: int | None = None) -> AsyncIterator[RouterProcess]:
    """A router for the time of the block; killed at its end, which is quicker than an orderly stop."""
    router = await start_router(*flags, descriptors=descriptors)
    try:
        yield router
    finally:
        if router.process.returncode is None:
            log = await router.stop(signal.SIGKILL)
            sys.stderr.write(log)  # pytest shows it when the test has failed
            assert '"event": "internal_error"' not in log, log


async def run_to_end(*flags: str, timeout_s: float = START_TIMEOUT_S) -> tuple[int, str, str]:
    """Run a router that ends by itself: (exit code, stdout, stderr)."""
    process = await asyncio.create_subprocess_exec(
        *router_command(*flags), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    out, err = await asyncio.wait_for(process.communicate(), timeout_s)
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()
