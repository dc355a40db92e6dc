"""Members of a shared subscription at three real routers, while routers and members are killed (SH-1 to SH-6)."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from oncewire.client import Client, ClientError, Delivery, Message, Subscriber, connect
from oncewire.wire import Properties
from router.commands.local_network import LocalNetwork

MESSAGES = 2000
END_S = 120.0

pytestmark = pytest.mark.routers(3)


def urls(network: LocalNetwork, first: int) -> list[str]:
    found = [router.url for router in network.routers.values()]
    return found[first:] + found[:first]


def number_of(delivery: Delivery) -> int:
    body = delivery.body
    assert isinstance(body, bytes)
    return int(body)


class Members:
    """Members that process what they get; what each of them has done is written down as its effect."""

    def __init__(self) -> None:
        self.done: dict[str, list[int]] = {}
        self.flagged: set[int] = set()

    async def run(self, name: str, subscriber: Subscriber) -> None:
        mine = self.done.setdefault(name, [])
        with suppress(ClientError):
            async for delivery in subscriber:
                number = number_of(delivery)
                mine.append(number)
                if delivery.is_redelivered:
                    self.flagged.add(number)
                await delivery.accept()

    async def until(self, count: int) -> None:
        """Wait until so many are done."""
        while self.all().total() < count:  # noqa: ASYNC110  (what happens is an effect, and nobody is notified)
            await asyncio.sleep(0.02)

    def all(self) -> Counter[int]:
        return Counter(number for mine in self.done.values() for number in mine)


async def publish(client: Client, count: int = MESSAGES) -> int:
    async with client.publisher("work", name="p") as publisher:
        sending = [await publisher.submit(b"%d" % number) for number in range(count)]
        outcomes = [await each for each in sending]
    return sum(outcome.is_accepted for outcome in outcomes)


async def test_routers_are_killed_and_each_message_is_done_by_one_member(network: LocalNetwork, tmp_path: Path) -> None:
    members = Members()
    async with asyncio.timeout(END_S), asyncio.TaskGroup() as tasks:
        clients = [
            await connect(urls(network, number), container_id=f"m{number}", journal=tmp_path / f"m{number}.db")
            for number in range(3)
        ]
        running = []
        for number, client in enumerate(clients):
            subscriber = await client.subscriber("work", name="in", share="pool", prefetch=20)
            running.append(tasks.create_task(members.run(f"m{number}", subscriber)))
        publisher = await connect(urls(network, 0), container_id="p", journal=tmp_path / "p.db")
        publishing = tasks.create_task(publish(publisher))
        for name in ("r1", "r2"):
            await members.until(MESSAGES // 4 if name == "r1" else MESSAGES // 2)
            await network.kill(name)
            await network.restart(name)
        assert await publishing == MESSAGES
        for client in (*clients, publisher):
            await client.close()
    counts = members.all()
    assert sorted(counts) == list(range(MESSAGES))
    assert set(counts.values()) == {1}
    assert all(len(mine) > MESSAGES // 20 for mine in members.done.values())


async def test_what_a_member_had_that_never_comes_back_is_done_by_others_and_flagged(
    network: LocalNetwork, tmp_path: Path
) -> None:
    members = Members()
    async with asyncio.timeout(END_S), asyncio.TaskGroup() as tasks:
        lost = await connect(urls(network, 1), container_id="lost")
        idle = await lost.subscriber("work", share="pool", prefetch=5, timeout=3)
        had = 0
        other = await connect(urls(network, 2), container_id="other")
        publisher = await connect(urls(network, 0), container_id="p")
        publishing = tasks.create_task(publish(publisher, 200))
        first = [await idle.receive(20.0) for _ in range(5)]
        had = len(first)
        subscriber = await other.subscriber("work", share="pool", prefetch=5)
        tasks.create_task(members.run("other", subscriber))
        await lost.close()
        assert await publishing == 200
        for client in (other, publisher):
            await client.close()
    assert had == 5
    assert members.all() == Counter(range(200))
    assert {number_of(delivery) for delivery in first} <= members.flagged


GROUPS = 48
"""So many that each of three members has some, by any hash."""


async def publish_groups(client: Client, numbers: range) -> int:
    async with client.publisher("work", name="p") as publisher:
        sending = [
            await publisher.submit(Message(b"%d" % number, properties=Properties(group_id=f"g{number % GROUPS}")))
            for number in numbers
        ]
        outcomes = [await each for each in sending]
    return sum(outcome.is_accepted for outcome in outcomes)


@pytest.mark.slow
async def test_groups_come_in_order_though_routers_are_killed_and_members_come_and_go(
    network: LocalNetwork, tmp_path: Path
) -> None:  # SH-6
    members, in_order = Members(), list[tuple[str, int]]()

    async def run(name: str, subscriber: Subscriber) -> None:
        mine = members.done.setdefault(name, [])
        with suppress(ClientError):
            async for delivery in subscriber:
                mine.append(number_of(delivery))
                in_order.append((name, number_of(delivery)))
                await delivery.accept()

    async def member(number: int) -> Client:
        name = f"m{number}"
        client = await connect(urls(network, number % 3), container_id=name, journal=tmp_path / f"{name}.db")
        subscriber = await client.subscriber("work", name="in", share="pool", by_group=True, prefetch=20)
        tasks.create_task(run(name, subscriber))
        return client

    async with asyncio.timeout(END_S), asyncio.TaskGroup() as tasks:
        clients = [await member(number) for number in range(2)]
        publisher = await connect(urls(network, 0), container_id="p", journal=tmp_path / "p.db")
        publishing = tasks.create_task(publish_groups(publisher, range(MESSAGES // 2)))
        await members.until(MESSAGES // 4)
        await network.kill("r1")
        clients.append(await member(2))
        await network.restart("r1")
        assert await publishing == MESSAGES // 2, "now all groups are at rest, and the new member gets some"
        publishing = tasks.create_task(publish_groups(publisher, range(MESSAGES // 2, MESSAGES)))
        await members.until(3 * MESSAGES // 4)
        await network.kill("r3")
        await network.restart("r3")
        assert await publishing == MESSAGES // 2
        for client in (*clients, publisher):
            await client.close()
    assert members.all() == Counter(range(MESSAGES))
    for group in range(GROUPS):
        assert [number for _, number in in_order if number % GROUPS == group] == list(range(group, MESSAGES, GROUPS))
    assert all(members.done.values())
