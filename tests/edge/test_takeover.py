"""Edges that share a PostgreSQL database: one owns each feed and the outbox, and another one takes over."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bridges.workqueue import Queue
from chaos.network.database_relay import relay_to
from oncewire.client import Publisher, Subscriber, connect
from tests.edge.edge_process import LONG_S, EdgeProcess, running_edge, settings
from tests.router.processes import RouterProcess, running_router
from tests.support.waiting import eventually
from tests.workqueue.queue_world import Database
from topology.etcd.server import free_port

PARTS = '[[queue]]\nname = "in"\n[[feed]]\ntopic = "orders"\nqueue = "in"\n[[publish]]\n'
OWNED = ("feed", "publish")
pytestmark = [pytest.mark.timeout(300), pytest.mark.needs("postgresql")]


async def states(edge: EdgeProcess, kinds: Sequence[str] = OWNED) -> list[str]:
    return [(await edge.part(kind))["state"] for kind in kinds]


async def owns(edge: EdgeProcess, kinds: Sequence[str] = OWNED) -> bool:
    rows = [await edge.part(kind) for kind in kinds]
    return all((row["state"], row["trouble"]) == ("owner", "") for row in rows)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "drained"])
async def test_when_the_owner_is_gone_another_edge_takes_over_and_no_message_is_lost_or_doubled(
    tmp_path: Path, postgres: Database, router: RouterProcess, how: signal.Signals
) -> None:
    def text(name: str) -> str:
        return settings(postgres.url, [router.url], PARTS, name, 'lease = "2s"')

    async with (
        running_edge(tmp_path / "a.toml", text("a")) as first,
        running_edge(tmp_path / "b.toml", text("b")) as second,
        connect(router.url) as client,
    ):
        # W-26: an edge that comes later takes nothing from one that is there, and is ready.
        assert await states(first) == ["owner", "owner"]
        assert await states(second) == ["stands by", "stands by"]
        assert (await second.ask("/readyz"))[0] == 200
        done = await client.subscriber("done")
        orders = await client.publisher("orders")
        sent = [await orders.submit(b"%d" % number) for number in range(100)]
        await first.end(how)
        sent += [await orders.submit(b"%d" % number) for number in range(100, 200)]
        for each in sent:
            assert (await each).is_accepted
        await eventually(lambda: owns(second), "the other edge takes over")
        await first.start()
        assert await states(first) == ["stands by", "stands by"]
        async with Queue.open(postgres.url, "in") as queue:
            for number in range(200):
                async with queue.reserve(wait=LONG_S) as item:
                    assert item.payload == b"%d" % number
                    item.publish("done", item.payload)
            assert await queue.pop() is None
        for number in range(200):
            delivery = await done.receive(LONG_S)
            assert delivery.body == b"%d" % number
            await delivery.accept()


EVERYTHING = f'{PARTS}[[journal]]\nname = "log"\ntopics = ["orders"]\n'
ALL_OWNED = (*OWNED, "journal")


@asynccontextmanager
async def short_folder() -> AsyncIterator[Path]:
    """The path of a socket is short."""
    with tempfile.TemporaryDirectory(prefix="oncewire-relay-") as name:
        yield Path(name)


@dataclass
class Flow:
    """Numbers published one after the other, and what a reader of the journal gets meanwhile."""

    publisher: Publisher
    reader: Subscriber
    sent: int = 0
    read: list[int] = field(default_factory=list)
    ends: bool = False

    async def publish(self) -> None:
        while not self.ends:
            number, self.sent = self.sent, self.sent + 1  # the one under way counts when the end comes
            assert (await self.publisher.send(b"%d" % number)).is_accepted

    async def follow(self) -> None:
        while not self.ends or len(self.read) < self.sent:
            delivery = await self.reader.receive(LONG_S)
            await delivery.accept()
            assert isinstance(delivery.body, bytes)
            self.read.append(int(delivery.body))

    async def goes_on(self) -> None:
        """Until messages that are sent from now on are read."""
        enough = len(self.read) + 200
        await eventually(lambda: len(self.read) >= enough, "messages are stored and read")


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stopped", "cut off"])
async def test_an_owner_that_is_stopped_or_cut_off_from_the_database_is_replaced_and_fenced_off(
    tmp_path: Path, postgres: Database, how: str
) -> None:
    """Its process is there, and connected to the router: it does not know."""
    async with (
        running_router("--standalone", "--listen-idle-timeout-s=2") as router,
        short_folder() as folder,
        relay_to(postgres.url, folder) as relay,
        running_edge(tmp_path / "a.toml", settings(relay.url, [router.url], EVERYTHING, "a", 'lease = "2s"')) as first,
        running_edge(
            tmp_path / "b.toml", settings(postgres.url, [router.url], EVERYTHING, "b", 'lease = "2s"')
        ) as second,
        connect(router.url, container_id="shop", journal=tmp_path / "shop.db") as client,
        client.publisher("orders", name="push") as publisher,
        client.journal("log", name="audit", journal=tmp_path / "audit.db") as reader,
    ):
        flow = Flow(publisher, reader)
        working = asyncio.gather(flow.publish(), flow.follow())
        await flow.goes_on()
        assert await states(first, ALL_OWNED) == ["owner"] * 3
        assert first.process is not None
        if how == "stopped":
            first.process.send_signal(signal.SIGSTOP)
        else:
            relay.cut()
        await eventually(lambda: owns(second, ALL_OWNED), "the other edge takes over")
        await flow.goes_on()
        if how == "stopped":
            first.process.send_signal(signal.SIGCONT)
        else:
            relay.heal()
        await eventually(lambda: stands_by(first), "the first one notices")
        await flow.goes_on()
        assert await states(second, ALL_OWNED) == ["owner"] * 3
        flow.ends = True
        await working
        assert flow.read == [*range(flow.sent)]
        async with Queue.open(postgres.url, "in") as queue:
            items = [item.payload for _ in range(-(-flow.sent // 500)) for item in await queue.reserve_many(500, 60)]
            assert items == [b"%d" % number for number in range(flow.sent)]
            assert await queue.pop() is None


async def stands_by(edge: EdgeProcess) -> bool:
    rows = [await edge.part(kind) for kind in ALL_OWNED]
    return all((row["state"], row["trouble"]) == ("stands by", "") for row in rows)


async def test_a_database_that_does_not_answer_is_waited_for_and_the_edge_says_so(
    tmp_path: Path, router: RouterProcess
) -> None:
    text, port = settings(f"postgresql:///work?host={tmp_path}", [router.url], PARTS), free_port()
    async with running_edge(tmp_path / "edge.toml", text, f"--http-port={port}", is_ready=None) as edge:
        await edge.logged("store_awaited")
        edge.url = f"http://127.0.0.1:{port}"
        assert (await edge.ask("/healthz"))[0] == 200
        assert await edge.ask("/readyz") == (503, {"ready": False, "waiting_for": ["the store"]})
        assert await edge.end(signal.SIGTERM) == 0
