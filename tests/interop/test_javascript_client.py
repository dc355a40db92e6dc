"""Exactly once from a second language: the JavaScript client against real routers, while it and they are killed."""

from __future__ import annotations

import asyncio
import itertools
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import pytest_asyncio

from oncewire.client import Client, OutcomeKind, connect
from router.commands.local_network import LocalNetwork
from tests.interop.javascript import CLIENT, ENVIRONMENT, Program, example, running
from tests.interop.test_stock_clients import until

pytestmark = [pytest.mark.needs("node", "rhea"), pytest.mark.asyncio(loop_scope="module")]
ROWS = 1500
KILLS = (300, 700)
"""Lines after which the first and the second process is killed."""
_topics = itertools.count(1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def network(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[LocalNetwork]:
    """Two routers for all tests of this file."""
    folder = tmp_path_factory.mktemp("routers")
    async with LocalNetwork(2, settings={"etcd.lease_ttl_s": "3"}, log_folder=folder) as found:
        yield found


@dataclass
class Place:
    """A topic of one test, the routers, and a folder."""

    network: LocalNetwork
    topic: str
    folder: Path

    @property
    def urls(self) -> list[str]:
        """First the router that is killed."""
        return [self.network.routers[name].url for name in ("r1", "r2")]

    def publisher(self) -> list[str]:
        """The command of the example that publishes ROWS rows."""
        return example("publish.js", ",".join(self.urls), self.topic, ROWS, self.folder)

    def subscriber(self) -> list[str]:
        """The command of the example that appends as many lines to a file."""
        return example("subscribe.js", ",".join(self.urls), self.topic, ROWS, self.folder)

    def client(self) -> Client:
        """Of the Python client."""
        return connect(self.urls, container_id=f"python-{self.topic}")

    def lines(self) -> list[str]:
        """What the subscriber has written, without what identifies the delivery."""
        output = self.folder / "lines"
        text = output.read_text() if output.exists() else ""
        return [line.partition(" ")[2] for line in text.splitlines()]

    async def killed_twice(self, program: Program, progress: Callable[[], int]) -> None:
        """SIGKILL a program, then its router, then the program again, each in the middle of its work."""
        first, second = KILLS
        await until(lambda: progress() >= first)
        await program.kill()
        await program.start()
        await until(lambda: progress() >= (first + second) // 2)
        await self.network.kill("r1")
        await until(lambda: progress() >= second)
        await program.kill()
        await program.start()


@pytest_asyncio.fixture(loop_scope="module")
async def place(network: LocalNetwork, tmp_path: Path) -> AsyncIterator[Place]:
    yield Place(network, f"rows-{next(_topics)}", tmp_path)
    await network.restart("r1")


WANTED = [f"row {number}" for number in range(1, ROWS + 1)]


async def test_python_gets_what_javascript_publishes_once_and_in_order_though_process_and_router_are_killed(
    place: Place,
) -> None:
    received: list[str] = []

    async def receive() -> None:
        while len(received) < ROWS:
            delivery = await subscriber.receive()
            received.append(str(delivery.body))
            await delivery.accept()

    async with place.client() as client:
        subscriber = await client.subscriber(place.topic, name="rows")
        receiving = asyncio.create_task(receive())
        async with running(place.publisher(), place.folder / "publisher.log") as publisher:
            await place.killed_twice(publisher, lambda: len(received))
            await publisher.ended()
        await receiving
    assert received == WANTED
    assert {line.partition(" ")[2] for line in publisher.lines} == {"accepted"}


async def test_javascript_gets_what_python_publishes_once_and_in_order_though_process_and_router_are_killed(
    place: Place,
) -> None:
    async with running(place.subscriber(), place.folder / "subscriber.log") as subscriber:
        await subscriber.says(1)
        async with place.client() as client:
            publisher = await client.publisher(place.topic, name="rows")

            async def publish() -> None:
                sendings = [await publisher.submit(row) for row in WANTED]
                assert {(await sending).kind for sending in sendings} == {OutcomeKind.ACCEPTED}

            publishing = asyncio.create_task(publish())
            await place.killed_twice(subscriber, lambda: len(place.lines()))
            await subscriber.ended()
            await publishing
    assert place.lines() == WANTED


@pytest.mark.slow
async def test_javascript_gets_what_javascript_publishes_once_though_both_processes_and_the_router_are_killed(
    place: Place,
) -> None:
    async with running(place.subscriber(), place.folder / "subscriber.log") as subscriber:
        await subscriber.says(1)
        async with running(place.publisher(), place.folder / "publisher.log") as publisher:
            await asyncio.gather(
                place.killed_twice(subscriber, lambda: len(place.lines())),
                place.killed_twice(publisher, lambda: len(place.lines())),
            )
            await asyncio.gather(publisher.ended(), subscriber.ended())
    assert place.lines() == WANTED


async def test_a_start_of_the_subscriber_does_not_write_its_lines_anew(place: Place) -> None:
    """A SIGKILL in the middle of that would lose them."""
    output = place.folder / "lines"
    output.write_text("".join(f"{number:02x} {row}\n" for number, row in enumerate(WANTED)))
    written = output.stat().st_mtime_ns
    async with running(place.subscriber(), place.folder / "subscriber.log") as subscriber:
        await subscriber.ended()
    assert output.stat().st_mtime_ns == written


async def test_the_modules_of_the_javascript_client_pass_their_own_tests() -> None:
    tests = sorted(map(str, (CLIENT / "test").glob("*.test.js")))
    assert tests
    process = await asyncio.create_subprocess_exec(
        "node", "--test", *tests, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
