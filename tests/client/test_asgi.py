"""What runs beside a web service: it ends in time with the service, and a failure of it ends the service."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest

from oncewire.client import UsageError, connect
from oncewire.client.asgi import Background
from oncewire.client.transactions import Consumer
from oncewire.testing import AmqpNetwork
from tests.support.waiting import eventually
from topology.etcd.server import free_port

LONG = 60.0
SERVICE = """
import asyncio, sys
from contextlib import asynccontextmanager
from fastapi import FastAPI
from oncewire.client.asgi import Background

closed = []

async def read():
    await broken.wait()
    raise RuntimeError("the reader is broken")

async def go_on():
    try:
        await asyncio.Event().wait()
    finally:
        print("the other reader left", flush=True)

@asynccontextmanager
async def lifespan(app):
    global broken
    broken = asyncio.Event()
    async with Background() as background:
        background.start(read())
        background.start(go_on())
        print("started", flush=True)
        yield
    print("not reached after a failure", flush=True)

app = FastAPI(lifespan=lifespan)

@app.get("/break")
async def stop_reading():
    broken.set()
    return "broken"
"""


async def answers(url: str) -> bool:
    async with aiohttp.ClientSession() as session:
        try:
            async with session.get(url) as answer:
                return answer.status == 200
        except aiohttp.ClientConnectionError:
            return False


@pytest.fixture(scope="module")
def network() -> Iterator[AmqpNetwork]:
    with AmqpNetwork(1) as found:
        yield found


async def test_at_the_end_readers_are_cancelled_and_consumers_finish_their_transaction(
    network: AmqpNetwork, tmp_path: Path
) -> None:
    events: list[str] = []

    async def read() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            events.append("reader left")

    consumer = Consumer(network.urls, store=f"sqlite:///{tmp_path}/c.db", name="billing", topics=["orders"])
    async with consumer, connect(network.urls) as client, asyncio.timeout(LONG):
        async with Background() as background:
            background.start(read())
            background.start(consumer.run(lambda tx, message: events.append(str(message.body))), stop=consumer.stop)
            _ = await (await client.publisher("orders")).send("soup")
            await eventually(lambda: "soup" in events, "the consumer has processed it")
        events.append("all ended")
    assert events == ["soup", "reader left", "all ended"]


async def test_a_reader_that_fails_ends_the_block_with_its_error_where_no_server_handles_sigterm() -> None:
    async def fail() -> None:
        raise RuntimeError("broken")

    async def serve() -> None:
        async with Background() as background:
            background.start(fail())
            await asyncio.wait_for(asyncio.Event().wait(), LONG)
            raise AssertionError("the block went on")

    with pytest.raises(RuntimeError, match="broken"):
        await serve()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_what_does_not_stop_is_cancelled_when_its_time_is_over() -> None:
    ended: list[str] = []

    async def deaf() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")

    async with asyncio.timeout(LONG), Background(leave_timeout=0.01) as background:
        background.start(deaf(), stop=lambda: ended.append("asked"))
        await asyncio.sleep(0)
    assert ended == ["asked", "cancelled"]


async def test_a_failure_while_it_leaves_is_raised_too() -> None:
    async def fails_at_the_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise RuntimeError("not closed")

    async def serve() -> None:
        async with Background() as background:
            background.start(fails_at_the_end())
            await asyncio.sleep(0)

    with pytest.raises(RuntimeError, match="not closed"):
        await serve()


async def test_outside_of_its_block_nothing_is_started() -> None:
    async def work() -> None:
        raise AssertionError

    background = Background()
    with pytest.raises(UsageError, match="not entered"):
        background.start(work())
    async with background:
        pass
    with pytest.raises(UsageError, match="has ended"):
        background.start(work())


@pytest.mark.needs("fastapi")
@pytest.mark.cold
async def test_a_reader_that_fails_ends_a_fastapi_service_with_its_error(tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text(SERVICE)
    port = str(free_port())
    service = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "uvicorn", "service:app", "--port", port),
        cwd=tmp_path,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        await eventually(lambda: answers(f"http://127.0.0.1:{port}/break"), "the request is answered")
        printed = (await asyncio.wait_for(service.communicate(), LONG))[0].decode()
    finally:
        if service.returncode is None:
            service.kill()
            await service.wait()
    assert service.returncode == -signal.SIGTERM, printed
    assert "RuntimeError: the reader is broken" in printed
    assert "the other reader left" in printed
    assert "not reached" not in printed
