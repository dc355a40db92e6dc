"""Dead letters at routers that are killed: each failed message comes to each dead-letter subscriber once (I-3e)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from oncewire.client import Client, ClientError, Delivery, Subscriber, connect
from router.commands.local_network import LocalNetwork
from tests.network.harness import assert_no_internal_error
from tests.network.test_shared_subscriptions import urls

MESSAGES = 1500
BAD = 3
"""Every so-manieth message is rejected."""
END_S = 120.0
RULES = json.dumps([{"topics": ["work"], "dead_letter": "work.dead"}])


def number_of(delivery: Delivery) -> int:
    body = delivery.body
    assert isinstance(body, bytes)
    return int(body)


async def work(subscriber: Subscriber, *, rejects: bool) -> None:
    with suppress(ClientError):
        async for delivery in subscriber:
            if rejects and number_of(delivery) % BAD == 0:
                await delivery.reject("not for me", "app:bad")
            else:
                await delivery.accept()


async def collect(subscriber: Subscriber, done: Counter[int]) -> None:
    with suppress(ClientError):
        async for delivery in subscriber:
            letter = delivery.dead_letter
            assert letter is not None
            assert (letter.reason, letter.topic, letter.subscription) == ("rejected", "work", "picky/s")
            done[number_of(delivery)] += 1
            await delivery.accept()


async def publish(client: Client, letters: list[Counter[int]]) -> int:
    """Publish, and look at each outcome whether the letter of its message was done before."""
    async with client.publisher("work", name="p") as publisher:
        sending = [await publisher.submit(b"%d" % number) for number in range(MESSAGES)]
        accepted = 0
        for number, each in enumerate(sending):
            accepted += (await each).is_accepted
            if number % BAD == 0:
                assert all(done[number] for done in letters), f"{number} is accepted before its letter was done"
    return accepted


@pytest.mark.slow
async def test_routers_are_killed_and_each_failed_message_comes_to_each_dead_letter_subscriber_once(
    tmp_path: Path,
) -> None:
    settings = {"topics.rules": RULES, "etcd.lease_ttl_s": "3"}
    letters: list[Counter[int]] = [Counter(), Counter()]
    async with LocalNetwork(3, log_folder=tmp_path, log_level="info", settings=settings) as network:
        names = ("picky", "plain", "grave", "tomb", "shop")
        clients = {name: await connect(urls(network, at), container_id=name) for at, name in enumerate(names)}
        async with asyncio.timeout(END_S), asyncio.TaskGroup() as tasks:
            for name, rejects in (("picky", True), ("plain", False)):
                subscriber = await clients[name].subscriber("work", name="s")
                tasks.create_task(work(subscriber, rejects=rejects))
            for name, done in zip(("grave", "tomb"), letters, strict=True):
                tasks.create_task(collect(await clients[name].subscriber("work.dead", name="d"), done))
            publishing = tasks.create_task(publish(clients["shop"], letters))
            for part, router in ((0.15, "r2"), (0.4, "r3"), (0.65, "r1")):
                while letters[0].total() < part * MESSAGES / BAD:  # noqa: ASYNC110  (an effect of which nobody is notified)
                    await asyncio.sleep(0.01)
                await network.kill(router)
                await network.restart(router)
            assert await publishing == MESSAGES
            for client in clients.values():
                await client.close()
    expected = Counter(dict.fromkeys(range(0, MESSAGES, BAD), 1))
    assert letters == [expected, expected]
    assert_no_internal_error(tmp_path)


async def test_a_dead_letter_that_nobody_is_there_for_waits_is_shown_and_logged_and_comes_to_who_subscribes(
    tmp_path: Path,
) -> None:
    settings = {"topics.rules": RULES}
    async with (
        LocalNetwork(2, log_folder=tmp_path, settings=settings) as network,
        connect(urls(network, 0), container_id="shop") as shop,
        connect(urls(network, 1), container_id="picky") as picky,
    ):
        tasks = [asyncio.create_task(work(await picky.subscriber("work", name="s"), rejects=True))]
        publisher = await shop.publisher("work", name="p")
        sending = await publisher.submit(b"0")
        log = tmp_path / "r1.log"
        while "dead_letter_waits" not in log.read_text():  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        assert "work.dead" in log.read_text()
        assert publisher.unfinished == 1
        late = await picky.subscriber("work.dead", name="d")
        delivery = await late.receive()
        assert delivery.dead_letter is not None
        assert delivery.dead_letter.error == "app:bad: not for me"
        await delivery.accept()
        assert (await sending).is_accepted
        for task in tasks:
            task.cancel()


async def test_who_rejects_while_nobody_asks_for_dead_letters_holds_up_a_publisher_for_no_longer_than_the_rule_says(
    tmp_path: Path,
) -> None:
    settings = {"topics.rules": json.dumps([{"topics": ["work"], "dead_letter": "dead", "dead_letter_wait_s": 1}])}
    async with (
        LocalNetwork(2, log_folder=tmp_path, settings=settings) as network,
        connect(urls(network, 0), container_id="shop") as shop,
        connect(urls(network, 1), container_id="picky") as picky,
    ):
        task = asyncio.create_task(work(await picky.subscriber("work", name="s"), rejects=True))
        publisher = await shop.publisher("work", name="p")
        async with asyncio.timeout(END_S):
            outcomes = [await (await publisher.submit(b"%d" % number)) for number in (0, 3, 1)]
        assert [outcome.is_accepted for outcome in outcomes] == [False, False, True]
        assert "nobody has a dead letter of it" in str(outcomes[0])
        assert "dead_letter_given_up" in (tmp_path / "r1.log").read_text()
        await picky.close()
        await task
