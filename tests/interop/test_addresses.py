"""Requests and replies of stock clients and ours across two routers, one of which is killed; addresses of Qpid JMS."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from router.commands.local_network import LocalNetwork
from tests.docs.code_blocks import blocks_of
from tests.support.java import java_command
from tests.support.requirements import PROJECT, TOOLS, go_amqp

EXAMPLES = PROJECT / "examples" / "request_reply"
JMS = Path(__file__).parent / "address_clients" / "JmsAddresses.java"
SETTINGS = {"etcd.lease_ttl_s": "3"}
COUNT = 20
KILL_AT = 10
DEADLINE_S = 90.0
PROTON, RHEA, GO, OURS = "proton", "rhea", "go-amqp", "oncewire"
NEEDS = {PROTON: ["proton"], RHEA: ["node", "rhea"], GO: ["go-amqp"], OURS: []}


def example(kind: str, role: str, urls: str, *arguments: str) -> list[str]:
    if kind == RHEA:
        return ["node", str(EXAMPLES / f"rhea_{role}.js"), urls, *arguments]
    if kind == GO:
        return [str(go_amqp("requests")), role, urls, *arguments]
    return [sys.executable, "-P", str(EXAMPLES / f"{kind}_{role}.py"), urls, *arguments]


@asynccontextmanager
async def running(*command: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A program for the time of the block."""
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "RHEA": str(TOOLS / "node_modules" / "rhea")},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()


async def lines_of(
    process: asyncio.subprocess.Process, on_line: Callable[[str], Awaitable[None]] | None = None
) -> list[str]:
    """Everything a program prints until it ends."""
    found: list[str] = []
    assert process.stdout is not None
    try:
        async with asyncio.timeout(DEADLINE_S):
            async for line in process.stdout:
                found.append(line.decode().rstrip())
                if on_line is not None:
                    await on_line(found[-1])
    except TimeoutError:
        raise AssertionError(f"not ended: {found}") from None
    return found


async def until_line(process: asyncio.subprocess.Process, wanted: str) -> None:
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        while (line := (await process.stdout.readline()).decode().rstrip()) != wanted:
            assert line, "the program has ended"


PAIRS = (
    (PROTON, PROTON),
    (RHEA, RHEA),
    (GO, GO),
    (OURS, OURS),
    (PROTON, OURS),
    (OURS, RHEA),
    (RHEA, PROTON),
    (GO, OURS),
    (OURS, GO),
)


def pair(asks: str, answers: str) -> ParameterSet:
    """One kind with itself in each run of the tests, the others in the long one."""
    needed = [*NEEDS[asks], *NEEDS[answers]]
    marks = [*([pytest.mark.needs(*needed)] if needed else []), *([pytest.mark.slow] if asks != answers else [])]
    return pytest.param(asks, answers, id=f"{asks}-{answers}", marks=marks)


@pytest.mark.parametrize(("requester", "responder"), [pair(*each) for each in PAIRS])
async def test_every_request_is_answered_across_the_crash_of_the_requesters_router(
    requester: str, responder: str, tmp_path: Path
) -> None:
    async with LocalNetwork(2, settings=SETTINGS, log_folder=tmp_path) as network:
        first, second = network.routers["r1"].url, network.routers["r2"].url

        async def kill(line: str) -> None:
            if line == f"{KILL_AT}: {2 * KILL_AT}":
                await network.kill("r1")

        async with running(*example(responder, "responder", f"{second},{first}")) as answering:
            await until_line(answering, "ready")
            async with running(*example(requester, "requester", f"{first},{second}", str(COUNT))) as asking:
                reported = await lines_of(asking, kill)
                assert await asking.wait() == 0, reported
    assert reported == [f"{number}: {2 * number}" for number in range(COUNT)]


@pytest.mark.parametrize(("requester", "responder"), [pair(kind, kind) for kind in NEEDS])
async def test_every_request_is_answered_though_the_requesters_router_drains(
    requester: str, responder: str, tmp_path: Path
) -> None:  # K-8a
    settings = {**SETTINGS, "limits.drain_limit_s": "0"}  # what is unsettled is no reason to wait
    async with LocalNetwork(2, settings=settings, log_folder=tmp_path) as network:
        first, second = network.routers["r1"].url, network.routers["r2"].url
        stopping: list[asyncio.Task[None]] = []

        async def drain(line: str) -> None:
            if line == f"{KILL_AT}: {2 * KILL_AT}":
                stopping.append(asyncio.create_task(network.terminate("r1")))

        async with running(*example(responder, "responder", f"{second},{first}")) as answering:
            await until_line(answering, "ready")
            async with running(*example(requester, "requester", f"{first},{second}", str(COUNT))) as asking:
                reported = await lines_of(asking, drain)
                assert await asking.wait() == 0, reported
        await asyncio.gather(*stopping)
    assert reported == [f"{number}: {2 * number}" for number in range(COUNT)]


@pytest.mark.needs("jdk", "qpid-jms")
@pytest.mark.parametrize(
    "scenario",
    ["request-reply", "unsubscribe", "client-id", "shared", "queue", pytest.param("failover", marks=pytest.mark.slow)],
)
async def test_qpid_jms_finds_the_addresses_that_it_knows(scenario: str, tmp_path: Path) -> None:
    async with LocalNetwork(2, settings=SETTINGS, log_folder=tmp_path) as network:
        near, far = network.routers["r1"].url, network.routers["r2"].url
        if scenario == "failover":
            near = f"failover:({near},{far})?failover.reconnectDelay=100"

        async def kill(line: str) -> None:
            if line == "half":
                await network.kill("r1")

        command = [*java_command(JMS), scenario, near, far]
        async with running(*command) as client:
            reported = await lines_of(client, kill)
    assert reported[-1] == "ok", reported


def stripped(text: str) -> str:
    return "".join(f"{line.strip()}\n" for line in text.splitlines())


def test_the_page_shows_the_programs_that_run_here() -> None:
    programs = [stripped(path.read_text(encoding="utf-8")) for path in (*EXAMPLES.rglob("*.*"), JMS)]
    blocks = list(blocks_of(PROJECT / "docs" / "clients.md"))
    assert len(blocks) == 9
    assert [block for block in blocks if not any(stripped(block.text) in program for program in programs)] == []
