"""Large messages through a real router: what its clients see, part by part (L-1 to L-7)."""

from __future__ import annotations

import pytest

from delivery_records.model.limits import LARGE_BYTES_WITHOUT_MAP
from oncewire.client import MessageTooLarge, connect
from oncewire.wire import (
    RELEASED,
    DeliveryBegun,
    Message,
    Modified,
    Properties,
    Rejected,
    decode_message,
    encode_message,
    read_annotations,
)
from tests.client.shell_helpers import LONG
from tests.router.large_clients import BODY, HALF, MESSAGE, MIB, PartPublisher, PartSubscriber
from tests.router.processes import RouterProcess, running_router

AGAIN = "a subscription needs a large message again: attach again, present the map, send again"


async def test_the_first_part_reaches_its_subscriber_before_the_last_is_sent(router: RouterProcess) -> None:
    subscriber = await PartSubscriber.attach(router.port)
    publisher = await PartPublisher.attach(router.port)
    publisher.begin()
    begun = await subscriber.begun()
    publisher.finish()
    data, is_aborted = await subscriber.rest(begun)
    assert not is_aborted
    assert decode_message(data).body == BODY
    assert read_annotations(data)["x-opt-topic-publisher"] == "p/pub"
    subscriber.accept(begun)
    await publisher.accepted()
    await subscriber.raw.settled(begun.tag)


async def test_a_subscriber_that_does_not_read_closes_its_publishers_window(router: RouterProcess) -> None:
    """L-4, C-6: what waits is bounded, others are served meanwhile, and it goes on when the subscriber reads again."""
    subscriber = await PartSubscriber.attach(router.port)
    publisher = await PartPublisher.attach(router.port)
    bystander = await PartSubscriber.attach(router.port, "bystander", "elsewhere")
    elsewhere = await PartPublisher.attach(router.port, "p2", "elsewhere")
    subscriber.client.pause()
    size = 60 * MIB
    publisher.begin(b"1", MESSAGE[:100])
    publisher.link.send_part(bytes(size))
    publisher.client.flush()
    before, exchanges = -1, 0
    while (waiting := publisher.link.unsent_bytes) != before:
        before, exchanges = waiting, exchanges + 1
        tag = b"%d" % exchanges
        elsewhere.begin(tag)
        elsewhere.finish()
        bystander.accept((await bystander.message())[0])
        await elsewhere.accepted(tag)
    assert waiting > 20 * MIB
    subscriber.client.resume()
    begun = await subscriber.begun()
    publisher.finish(b"")
    data, is_aborted = await subscriber.rest(begun)
    assert not is_aborted
    assert len(data) > size


async def test_a_subscriber_that_takes_only_smaller_messages_counts_as_one_that_rejects(router: RouterProcess) -> None:
    small = await PartSubscriber.attach(router.port, "small", max_message_size=3 * MIB)
    large = await PartSubscriber.attach(router.port, "large")
    publisher = await PartPublisher.attach(router.port)
    publisher.begin()
    begun = await small.begun()
    publisher.finish()
    _, is_aborted = await small.rest(begun)
    assert is_aborted
    found, _ = await large.message()
    large.accept(found)
    await publisher.accepted()


@pytest.mark.parametrize("exactly_once", [True, False])
async def test_again_asks_for_the_message_again(router: RouterProcess, exactly_once: bool) -> None:
    """E-4a, L-7: no router has it any more."""
    subscriber = await PartSubscriber.attach(router.port, exactly_once=exactly_once)
    publisher = await PartPublisher.attach(router.port)
    publisher.begin()
    publisher.finish()
    begun, _ = await subscriber.message()
    subscriber.link.dispose([begun.delivery_id], RELEASED, True)
    subscriber.client.flush()
    detached = await publisher.client.detached(publisher.link)
    assert detached.error is not None
    assert detached.error.description == AGAIN
    repeat = PartPublisher(await publisher.client.publisher("t", unsettled={b"1": None}))
    repeat.begin()
    repeat.finish()
    second, data = await subscriber.message()
    assert decode_message(data).body == BODY
    subscriber.accept(second)
    await repeat.accepted()


async def test_a_stock_publisher_keeps_its_link_and_decides_whether_to_send_what_is_needed_again(
    router: RouterProcess,
) -> None:
    """L-7, c.5: at-least-once; what is smaller is stored whole, for it has no map (L-1)."""
    subscriber = await PartSubscriber.attach(router.port)
    publisher = await PartPublisher.attach(router.port, exactly_once=False)
    publisher.begin(message=MESSAGE[:HALF] + bytes(LARGE_BYTES_WITHOUT_MAP))
    first = await subscriber.begun()
    subscriber.client.cut()
    resumed = await PartSubscriber.attach(router.port)
    publisher.finish()
    stated = await publisher.raw.outcome(b"1")
    assert stated.state == Modified(delivery_failed=True)
    publisher.raw.settle(*stated.ids)
    publisher.begin(b"2")
    publisher.finish()
    begun, _ = await resumed.message()
    assert begun.tag != first.tag
    resumed.accept(begun)
    await publisher.accepted(b"2")


# --- what is refused --------------------------------------------------------------------------------------------------


async def test_what_is_in_front_of_the_bare_message_must_lie_in_the_first_part(router: RouterProcess) -> None:
    """I-1b."""
    subscriber = await PartSubscriber.attach(router.port)
    publisher = await PartPublisher.attach(router.port)
    annotations = b"\x00\x53\x72\xd1" + (5 * MIB).to_bytes(4, "big") + (2).to_bytes(4, "big")
    publisher.begin(b"1", annotations + bytes(3 * MIB))
    publisher.finish(bytes(3 * MIB))
    event = await publisher.raw.outcome(b"1")
    assert isinstance(event.state, Rejected)
    assert event.state.error is not None
    assert event.state.error.condition == "amqp:decode-error"
    assert not [event for event in subscriber.client.heard if isinstance(event, DeliveryBegun)]


async def test_a_message_over_the_limit_ends_its_link_and_is_aborted_at_its_subscriber() -> None:
    async with running_router("--standalone", "--limits-max-message-size=6MiB") as router:
        subscriber = await PartSubscriber.attach(router.port)
        publisher = await PartPublisher.attach(router.port)
        publisher.link.remote_attach.max_message_size = 0  # type: ignore[union-attr]  # it does not look
        publisher.begin()
        begun = await subscriber.begun()
        publisher.finish()
        detached = await publisher.client.detached(publisher.link)
        assert detached.error is not None
        assert detached.error.condition == "amqp:link:message-size-exceeded"
        _, is_aborted = await subscriber.rest(begun)
        assert is_aborted


async def test_a_message_that_is_sent_settled_is_stored_and_has_a_limit_of_its_own() -> None:
    flags = ("--limits-max-message-size=1GiB", "--limits-window-bytes=1MiB")
    async with running_router("--standalone", *flags) as router:
        subscriber = await PartSubscriber.attach(router.port)
        publisher = await PartPublisher.attach(router.port, snd_settle_mode=2)
        assert publisher.raw.reply.max_message_size == 1 << 30
        publisher.link.send(b"", MESSAGE, settled=True)
        publisher.client.flush()
        begun = await subscriber.raw.delivery()
        assert (begun.settled, decode_message(begun.payload).body) == (True, BODY)
        publisher.link.send(b"", bytes(70 * MIB), settled=True)
        publisher.client.flush()
        detached = await publisher.client.detached(publisher.link)
        assert detached.error is not None
        assert detached.error.condition == "amqp:link:message-size-exceeded"
        assert "it is sent settled; send it unsettled" in (detached.error.description or "")


async def test_a_publisher_that_sends_all_settled_is_reported_what_is_stored() -> None:
    flags = ("--limits-max-message-size=1GiB", "--limits-window-bytes=80MiB")
    async with running_router("--standalone", *flags) as router, connect(router.url, container_id="c") as client:
        publisher = await client.settled_publisher("t")
        with pytest.raises(MessageTooLarge, match=str(80 * MIB)):
            await publisher.send(bytes(81 * MIB))


async def test_a_filter_reads_what_lies_at_the_beginning(router: RouterProcess) -> None:
    """E-9, L-1."""
    message = encode_message(Message(BODY, properties=Properties(subject="this one")))
    async with connect(router.url, container_id="c") as client:
        chosen = await client.subscriber("t", name="chosen", selector="JMSType = 'this one'")
        others = await client.subscriber("t", name="others", selector="JMSType = 'another'")
        publisher = await PartPublisher.attach(router.port)
        publisher.begin(b"1", message[:HALF])
        publisher.finish(message[HALF:])
        delivery = await chosen.receive(LONG)
        assert delivery.body == BODY
        await delivery.accept()
        await publisher.accepted()
        assert others.statistics.messages == 0
