"""Which messages a router passes on, and what it says of those that it rejects (I-1b, AMQP 1.0 section 3.2)."""

from __future__ import annotations

from oncewire.wire import ACCEPTED, Described, Modified, Rejected, Symbol, ULong, decode_message, encode
from tests.router.processes import RouterProcess
from tests.router.raw_client import RawClient

HEADER = encode(Described(ULong(0x70), [True, None, 1000]))
DELIVERY_ANNOTATIONS = encode(Described(ULong(0x71), {Symbol("hop"): 1}))
ANNOTATIONS = encode(Described(ULong(0x72), {Symbol("a"): 1}))
PROPERTIES = encode(Described(ULong(0x73), ["id", None, "orders"]))
APPLICATION_PROPERTIES = encode(Described(ULong(0x74), {"key": 1}))
DATA = encode(Described(ULong(0x75), b"x"))
FOOTER = encode(Described(ULong(0x78), {Symbol("sum"): 1}))

# In front of the bare message -> the bare message and the footer.
PASSED = {
    "header": (HEADER, b""),
    "empty header": (b"\x00\x53\x70\x45", b""),
    "annotations": (ANNOTATIONS, b""),
    "delivery annotations": (DELIVERY_ANNOTATIONS, b""),
    "footer": (b"", FOOTER),
    "header and footer": (HEADER, FOOTER),
    "properties": (b"", PROPERTIES),
    "header and properties": (HEADER, PROPERTIES),
    "application properties": (HEADER, APPLICATION_PROPERTIES),
    "body ahead of properties": (HEADER, DATA + PROPERTIES),
    "application properties ahead of properties": (HEADER, APPLICATION_PROPERTIES + PROPERTIES),
}
REJECTED = {
    "nothing": (b"", "the message has no section"),
    "cut off in a descriptor": (b"\x00\x53", "the message ends in the descriptor of a section"),
    "cut off in a long descriptor": (b"\x00\x80\x00\x00", "the message ends in the descriptor of a section"),
    "descriptor alone": (b"\x00\x53\x70", "the message ends in the section header"),
    "header cut off": (HEADER[:-1], "the section header cannot be read"),
    "header that is no list": (b"\x00\x53\x70\x40" + DATA, "the section header is not a list"),
    "header twice": (HEADER + HEADER + DATA, "the section header is there twice, or out of order"),
    "header behind annotations": (ANNOTATIONS + HEADER + DATA, "the section header is there twice, or out of order"),
    "annotations cut off": (HEADER + ANNOTATIONS[:-1], "the section message-annotations cannot be read"),
    "annotations that are no map": (b"\x00\x53\x72\x45" + DATA, "the section message-annotations is not a map"),
    "body alone, cut off in its descriptor": (b"\x00\x53\x75", "the message ends in the section data"),
}


async def test_a_message_without_a_body_or_in_another_order_goes_to_every_subscription(router: RouterProcess) -> None:
    client = await RawClient.connect(router.port)
    resuming, stock = (
        await client.subscriber("orders", "one"),
        await client.subscriber("orders", "two", exactly_once=False),
    )
    publisher = await client.publisher("orders")
    for name, (front, bare) in PASSED.items():
        tag = name.encode()[:32]
        publisher.link.send(tag, front + bare)
        client.flush()
        for subscriber in (resuming, stock):
            delivery = await subscriber.delivery()
            assert delivery.payload.endswith(bare), name
            found = decode_message(delivery.payload)
            assert found.annotations[Symbol("x-opt-topic-tag")] == tag
            assert found.body == (b"x" if DATA in bare else None)
            subscriber.accept(delivery, settled=subscriber is stock)
        assert (await publisher.outcome(tag)).state == ACCEPTED, name


async def test_a_message_without_a_body_is_sent_again_with_its_marks(router: RouterProcess) -> None:  # E-4a
    client = await RawClient.connect(router.port)
    subscriber = await client.subscriber("orders", exactly_once=False)
    publisher = await client.publisher("orders")
    publisher.link.send(b"1", HEADER)
    client.flush()
    first = await subscriber.delivery()
    subscriber.link.dispose([first.delivery_id], Modified(True, False, {Symbol("why"): "later"}), settled=True)
    client.flush()
    second = decode_message((await subscriber.delivery()).payload)
    assert second.header is not None
    assert (second.header.durable, second.header.ttl, second.header.delivery_count) == (True, 1000, 1)
    assert second.annotations[Symbol("why")] == "later"


async def test_what_is_rejected_names_the_section(router: RouterProcess) -> None:
    client = await RawClient.connect(router.port)
    subscriber = await client.subscriber("orders")
    publisher = await client.publisher("orders")
    for name, (message, why) in REJECTED.items():
        tag = name.encode()[:32]
        publisher.link.send(tag, message)
        client.flush()
        state = (await publisher.outcome(tag)).state
        assert isinstance(state, Rejected), name
        assert state.error is not None
        assert state.error.condition == "amqp:decode-error"
        assert state.error.description is not None
        assert why in state.error.description, name
    publisher.send(b"good", b"x")
    assert decode_message((await subscriber.delivery()).payload).body == b"x"
