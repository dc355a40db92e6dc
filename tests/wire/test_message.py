"""Messages as clients see them: sections by the book, round trips, refusals."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncewire.wire.annotations import data_body
from oncewire.wire.codec import encode
from oncewire.wire.errors import DecodeError, LocalProtocolError
from oncewire.wire.message import (
    BodyKind,
    Header,
    Message,
    Properties,
    decode_message,
    encode_data_message,
    encode_message,
    splice_annotations,
    topic_annotations,
)
from oncewire.wire.types import Described, Float, Symbol, Timestamp, UInt, ULong

FULL = Message(
    b"body",
    header=Header(True, 7, 1000, True, 3),
    properties=Properties(
        ULong(1),
        b"user",
        "to",
        "subject",
        "reply",
        UUID(int=5),
        "text/plain",
        "gzip",
        Timestamp(1000),
        Timestamp(2000),
        "group",
        9,
        "reply-group",
    ),
    application_properties={"a": 1, "b": "two", "c": True},
    annotations={Symbol("x-opt-a"): ULong(5)},
    delivery_annotations={Symbol("x-opt-b"): b"\x00"},
    footer={Symbol("x-opt-c"): None},
)


def test_a_bare_data_message_is_one_section() -> None:
    assert encode_data_message(b"hi").hex(" ") == "00 53 75 a0 02 68 69"
    assert encode_data_message(bytearray(300))[:8].hex(" ") == "00 53 75 b0 00 00 01 2c"


def test_every_section_is_written_as_the_specification_says() -> None:
    message = Message(
        b"B",
        header=Header(durable=True, ttl=1),
        properties=Properties(message_id="m", subject="s", creation_time=5),
        application_properties={"k": UInt(1)},
        annotations={Symbol("a"): True},
        delivery_annotations={Symbol("d"): None},
        footer={Symbol("f"): False},
    )
    expected = [
        "00 53 70 c0 05 03 41 40 52 01",
        "00 53 71 c1 05 02 a3 01 64 40",
        "00 53 72 c1 05 02 a3 01 61 41",
        "00 53 73 c0 17 0a a1 01 6d 40 40 a1 01 73 40 40 40 40 40 83 00 00 00 00 00 00 00 05",
        "00 53 74 c1 06 02 a1 01 6b 52 01",
        "00 53 75 a0 01 42",
        "00 53 78 c1 05 02 a3 01 66 42",
    ]
    assert encode_message(message).hex(" ") == " ".join(expected)


def test_a_message_with_everything_survives() -> None:
    assert decode_message(encode_message(FULL)) == FULL


def test_the_arguments_of_a_data_message_reach_its_sections() -> None:
    data = encode_data_message(
        FULL.body if isinstance(FULL.body, bytes) else b"",
        header=FULL.header,
        properties=FULL.properties,
        application_properties=FULL.application_properties,
        annotations=FULL.annotations,
    )
    decoded = decode_message(data)
    assert (decoded.body, decoded.header, decoded.properties) == (FULL.body, FULL.header, FULL.properties)
    assert decoded.application_properties == FULL.application_properties
    assert decoded.annotations == FULL.annotations
    assert decoded.footer == {}


TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
SYMBOLS = st.text(st.characters(codec="ascii"), max_size=20).map(Symbol)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    TEXT,
    SYMBOLS,
    st.binary(max_size=20),
    st.uuids(),
    st.floats(allow_nan=False),
    st.floats(width=32, allow_nan=False).map(Float),
    st.integers(0, 2**63 - 1).map(Timestamp),
)
ANNOTATIONS = st.dictionaries(SYMBOLS, st.one_of(VALUES, st.lists(VALUES, max_size=3)), max_size=4)
MESSAGE_IDS = st.one_of(st.none(), st.integers(0, 2**64 - 1), st.uuids(), st.binary(max_size=20), TEXT)
UINTS = st.one_of(st.none(), st.integers(0, 2**32 - 1))
TIMES = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1))
STRINGS = st.one_of(st.none(), TEXT)
CONTENT_TYPES = st.one_of(st.none(), SYMBOLS)
HEADERS = st.builds(Header, st.booleans(), st.integers(0, 255), UINTS, st.booleans(), st.integers(0, 2**32 - 1))
PROPERTIES = st.builds(
    Properties,
    MESSAGE_IDS,
    st.one_of(st.none(), st.binary(max_size=20)),
    STRINGS,
    STRINGS,
    STRINGS,
    MESSAGE_IDS,
    CONTENT_TYPES,
    CONTENT_TYPES,
    TIMES,
    TIMES,
    STRINGS,
    UINTS,
    STRINGS,
)
BODIES = st.one_of(
    st.tuples(st.just(BodyKind.DATA), st.binary(max_size=400)),
    st.tuples(st.just(BodyKind.SEQUENCE), st.lists(VALUES, max_size=5)),
    st.tuples(st.just(BodyKind.VALUE), st.one_of(VALUES, st.dictionaries(TEXT, VALUES, max_size=3))),
)


@settings(deadline=None)
@given(
    BODIES,
    st.one_of(st.none(), HEADERS),
    st.one_of(st.none(), PROPERTIES),
    st.dictionaries(TEXT, VALUES, max_size=4),
    ANNOTATIONS,
    ANNOTATIONS,
    ANNOTATIONS,
)
def test_every_message_survives_encoding_and_decoding(
    body: tuple[BodyKind, object],
    header: Header | None,
    properties: Properties | None,
    application_properties: dict[str, object],
    annotations: dict[Symbol, object],
    delivery_annotations: dict[Symbol, object],
    footer: dict[Symbol, object],
) -> None:
    message = Message(
        body[1], body[0], header, properties, application_properties, annotations, delivery_annotations, footer
    )
    assert decode_message(encode_message(message)) == message


def test_several_data_sections_are_joined() -> None:
    sections = b"\x00\x53\x75\xa0\x02ab" + b"\x00\x53\x75\xa0\x01c"
    assert decode_message(sections) == Message(b"abc")


def test_several_sequence_sections_are_joined() -> None:
    sections = b"\x00\x53\x76" + encode([1, 2]) + b"\x00\x53\x76" + encode([3])
    assert decode_message(sections) == Message([1, 2, 3], BodyKind.SEQUENCE)


def test_reserved_annotation_keys_are_left_out() -> None:
    section = b"\x00\x53\x72" + encode({ULong(1): "reserved", Symbol("k"): "v"})
    assert decode_message(section + encode_data_message(b"")).annotations == {"k": "v"}


@pytest.mark.parametrize("form", ["53 75", "80 00 00 00 00 00 00 00 75", "a3 10 " + b"amqp:data:binary".hex()])
def test_sections_are_known_by_every_form_of_their_descriptor(form: str) -> None:
    assert decode_message(b"\x00" + bytes.fromhex(form) + b"\xa0\x01x") == Message(b"x")


DATA = encode_data_message(b"x")
HEADER = b"\x00\x53\x70\x45"
IDENTIFIED = b"\x00\x53\x73" + encode(["m"])
FOOTER = b"\x00\x53\x78\xc1\x01\x00"
UNUSUAL = {
    "properties only": (IDENTIFIED, Message(None, BodyKind.VALUE, properties=Properties("m"))),
    "footer only": (FOOTER, Message(None, BodyKind.VALUE)),
    "application properties only": (
        b"\x00\x53\x74" + encode({"a": 1}),
        Message(None, BodyKind.VALUE, application_properties={"a": 1}),
    ),
    "properties behind the body": (DATA + IDENTIFIED, Message(b"x", properties=Properties("m"))),
    "data behind the footer": (DATA + FOOTER + DATA, Message(b"xx")),
}


@pytest.mark.parametrize(("data", "message"), UNUSUAL.values(), ids=UNUSUAL.keys())
def test_what_routers_accept_is_decoded_without_a_body_or_in_another_order(data: bytes, message: Message) -> None:
    pairs, count = topic_annotations("c/l", b"t", 1)
    decoded = decode_message(splice_annotations(HEADER + data, pairs, count))  # as a router sends it on
    assert decoded.annotations[Symbol("x-opt-topic-publisher")] == "c/l"
    assert decoded == replace(message, header=Header(), annotations=decoded.annotations)
    assert decode_message(data) == message


def test_a_header_alone_is_a_message() -> None:
    assert decode_message(HEADER) == Message(None, BodyKind.VALUE, header=Header())


MALFORMED = {
    "nothing": b"",
    "no section": b"hello",
    "zero byte": b"\x00",
    "header twice": HEADER + HEADER + DATA,
    "header behind the annotations": b"\x00\x53\x72\xc1\x01\x00" + HEADER + DATA,
    "header behind the body": DATA + HEADER,
    "annotations behind the body": DATA + b"\x00\x53\x72\xc1\x01\x00",
    "properties twice": IDENTIFIED + DATA + IDENTIFIED,
    "two values": b"\x00\x53\x77\x40" * 2,
    "value behind data": DATA + b"\x00\x53\x77\x40",
    "unknown section": b"\x00\x53\x79\x45" + DATA,
    "performative": b"\x00\x53\x14\x45",
    "unknown symbol": b"\x00\xa3\x03a:b\x45",
    "descriptor that is a string": b"\x00\xa1\x10amqp:data:binary\xa0\x00",
    "data that is a string": b"\x00\x53\x75\xa1\x01x",
    "sequence that is a map": b"\x00\x53\x76\xc1\x01\x00",
    "header that is a map": b"\x00\x53\x70\xc1\x01\x00" + DATA,
    "annotations that are a list": b"\x00\x53\x72\x45" + DATA,
    "annotation key that is a string": b"\x00\x53\x72" + encode({"k": 1}) + DATA,
    "property key that is a number": b"\x00\x53\x74" + encode({1: 1}) + DATA,
    "message id that is a float": b"\x00\x53\x73" + encode([1.5]) + DATA,
    "message id that is described": b"\x00\x53\x73" + encode([Described(ULong(1), "x")]) + DATA,
    "time that is a number": b"\x00\x53\x73" + encode([None] * 8 + [ULong(5)]) + DATA,
    "priority beyond a ubyte": b"\x00\x53\x70" + encode([True, UInt(256)]) + DATA,
    "body cut short": DATA[:-1],
    "bytes behind the body": DATA + b"\x00",
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_messages_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_message(data)


@pytest.mark.parametrize(
    "message",
    [
        Message("text"),
        Message(None),
        Message("text", BodyKind.SEQUENCE),
        Message({1, 2}, BodyKind.VALUE),
        Message(b"", header=Header(priority=256)),
        Message(b"", properties=Properties(message_id=-1)),
        Message(b"", properties=Properties(message_id=1.5)),  # type: ignore[arg-type]
        Message(b"", properties=Properties(creation_time="now")),  # type: ignore[arg-type]
        Message(b"", annotations={Symbol("\u00fc"): 1}),
        Message(b"", application_properties={"k": {1, 2}}),
    ],
    ids=repr,
)
def test_messages_that_cannot_be_encoded_are_local_errors(message: Message) -> None:
    with pytest.raises(LocalProtocolError):
        encode_message(message)


def test_mutated_messages_are_decoded_or_refused() -> None:
    rng = random.Random(11)
    sample = encode_message(FULL)
    refused = 0
    for _ in range(10_000):
        data = bytearray(sample)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            message = decode_message(bytes(data))
        except DecodeError:
            refused += 1
            continue
        decode_message(encode_message(message))
    assert 2_000 < refused < 10_000


@pytest.mark.parametrize("size", [0, 1, 255, 256, 70_000])
@pytest.mark.parametrize("front", [{}, {"annotations": {Symbol("x-a"): "b"}}, {"properties": Properties(subject="s")}])
def test_the_body_is_found_without_decoding_the_rest(size: int, front: dict[str, Any]) -> None:
    encoded = encode_message(
        Message(b"x" * size, header=Header(durable=True), application_properties={"k": 1}, **front)
    )
    assert data_body(encoded) == decode_message(encoded).body


OTHER_BODIES = {
    "a value": encode_message(Message("text", BodyKind.VALUE)),
    "a sequence": encode_message(Message([1], BodyKind.SEQUENCE)),
    "two data sections": encode_data_message(b"one") + encode_data_message(b"two"),
    "a footer": encode_message(Message(b"one", footer={Symbol("f"): 1})),
    "no body": encode_message(Message(b"", properties=Properties(subject="s")))[:-5],
    "sections out of order": b"\x00\x53\x72\xc1\x01\x00\x00\x53\x70\x45" + encode_data_message(b"one"),
    "nothing": b"",
}


@pytest.mark.parametrize("encoded", OTHER_BODIES.values(), ids=OTHER_BODIES)
def test_another_body_is_left_to_the_decoder(encoded: bytes) -> None:
    assert data_body(encoded) is None


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_body_that_is_cut_is_no_body(cut: int) -> None:
    encoded = encode_message(Message(b"12345", properties=Properties(subject="s")))[:-cut]
    try:
        found = data_body(encoded)
    except DecodeError:
        found = None
    assert found is None
