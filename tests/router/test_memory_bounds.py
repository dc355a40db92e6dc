"""C-6: what clients can make a router hold is bounded in bytes, and frames that carry no body still pass."""

from __future__ import annotations

import asyncio

import pytest

from oncewire.wire import ACCEPTED, ConnectionClosed, LinkFlow
from router.amqp.offers import IDLE_FRAMES
from tests.router.processes import RouterProcess, running_router
from tests.router.raw_client import RawClient, RawPublisher, RawSubscriber, until

KIB = 1024
MESSAGE = 512 * KIB
MESSAGES = 20
WINDOW = 1024 * KIB
FRAME = 64 * KIB
READ = 512 * KIB
"""One read may bring so much before the router looks at the session's window again."""

FLAGS = (f"--limits-window-bytes={WINDOW}", f"--limits-max-frame-size={FRAME}", "--limits-window=64")
pytestmark = pytest.mark.router(*FLAGS)


async def held(router: RouterProcess) -> int:
    """Bytes of bodies in all windows."""
    state = await router.state()
    return sum(int(row["bytes"]) for row in state["windows"])


async def accept_all(subscriber: RawSubscriber, count: int) -> None:
    for _ in range(count):
        subscriber.accept(await subscriber.delivery())


async def settle_all(publisher: RawPublisher, count: int) -> None:
    async with asyncio.timeout(60):
        while len(publisher.accepted_tags()) < count:
            publisher.settle_accepted()
            await publisher.client.news()
            publisher.settle_accepted()


async def test_large_messages_on_one_link_wait_at_the_client_and_flows_and_dispositions_pass(
    router: RouterProcess,
) -> None:
    """20 messages of 60 MiB took 1.2 GiB where the limit was 64 MiB; here everything is 120 times smaller."""
    client = await RawClient.connect(router.port, max_frame_size=FRAME)
    publisher = await client.publisher("orders")
    other = await (await RawClient.connect(router.port)).subscriber("orders", credit=0)
    session = client.session
    assert session.remote_begin is not None
    assert session.remote_begin.incoming_window == 1
    assert session._remote_window == IDLE_FRAMES < WINDOW // FRAME, "an idle session is offered a few frames"
    small = await client.subscriber("small")
    for number in range(MESSAGES):
        publisher.send(b"%d" % number, bytes(MESSAGE))
    assert session.is_queueing

    async def waits() -> bool:
        return await held(router) >= WINDOW - MESSAGE - FRAME

    await until(waits, bool)
    # The same session has a closed window: an echo is answered, and a disposition arrives.
    small_publisher = await (await RawClient.connect(router.port)).publisher("small")
    small_publisher.send(b"s", b"x")
    small.accept(await small.delivery())
    assert (await small_publisher.outcome(b"s")).state == ACCEPTED
    small.link.flow(echo=True)
    client.flush()
    await client.wait_for(LinkFlow, lambda flow: flow.link is small.link)
    assert session.is_queueing
    assert await held(router) <= WINDOW + READ
    other.link.grant(1000)
    other.client.flush()
    accepting = asyncio.create_task(accept_all(other, MESSAGES))
    await settle_all(publisher, MESSAGES)
    await accepting
    assert not session.is_queueing


async def test_a_client_that_resumes_several_publishers_in_one_session_repeats_the_deliveries_of_each() -> None:
    """The bodies of the first ones fill what they share; the last one was detached for what it could not send."""
    flags = (
        f"--limits-window-bytes={WINDOW}",
        f"--limits-max-frame-size={FRAME}",
        f"--limits-max-message-size={WINDOW}",
    )
    async with running_router("--standalone", *flags) as router:
        stuck = await (await RawClient.connect(router.port)).subscriber("stuck", credit=0)
        free = await (await RawClient.connect(router.port)).subscriber("free")
        names = [f"stuck{number}" for number in range(4)]
        before = await RawClient.connect(router.port, "resuming")
        for name in names:
            await before.publisher("stuck", name)
        await before.publisher("free", "free")
        before.cut()
        client = await RawClient.connect(router.port, "resuming", max_frame_size=FRAME)
        tags = [b"%d" % number for number in range(4)]
        hogs = [await client.publisher("stuck", name, unsettled=dict.fromkeys(tags)) for name in names]
        last = await client.publisher("free", "free", unsettled={b"1": None})
        for hog in hogs:
            for tag in tags:
                hog.send(tag, bytes(WINDOW // 4))
        last.send(b"1", b"small")
        free.accept(await free.delivery())
        assert (await last.outcome(b"1")).state == ACCEPTED
        assert await held(router) >= 4 * WINDOW
        assert stuck.link.is_attached


@pytest.mark.slow
async def test_forty_publishers_together_hold_no_more_than_the_routers_budget_and_a_frame_each() -> None:
    """They were offered 35 MiB, and sent 31, where `router_bytes` was 4 MiB."""
    flags = (
        f"--limits-window-bytes={WINDOW}",
        f"--limits-max-frame-size={FRAME}",
        f"--limits-max-message-size={MESSAGE}",
        "--limits-window=64",
        "--limits-router-bytes=4MiB",
    )
    count = 40
    async with running_router("--standalone", *flags) as router:
        slow = await (await RawClient.connect(router.port)).subscriber("orders", credit=0)
        publishers = [
            await (await RawClient.connect(router.port, max_frame_size=FRAME)).publisher("orders", f"p{number}")
            for number in range(count)
        ]
        assert sum(each.client.session._remote_window for each in publishers) == count
        for publisher in publishers:
            for number in range(4):
                publisher.send(b"%d" % number, bytes(MESSAGE - 64 * KIB))
        most = 0

        async def is_full() -> bool:
            nonlocal most
            found = await held(router)
            was, most = most, max(most, found)
            return found == was > 2 * 1024 * KIB

        await until(is_full, bool)
        assert most <= 4 * 1024 * KIB + count * FRAME
        slow.link.grant(1000)
        slow.client.flush()
        accepting = asyncio.create_task(accept_all(slow, 4 * count))
        await asyncio.gather(*(settle_all(publisher, 4) for publisher in publishers))
        await accepting
        assert most <= 4 * 1024 * KIB + count * FRAME


async def test_messages_that_become_much_larger_within_a_wide_window_end_their_connection_and_no_other() -> None:
    flags = (
        f"--limits-window-bytes={WINDOW}",
        f"--limits-max-frame-size={FRAME}",
        f"--limits-max-message-size={MESSAGE}",
        "--limits-window=64",
    )
    async with running_router("--standalone", *flags) as router:
        client = await RawClient.connect(router.port, max_frame_size=FRAME)
        publisher = await client.publisher("orders")
        slow = await (await RawClient.connect(router.port)).subscriber("orders", credit=0)
        small = await client.publisher("nobody", "small")
        batch = 0
        while client.session._remote_window <= 2 * 64:
            for number in range(30 * batch, 30 * batch + 30):
                small.send(b"%d" % number, b"x")
            await settle_all(small, 30 * batch + 30)
            async with asyncio.timeout(60):
                while small.link.credit < 30:
                    await client.news()
            batch += 1
        for number in range(3 * MESSAGES):
            publisher.send(b"%d" % number, bytes(MESSAGE - KIB))
        closed = await client.wait_for(ConnectionClosed)
        assert closed.error is not None
        assert closed.error.condition == "amqp:resource-limit-exceeded"
        assert await held(router) <= 3 * (WINDOW + MESSAGE) + 2 * READ, "two publishers, and one more: 30 MiB were sent"
        slow.link.grant(1)
        slow.client.flush()
        assert (await slow.delivery()).tag.endswith(b"0"), "what was taken is delivered"


# --- clients that do not resume: who holds more than its part is stopped ----------------------------------------------


async def completes(publisher: RawPublisher, count: int) -> bool:
    """Whether all of its messages were accepted; False: its connection was closed, for want of memory."""
    client = publisher.client
    async with asyncio.timeout(60):
        while len(publisher.accepted_tags()) < count:
            closed = [event for event in client.heard if isinstance(event, ConnectionClosed)]
            if closed:
                assert closed[0].error is not None
                assert closed[0].error.condition == "amqp:resource-limit-exceeded"
                return False
            publisher.settle_accepted()
            if len(publisher.accepted_tags()) < count:
                await client.news()  # the end of its connection may come in one read with an outcome
    return True


async def test_stock_publishers_together_hold_no_more_than_the_routers_budget_and_a_read_each() -> None:
    """Each may send 16 MiB into its first window. The router is full with a part of it, and others are served on."""
    flags = (f"--limits-window-bytes={WINDOW}", f"--limits-max-frame-size={FRAME}", "--limits-router-bytes=4MiB")
    count = 20
    async with running_router("--standalone", *flags) as router:
        slow = await (await RawClient.connect(router.port)).subscriber("orders", credit=0)
        publishers = [
            await (await RawClient.connect(router.port, max_frame_size=FRAME, resumes=False)).publisher(
                "orders", f"p{number}", exactly_once=False
            )
            for number in range(count)
        ]
        for publisher in publishers:
            for number in range(8):
                publisher.send(b"%d" % number, bytes(MESSAGE - 64 * KIB))
        most = 0

        async def closed() -> int:
            nonlocal most
            most = max(most, await held(router))
            return sum(each.client.is_gone for each in publishers)

        await until(closed, lambda found: found > count // 2)
        assert most <= 4 * 1024 * KIB + count * READ
        slow.link.grant(1000)
        slow.client.flush()
        accepting = asyncio.create_task(accept_all(slow, 8 * count))
        ended = await asyncio.gather(*(completes(publisher, 8) for publisher in publishers))
        assert not all(ended), (most, ended)
        late = await (await RawClient.connect(router.port, resumes=False)).publisher("orders", exactly_once=False)
        late.send(b"late", b"small")
        assert (await late.outcome(b"late")).state == ACCEPTED
        accepting.cancel()
