"""Queues over AMQP through a real router and a real bridge process, on each store that has transactions."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from bridges.workqueue import Ending, Queue, QueueStore
from oncewire.wire import (
    ACCEPTED,
    RELEASED,
    AmqpError,
    Connection,
    Header,
    LinkFlow,
    Modified,
    Rejected,
    Role,
    SaslClient,
    SaslServer,
    Source,
    Symbol,
    Target,
    Timestamp,
    decode_message,
)
from tests.router.processes import RouterProcess, running_router
from tests.router.raw_client import RawClient, until
from tests.workqueue.amqp_world import Worker, attach, bridge, pusher, worker
from tests.workqueue.queue_world import Database

pytestmark = pytest.mark.router("--listen-idle-timeout-s=300")


@pytest.fixture
async def queue(sql_database: Database) -> AsyncIterator[Queue]:
    async with Queue.open(sql_database.url, "mails", backoff_s=0.01) as found:
        yield found


async def test_rules_of_access_are_the_rights_to_push_to_a_queue_and_to_reserve_its_items(tmp_path: Path) -> None:
    rules = [{"users": ["shop"], "publish": ["queue://mails"]}, {"users": ["mailer"], "subscribe": ["queue://mails"]}]
    flags = ("--standalone", "--users=shop:s,mailer:m", f"--access-rules={json.dumps(rules)}")
    store = f"sqlite:///{tmp_path / 'work.db'}"
    async with (
        Queue.open(store, "mails"),
        running_router(*flags, "--listen-idle-timeout-s=300") as router,
        bridge(store, [router.url]),
    ):
        shop = await RawClient.connect(router.port, sasl=SaslClient("PLAIN", "shop", "s"))
        mailer = await RawClient.connect(router.port, sasl=SaslClient("PLAIN", "mailer", "m"))
        push = await pusher(shop, "mails")
        push.send(b"1", b"hello")
        assert (await push.outcome(b"1")).state == ACCEPTED
        _, body = await (await worker(mailer, "mails")).item()
        assert body == b"hello"
        for refused in (
            shop.session.attach_receiver("reserve", source=Source(address="queue://mails")),
            shop.session.attach_sender("other", target=Target(address="queue://other")),
            mailer.session.attach_sender("push", target=Target(address="queue://mails")),
        ):
            client = shop if refused.session is shop.session else mailer
            client.flush()
            error = (await client.detached(refused)).error
            assert error is not None
            assert error.condition == "amqp:unauthorized-access"


async def test_a_push_is_accepted_when_it_is_durable_and_keeps_time_priority_and_key(
    sql_database: Database, queue: Queue, router: RouterProcess
) -> None:
    async with bridge(sql_database.url, [router.url]):
        client = await RawClient.connect(router.port)
        push = await pusher(client, "mails")
        annotations = {Symbol("x-opt-delivery-delay"): 3_600_000, Symbol("x-opt-queue-key"): "k1"}
        push.send(b"1", b"later", header=Header(priority=9), annotations=annotations)
        assert (await push.outcome(b"1")).state == ACCEPTED
        statistics = await queue.statistics()
        assert (statistics.ready, statistics.waiting) == (0, 1)
        when = {Symbol("x-opt-delivery-time"): Timestamp(1_000)}
        push.send(b"2", b"now", header=Header(priority=7), annotations={**when, Symbol("x-opt-queue-key"): "k2"})
        assert (await push.outcome(b"2")).state == ACCEPTED
        (item,) = await queue.reserve_many(1)
        assert (item.payload, item.taken.priority, item.taken.key) == (b"now", 7, "k2")


async def test_queues_are_served_by_websocket_too(sql_database: Database, queue: Queue) -> None:
    async with (
        running_router("--standalone", "--listen-idle-timeout-s=300", "--http-websocket=true") as router,
        bridge(sql_database.url, [router.http.replace("http", "ws")]),
    ):
        push = await pusher(await RawClient.connect(router.port), "mails")
        push.send(b"1", b"now")
        assert (await push.outcome(b"1")).state == ACCEPTED
        assert (await queue.statistics()).ready == 1


async def test_bad_input_is_rejected_with_what_to_do_and_the_link_goes_on(
    sql_database: Database, queue: Queue, router: RouterProcess
) -> None:
    await queue.configure(max_payload_bytes=10)
    async with bridge(sql_database.url, [router.url]):
        client = await RawClient.connect(router.port)
        push = await pusher(client, "mails")
        push.send(b"large", bytes(11))
        outcome = await push.outcome(b"large")
        assert isinstance(outcome.state, Rejected)
        assert outcome.state.error is not None
        assert outcome.state.error.condition == "amqp:link:message-size-exceeded"
        assert "max_payload_bytes" in str(outcome.state.error.description)
        push.send(b"odd", b"x", annotations={Symbol("x-opt-delivery-delay"): "soon"})
        outcome = await push.outcome(b"odd")
        assert isinstance(outcome.state, Rejected)
        assert outcome.state.error is not None
        assert outcome.state.error.condition == "amqp:precondition-failed"
        push.send(b"good", b"x")
        assert (await push.outcome(b"good")).state == ACCEPTED
        link = client.session.attach_sender("typo", target=Target(address="queue://mial"))
        refusal = await attach(client, link)
        assert refusal is not None
        assert refusal.error is not None
        assert refusal.error.condition == "amqp:not-found"
        assert "configure" in str(refusal.error.description)
        link2 = client.session.attach_receiver("filter", source=Source("queue://mails", filter={Symbol("a"): "b"}))
        refusal = await attach(client, link2)
        assert refusal is not None
        assert refusal.error is not None
        assert "filter" in str(refusal.error.description)


async def test_outcomes_of_a_worker_end_or_return_its_item(
    sql_database: Database, queue: Queue, router: RouterProcess
) -> None:
    async with bridge(sql_database.url, [router.url]):
        client = await RawClient.connect(router.port)
        work = await worker(client, "mails")
        for state in (ACCEPTED, Rejected(AmqpError(Symbol("app:bad"), "no address"))):
            await queue.push(b"item")
            delivery, body = await work.item()
            assert body == b"item"
            assert decode_message(delivery.payload).delivery_annotations.keys() == {"x-opt-queue-handle"}
            work.state(delivery, state)
            answer = await work.answer(delivery)
            assert answer.state == state
            work.grant(1)
        endings = [(entry.ending, entry.reason) for entry in (await queue.history()).entries]
        assert endings == [(Ending.DEAD, "app:bad: no address"), (Ending.DONE, "")]
        await queue.push(b"again")
        for returned in (RELEASED, Modified(delivery_failed=True), Modified(False, True)):
            delivery, body = await work.item()
            assert body == b"again"
            work.state(delivery, returned)
            await work.answer(delivery)
            work.grant(1)
        delivery, _ = await work.item()
        header = decode_message(delivery.payload).header
        assert header is not None
        assert header.delivery_count == 2


async def test_workers_compete_and_each_item_is_one_workers(
    sql_database: Database, queue: Queue, router: RouterProcess
) -> None:
    async with bridge(sql_database.url, [router.url]):
        works = []
        for number in range(3):
            client = await RawClient.connect(router.port)
            works.append(await worker(client, "mails", f"work{number}", 1))
        for number in range(30):
            await queue.push(b"%d" % number)
        seen: list[bytes] = []

        async def consume(place: int) -> None:
            while len(seen) < 30:
                delivery, body = await works[place].item()
                seen.append(body)
                works[place].state(delivery, settled=True)
                works[place].grant(1)

        tasks = [asyncio.create_task(consume(place)) for place in range(3)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=30)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert sorted(seen) == sorted(b"%d" % number for number in range(30))


async def test_a_settled_link_pops_and_drain_returns_the_credit(
    sql_database: Database, queue: Queue, router: RouterProcess
) -> None:
    async with bridge(sql_database.url, [router.url]):
        client = await RawClient.connect(router.port)
        await queue.push(b"one")
        work = await worker(client, "mails", credit=0, snd_settle_mode=1)
        work.grant(5, drain=True)
        delivery, body = await work.item()
        assert (body, delivery.settled) == (b"one", True)
        flow = await client.wait_for(LinkFlow, lambda flow: flow.link is work.link and flow.skipped == 4)
        assert flow.delivery_count == 5
        assert [entry.ending for entry in (await queue.history()).entries] == [Ending.POPPED]


async def test_a_bridge_holds_what_it_took_until_there_is_credit_again(sql_database: Database, queue: Queue) -> None:
    # A router would pass only the last flow of a read on: the bridge hears both of this end.
    for number in range(5):
        await queue.push(b"%d" % number)
    router = RawClient("router", None, 1 << 20, None)
    router.engine = Connection(
        Role.SERVER, container_id="router", sasl=SaslServer(["ANONYMOUS"], None), now=time.monotonic()
    )
    server = await asyncio.get_running_loop().create_server(lambda: router, "127.0.0.1", 0)
    async with server, bridge(sql_database.url, [f"amqp://127.0.0.1:{server.sockets[0].getsockname()[1]}"]):
        router.session = await router.begun()
        link = router.session.attach_receiver("work", source=Source(address="queue://mails"), snd_settle_mode=1)
        assert await attach(router, link) is None
        work = Worker(router, link)

        async def set_credit(*values: int) -> None:
            for credit in values:
                link.grant(credit)
            link.flow(echo=True)
            router.flush()
            await router.wait_for(LinkFlow, lambda flow: flow.link is link)

        await set_credit(3)
        await set_credit(0)
        await until(queue.statistics, lambda found: found.ready == 2)
        await set_credit(3, 0)
        work.grant(10)
        assert [(await work.item())[1] for _ in range(5)] == [b"%d" % number for number in range(5)]


async def test_a_lost_worker_loses_its_reservation_when_its_time_is_over(
    sql_database: Database, queue: Queue, router: RouterProcess
) -> None:
    async with bridge(sql_database.url, [router.url]):
        await queue.push(b"work")
        lost = await RawClient.connect(router.port)
        first = await worker(lost, "mails", properties={Symbol("x-opt-queue-timeout"): 500})
        await first.item()
        lost.cut()
        client = await RawClient.connect(router.port)
        second = await worker(client, "mails", "second")
        delivery, body = await second.item()
        assert body == b"work"
        second.state(delivery)
        await second.answer(delivery)


async def test_a_resumed_delivery_is_pushed_once_over_the_death_of_its_bridge(
    sql_database: Database, queue: Queue, router: RouterProcess
) -> None:
    client = await RawClient.connect(router.port, "shop")
    async with bridge(sql_database.url, [router.url], "bridge1") as first:
        push = await pusher(client, "mails", unsettled={})
        push.send(b"a", b"a")
        assert (await push.outcome(b"a")).state == ACCEPTED
        number = push.send(b"b", b"b")
        assert (await push.outcome(b"b")).state == ACCEPTED
        push.settle(number)
        first.kill()
        event = await client.detached(push.link)
        assert event.error is not None
        assert event.error.condition == "amqp:link:detach-forced"
    async with bridge(sql_database.url, [router.url], "bridge2"):
        push = await pusher(client, "mails", unsettled={b"a": None, b"c": None})
        assert push.link.remote_attach is not None
        assert push.link.remote_attach.unsettled == {b"a": ACCEPTED}
        push.send(b"c", b"c")
        assert (await push.outcome(b"c")).state == ACCEPTED
        assert (await queue.statistics()).ready == 3


async def test_a_push_of_another_program_wakes_a_worker(
    sql_database: Database, queue: Queue, router: RouterProcess
) -> None:
    async with bridge(sql_database.url, [router.url]), QueueStore.open(sql_database.url) as store:
        client = await RawClient.connect(router.port)
        work = await worker(client, "mails")
        await Queue(store, "mails").push(b"from python")  # a notice wakes the bridge (W-13)
        assert (await work.item())[1] == b"from python"
