"""Workers of one router on a real network, for tests: which processes they are, and what each says."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import aiohttp

from router.commands.local_network import LocalNetwork, LocalRouter
from tests.router.raw_client import until


def workers_of(router: LocalRouter) -> dict[int, int]:
    """The process of each worker, by its number."""
    found: dict[int, int] = {}
    for pid in Path(f"/proc/{router.pid}/task/{router.pid}/children").read_text().split():
        with contextlib.suppress(OSError):  # it has just ended
            for word in Path(f"/proc/{pid}/cmdline").read_text().split("\0"):
                name, _, value = word.partition("=")
                if name == "--worker":
                    found[int(value)] = int(pid)
    return found


def folder_of(router: LocalRouter) -> Path:
    """Where the sockets between the workers are."""
    words = Path(f"/proc/{workers_of(router)[1]}/cmdline").read_text().split("\0")
    return Path(next(word.partition("=")[2] for word in words if word.startswith("--worker-folder=")))


async def ask(router: LocalRouter, path: str, method: str = "GET", body: Any = None) -> tuple[int, Any]:
    """Status and JSON of an answer; 0 and nothing while nobody listens."""
    try:
        async with aiohttp.ClientSession() as session, session.request(method, router.http + path, json=body) as answer:
            return answer.status, await answer.json()
    except aiohttp.ClientConnectionError:
        return 0, {}


async def states(router: LocalRouter, count: int) -> dict[int, Any]:
    """What each worker says of itself; empty for one that does not answer."""
    answers = {number: await ask(router, f"/workers/{number}/api/v1/state") for number in range(1, count + 1)}
    return {number: found if status == 200 else {} for number, (status, found) in answers.items()}


async def wait_restarted(network: LocalNetwork, name: str, number: int, former: int) -> int:
    """Wait until another process is this worker, and all are ready; its id."""

    async def look() -> int | None:
        return workers_of(network.routers[name]).get(number)

    pid = await until(look, lambda found: found not in (None, former))
    assert pid is not None
    await network.wait_ready(name)
    return pid
