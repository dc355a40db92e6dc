"""Large messages at our client: what it sends again, what it drops, how large a message it takes (L-5, L-7)."""

from __future__ import annotations

import tracemalloc

import pytest

from oncewire.client import UsageError, connect
from oncewire.client.core_effects import DeliverMessage, DisposeDeliveries
from oncewire.client.outcomes import ACCEPTED
from oncewire.wire import ReceiverLink
from tests.client.core_driver import SubscriberDriver, only
from tests.client.shell_helpers import LONG, error, until
from tests.client.wire_server import WireServer

MEGABYTE = 1_000_000


def attached(prefetch: int = 10) -> SubscriberDriver:
    s = SubscriberDriver(prefetch=prefetch)
    s.attach()
    return s


# --- S-a --------------------------------------------------------------------------------------------------------------


def test_an_aborted_delivery_leaves_no_entry_and_its_credit_is_given_back() -> None:
    s = attached(prefetch=2)
    for _ in range(10):
        assert only(DeliverMessage, s.transfer(b"t", aborted=True)) == []
    assert (s.core.unfinished, s.core.unprocessed, s.disk.entries) == (0, 0, {})
    s.restart()
    presented = s.core.begin_attach(10)
    assert presented is not None
    assert presented.unsettled == {}


def test_a_delivery_that_was_aborted_comes_again_as_a_new_one_and_is_processed_once() -> None:
    s = attached()
    s.transfer(b"t", aborted=True)
    (delivery,) = only(DeliverMessage, s.transfer(b"t"))
    assert delivery.tag == b"t"
    assert only(DisposeDeliveries, s.process()) == [DisposeDeliveries([s.next_id], ACCEPTED)]
    s.transfer(b"t", aborted=True)
    assert (s.delivered, s.disk.entries) == ([], {b"t": ACCEPTED})


def test_an_aborted_resume_changes_nothing_and_the_next_one_counts() -> None:
    s = attached()
    s.transfer(b"t")
    s.transfer(b"u")
    s.core.complete(s.delivered[1].serial, ACCEPTED)
    s.commit()
    s.restart()  # t is stored without its body: u was done before it
    s.attach()
    assert only(DeliverMessage, s.transfer(b"t", resume=True, aborted=True)) == []
    assert s.disk.entries == {b"t": None, b"u": ACCEPTED}
    (delivery,) = only(DeliverMessage, s.transfer(b"t", resume=True))
    assert delivery.tag == b"t"
    s.process()
    assert s.disk.entries == {b"t": ACCEPTED, b"u": ACCEPTED}


def test_an_aborted_repeat_of_what_is_being_processed_changes_nothing() -> None:
    s = attached()
    s.transfer(b"t")
    s.attach()
    s.transfer(b"t", resume=True, aborted=True)
    assert len(s.delivered) == 1
    assert s.core.unfinished == 1


# --- the publisher ----------------------------------------------------------------------------------------------------


async def test_a_publisher_that_is_detached_in_mid_message_presents_it_and_sends_it_again(server: WireServer) -> None:
    server.max_message_size = 64 * MEGABYTE
    async with connect(server.url, container_id="c") as client:
        publisher = await client.publisher("t", name="p")
        subscriber = await client.subscriber("t", name="s")
        (attachment,) = [found for found in server.attachments if found.link.name == "p"]
        link = attachment.link
        assert isinstance(link, ReceiverLink)
        link.session.offer(2)  # the engine tops up nothing from here on
        body = bytes(range(256)) * (20 * MEGABYTE // 256)
        sending = await publisher.submit(body)
        await until(lambda: link.incoming is not None)
        link.detach(False, error("amqp:link:detach-forced", "a subscription needs a large message again"))
        server.gone(attachment)
        attachment.connection.flush()
        delivery = await subscriber.receive(LONG)
        assert delivery.body == body
        await delivery.accept()
        assert await sending == ACCEPTED
        assert server.presented[-1] == ("p", 1)
        assert subscriber.statistics.messages == 1


async def test_a_large_body_is_copied_once_to_be_sent(server: WireServer) -> None:
    server.max_message_size = 64 * MEGABYTE
    async with connect(server.url, container_id="c") as client:
        publisher = await client.publisher("t", name="p")
        (attachment,) = server.attachments
        link = attachment.link
        assert isinstance(link, ReceiverLink)
        link.stream_above = 0  # the server keeps nothing of it
        body = bytes(50 * MEGABYTE)
        tracemalloc.start()
        try:
            _ = await publisher.submit(body)
            await until(lambda: link.moved == 1 and link.incoming is None)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            await client.abandon()  # nobody answers
        # The encoded message; then some frames that are under way, at both ends.
        assert peak < 60 * MEGABYTE


# --- the largest message ----------------------------------------------------------------------------------------------


async def test_a_client_says_how_large_a_message_its_subscribers_take(server: WireServer) -> None:
    async with connect(server.url, container_id="c", max_message_size=1 << 40) as client:
        await client.subscriber("t", name="s")
        (attachment,) = server.attachments
        assert attachment.link.remote_attach is not None
        assert attachment.link.remote_attach.max_message_size == 1 << 40


def test_a_client_that_takes_no_message_is_refused() -> None:
    with pytest.raises(UsageError, match="subscribers would get nothing"):
        _ = connect("amqp://127.0.0.1", max_message_size=0)
