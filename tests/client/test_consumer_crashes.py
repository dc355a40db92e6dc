"""Consumers over real routers: killed at every crash point, with routers killed and databases cut off."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from oncewire.client import Message, Publisher, connect
from oncewire.client.transactions import Consumer, CrashPoint, Producer, ProducerId
from router.commands.local_network import LocalNetwork
from tests.client.consumer_child import SCHEMA
from tests.client.output_readers import OutputReaders, until, until_connected
from tests.client.store_world import Database

ROOT = Path(__file__).parents[2]
CHILD = (
    "import runpy, sys; sys.path.append(sys.argv.pop(1));"
    "runpy.run_module('tests.client.consumer_child', run_name='__main__')"
)
"""The folder of the tests comes behind the installed packages, which are under test."""
WAIT_S = 120.0
UNFINISHED = 100


@pytest.fixture
def in_a_file(tmp_path: Path) -> Database:
    """One kind of database, to save time, where the test is about the network."""
    return Database("sqlite", str(tmp_path / "store.db"))


def urls(network: LocalNetwork) -> list[str]:
    """Where clients connect."""
    return [router.url for router in network.routers.values()]


class Source:
    """Publishes to `orders` what is hard to count: transactions that commit or roll back, repeats, plain messages."""

    def __init__(self, publisher: Publisher, seed: int) -> None:
        self.publisher = publisher
        self.rng = random.Random(seed)
        self.producers = [Producer(ProducerId(f"source{number}", number)) for number in (1, 2)]
        self.counting: set[str] = set()
        self.number = 0
        self.late: list[Message] = []

    async def publish_some(self) -> None:
        """One transaction, or one message that stands alone, with or without a sequence header."""
        producer = self.rng.choice(self.producers)
        bodies = [str(self.number + index) for index in range(self.rng.choice([1, 1, 3, 12]))]
        self.number += len(bodies)
        is_counting = True
        if len(bodies) == 1:
            header = producer.alone() if self.rng.random() < 0.7 else None
            messages = [Message(bodies[0].encode(), annotations=header.annotations() if header else {})]
        else:
            messages = [Message(body.encode(), annotations=producer.pending().annotations()) for body in bodies]
            is_counting = self.rng.random() < 0.7
            end = producer.ack() if is_counting else producer.rollback()
            messages.append(Message(b"", annotations=end.annotations()))
        if is_counting:
            self.counting.update(bodies)
        # A message without a header cannot be recognised when it comes again.
        self.late += [message for message in messages if message.annotations and self.rng.random() < 0.3]
        again = [self.late.pop(0) for _ in range(min(2, len(self.late)))]
        for message in [*messages, *again]:
            _ = await self.publisher.submit(message)

    async def publish_while(self, condition: Callable[[], bool]) -> None:
        """Publish, and never wait in vain for a window: a consumer that is dead accepts nothing."""
        async with asyncio.timeout(WAIT_S):
            while condition():
                if self.publisher.unfinished < UNFINISHED:
                    await self.publish_some()
                await asyncio.sleep(0.05)


@asynccontextmanager
async def child(
    database: Database, network: LocalNetwork, point: str, note: Path, *etcd: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A consumer's process, killed at the end of the block."""
    routers = ",".join(urls(network))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-c", CHILD, str(ROOT), database.url, routers, point, str(note), *etcd
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@asynccontextmanager
async def source_and_output(network: LocalNetwork, seed: int) -> AsyncIterator[tuple[Source, OutputReaders]]:
    """Both ends of a consumer."""
    output = OutputReaders()
    async with output.reading(urls(network), "totals"), connect(urls(network)) as client:
        yield Source(await client.publisher("orders"), seed), output


def judge(database: Database, source: Source, output: OutputReaders) -> None:
    """Each input in one committed transaction; each reader has each of its messages once, of no other transaction."""
    effects = database.rows("SELECT attempt, message FROM effects")
    assert Counter(message for _, message in effects) == Counter(source.counting)
    assert database.rows("SELECT total FROM sums") == [(sum(map(int, source.counting)),)]
    output.check([f"{message}>{part}#{attempt}" for attempt, message in effects for part in "xy"])


def is_all_accepted(database: Database) -> bool:
    """Whether everything that was decided has its outcome: no reader gets more of it."""
    return database.rows("SELECT number FROM oncewire_store_intents") == []


async def subscribe(database: Database, network: LocalNetwork) -> None:
    """Make the subscription: what was published before it, nobody would get."""
    async with Consumer(urls(network), store=database.url, name="billing", topics=["orders"], schema=SCHEMA):
        pass


async def finish(database: Database, network: LocalNetwork, source: Source, output: OutputReaders, note: Path) -> None:
    """Let a consumer process what is left, then judge."""
    async with child(database, network, "-", note):
        for _ in range(3):
            await source.publish_some()
        for producer in source.producers:  # nothing stays pending
            assert not producer.has_pending
        await until(
            lambda: output.have(2 * len(source.counting)) and is_all_accepted(database),
            lambda: ({kind: len(found) for kind, found in output.by_kind.items()}, len(source.counting)),
        )
    judge(database, source, output)


PUBLISHING = (CrashPoint.EXPOSED, CrashPoint.PUBLISHED_IN_PART, CrashPoint.ACCEPTED)
"""Between what is in the map and what is recorded as accepted; the slow test has all points."""


@pytest.mark.timeout(300)
async def test_a_consumer_killed_while_it_publishes_doubles_nothing_for_any_reader(
    in_a_file: Database, tmp_path: Path
) -> None:
    """ST-7. Before it, only readers of committed messages had each message once."""
    database = in_a_file
    async with LocalNetwork(1) as network, source_and_output(network, seed=11) as (source, output):
        await subscribe(database, network)
        for point in PUBLISHING:
            note = tmp_path / point.name
            async with child(database, network, point.name, note) as process:
                await source.publish_while(lambda: process.returncode is None)
                assert (process.returncode, note.read_text()) == (-signal.SIGKILL, point.name)
        await finish(database, network, source, output, tmp_path / "none")
        assert not output.flagged


WAITING = (CrashPoint.RELEASED, CrashPoint.ENDED)
"""Reached where an output waits for a subscription; see tests/client/test_consumer_requires.py."""


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_a_consumer_killed_at_every_crash_point_processes_each_input_in_one_transaction(
    database: Database, tmp_path: Path
) -> None:
    points = [point for point in CrashPoint if point not in WAITING]
    random.Random(database.kind).shuffle(points)
    hit = set()
    async with LocalNetwork(2) as network, source_and_output(network, seed=7) as (source, output):
        await subscribe(database, network)
        for place, point in enumerate(points):
            note = tmp_path / point.name
            async with child(database, network, point.name, note) as process:
                await source.publish_while(lambda: process.returncode is None)
                assert process.returncode == -signal.SIGKILL
            hit.add(CrashPoint[note.read_text()])
            if place == len(points) // 2:
                await network.kill("r1")
                await network.restart("r1")
        assert hit == set(points)
        await finish(database, network, source, output, tmp_path / "none")
        assert len({attempt for (attempt,) in database.rows("SELECT attempt FROM effects")}) > 3
        assert all(message.published_at is not None for message in output.messages)


@pytest.mark.timeout(600)
async def test_a_standby_takes_over_when_the_owner_is_killed_and_continues_its_input(
    in_a_file: Database, tmp_path: Path
) -> None:
    await kill_owners(in_a_file, tmp_path, 1)


@pytest.mark.slow
@pytest.mark.timeout(600)
async def test_standbys_take_over_one_after_the_other(database: Database, tmp_path: Path) -> None:
    await kill_owners(database, tmp_path, 2)


async def kill_owners(database: Database, tmp_path: Path, kills: int) -> None:
    """One process more than are killed, each while it is active; nobody fences off who is active."""

    def owners() -> set[str]:
        return {attempt for (attempt,) in database.rows("SELECT attempt FROM effects")}

    async with LocalNetwork(1) as network, source_and_output(network, seed=9) as (source, output):
        await subscribe(database, network)
        etcd = network.etcd_urls[0]
        async with AsyncExitStack() as ending:
            children = {}
            for number in range(kills + 1):
                process = await ending.enter_async_context(child(database, network, "-", tmp_path / str(number), etcd))
                children[str(process.pid)] = process
            for count in range(1, kills + 1):
                await source.publish_while(lambda: len(owners()) < count)  # noqa: B023
                assert len(owners()) == count  # one at a time
                (active,) = owners() & set(children)
                dead = children.pop(active)
                dead.kill()
                await dead.wait()
            await source.publish_while(lambda: len(owners()) <= kills)
            await until(
                lambda: output.have(2 * len(source.counting)) and is_all_accepted(database),
                lambda: ({kind: len(found) for kind, found in output.by_kind.items()}, len(source.counting)),
            )
            assert all(process.returncode is None for process in children.values())
        judge(database, source, output)


@pytest.mark.timeout(300)
async def test_an_owner_that_was_paused_while_another_took_over_sends_nothing_again(
    in_a_file: Database, tmp_path: Path
) -> None:
    """P-b: what it had unsettled when it was stopped is settled when it goes on; it must not present it."""
    database, output = in_a_file, OutputReaders()
    async with (
        LocalNetwork(1, settings={"listen.idle_timeout_s": "1"}) as network,
        output.reading(urls(network), "totals"),
        connect(urls(network)) as client,
        AsyncExitStack() as ending,
    ):
        await subscribe(database, network)
        slow = await client.subscriber("totals")
        orders = await client.publisher("orders")
        paused = await ending.enter_async_context(child(database, network, "-", tmp_path / "paused"))
        _ = await orders.send(b"1")
        held = [await slow.receive(), await slow.receive()]
        await until(lambda: output.have(2), lambda: output.by_kind)
        paused.send_signal(signal.SIGSTOP)
        await until_connected(network, "billing", 0)
        successor = await ending.enter_async_context(child(database, network, "-", tmp_path / "next"))
        await until(lambda: database.rows("SELECT epoch FROM oncewire_owners")[0][0] > 2, lambda: "no next owner")
        for delivery in held:
            await delivery.accept()
        await until(lambda: is_all_accepted(database), lambda: "the next owner has no outcome")
        paused.send_signal(signal.SIGCONT)
        async with asyncio.timeout(WAIT_S):
            assert await paused.wait() == 1  # StoreFenced
            _ = await orders.send(b"2")
            bodies = [str((await slow.receive()).body) for _ in range(2)]
        await until(lambda: output.have(4), lambda: output.by_kind)
    assert bodies == [f"2>{part}#{successor.pid}" for part in "xy"]
    output.check([*(f"1>{part}#{paused.pid}" for part in "xy"), *bodies])
