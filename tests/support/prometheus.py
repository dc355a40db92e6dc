"""A real Prometheus for tests: started on free ports of this machine, asked over its HTTP API, stopped at the end."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from topology.etcd.server import free_port

TOOLS = Path(__file__).resolve().parents[2] / ".tools" / "prometheus"
"""Where `make tools` puts the two programs."""
START_S = 60.0
WAIT_S = 90.0


def find_program(name: str) -> str | None:
    """The program on PATH, else the one that was fetched, else None."""
    fetched = TOOLS / name
    return shutil.which(name) or (str(fetched) if os.access(fetched, os.X_OK) else None)


@dataclass(frozen=True, slots=True)
class Prometheus:
    """One that runs."""

    url: str

    async def ask(self, path: str, **parameters: str) -> Any:
        """The `data` of an answer of its API."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.url}/api/v1/{path}", params=parameters) as answer,
        ):
            return (await answer.json())["data"]

    async def firing(self) -> dict[str, dict[str, str]]:
        """Alerts that fire now: name -> labels of one of them."""
        found = (await self.ask("alerts"))["alerts"]
        return {one["labels"]["alertname"]: one["labels"] for one in found if one["state"] == "firing"}

    async def until(self, done: Callable[[dict[str, dict[str, str]]], bool]) -> dict[str, dict[str, str]]:
        """Wait until the alerts that fire satisfy `done`."""
        async with asyncio.timeout(WAIT_S):
            while True:
                firing = await self.firing()
                if done(firing):
                    return firing
                await asyncio.sleep(0.2)

    async def value(self, expression: str) -> float | None:
        """The value of an expression, None without one."""
        result = (await self.ask("query", query=expression))["result"]
        return float(result[0]["value"][1]) if result else None


@asynccontextmanager
async def running_prometheus(folder: Path, targets: Sequence[str], rules: str) -> AsyncIterator[Prometheus]:
    """A Prometheus that scrapes `targets` (host:port) each second by the given rules."""
    (folder / "alerts.yml").write_text(rules)
    quoted = ", ".join(f'"{target}"' for target in targets)
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\n"
        "rule_files: [alerts.yml]\n"
        f"scrape_configs:\n  - job_name: oncewire\n    static_configs: [{{targets: [{quoted}]}}]\n"
    )
    program = find_program("prometheus")
    assert program is not None
    port = free_port()
    with (folder / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            program,
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        if not await _is_ready(process, f"http://127.0.0.1:{port}"):
            raise AssertionError((folder / "prometheus.log").read_text())
        yield Prometheus(f"http://127.0.0.1:{port}")
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _is_ready(process: asyncio.subprocess.Process, url: str) -> bool:
    """Wait until it answers; False when it has ended instead."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(START_S):
        while process.returncode is None:
            try:
                async with session.get(f"{url}/-/ready") as answer:
                    if answer.status == 200:
                        return True
            except aiohttp.ClientConnectionError:
                pass
            await asyncio.sleep(0.1)
    return False
