"""Frames between routers keep what they carry, split without decoding, and refuse what is not theirs."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delivery_records.channels import codec as channel_codec
from delivery_records.channels import frame_header
from delivery_records.channels.codec_error import ChannelCodecError
from delivery_records.channels.frame_header import Target
from delivery_records.model.assigned import Assigned
from delivery_records.model.messages import (
    Ack,
    Annotations,
    Applied,
    Barrier,
    Claim,
    Credit,
    Datagram,
    FormerAnnotations,
    Hello,
    Msg,
    MsgPart,
    Nack,
    Reason,
    Return,
    Room,
    RouterMessage,
    Settle,
    Sync,
)
from delivery_records.model.outcomes import DeliveryOutcome

U64 = st.integers(0, 2**64 - 1)
U32 = st.integers(0, 2**32 - 1)
TAGS = st.binary(max_size=32)
RUNS = st.lists(st.tuples(U64, U32), max_size=20).map(tuple)
ADDED = st.dictionaries(st.binary(max_size=20), st.binary(max_size=300), max_size=5)
EPOCHS = st.lists(U64, max_size=10).map(tuple)
TARGETS = st.lists(st.tuples(U64, U32, U64), min_size=1, max_size=12).map(tuple)

MSG_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "publisher_epoch": U64,
    "number": U64,
    "tag": TAGS,
    "message": st.binary(max_size=200),
    "to": st.none() | EPOCHS,
    "redelivered": st.booleans(),
    "settled": st.booleans(),
    "attempt": st.integers(0, 65535),
    "after": U64,
    "message_format": U32,
    "assigned": st.sampled_from(Assigned),
    "is_large": st.booleans(),
}
MSGS = st.builds(Msg, **MSG_FIELDS)


@st.composite
def parts(draw: st.DrawFn) -> MsgPart:
    head = draw(MSGS)
    head.message = b""
    data = draw(st.binary(max_size=100))
    offset = draw(st.integers(0, 2**40))
    return MsgPart(head, offset, offset + len(data) + draw(st.integers(0, 1000)), data)


@st.composite
def syncs(draw: st.DrawFn) -> Sync:
    pairs = draw(st.lists(st.tuples(U64, TAGS), max_size=30))
    return Sync(
        draw(U64),
        draw(EPOCHS),
        tuple(number for number, _ in pairs),
        tuple(tag for _, tag in pairs),
        draw(st.booleans()),
        draw(U32),
    )


MESSAGES = st.one_of(
    syncs(),
    MSGS,
    parts(),
    st.builds(Settle, U64, RUNS),
    st.builds(Reason, U64, U64, st.text(max_size=256), RUNS),
    st.builds(Ack, U64, U64, st.sampled_from(DeliveryOutcome), RUNS),
    st.builds(Nack, U64, U64, U64, st.booleans(), st.integers(0, 0xFFFF), st.none() | st.integers(0, 0xFFFFFFFE)),
    st.builds(Annotations, U64, U64, U64, ADDED),
    st.builds(FormerAnnotations, U64, U64, U64, ADDED),
    st.builds(Claim, U64, U64, U32, RUNS, U32),
    st.builds(Return, U64, U64, U64),
    st.builds(Room, U64, U64, U32),
    st.builds(Credit, U64),
)
DATAGRAMS = st.one_of(
    st.builds(Hello, U32, st.booleans(), U64, U64, U64), st.builds(Barrier, U64), st.builds(Applied, U64)
)


def fields(value: object) -> object:
    """The fields of a message, nested plain classes included, for comparison."""
    if isinstance(value, Msg):
        return {name: getattr(value, name) for name in MSG_FIELDS}
    if isinstance(value, MsgPart):
        return (fields(value.head), value.offset, value.total, value.data)
    return value


@given(U64, TARGETS, MESSAGES)
def test_every_message_comes_back_as_it_was_sent(
    origin: int, targets: tuple[Target, ...], message: RouterMessage
) -> None:
    frame = channel_codec.encode_frame(origin, targets, message)
    header = frame_header.read_header(frame)
    assert (header.origin, header.targets, header.hop_limit) == (origin, targets, frame_header.HOP_LIMIT)
    assert header.carries_body == isinstance(message, Msg | MsgPart)
    assert not header.is_datagram
    decoded = channel_codec.decode_message(frame, header)
    assert type(decoded) is type(message)
    assert fields(decoded) == fields(message)


@given(U64, U64, DATAGRAMS)
def test_every_datagram_comes_back_as_it_was_sent(origin: int, rid: int, message: Datagram) -> None:
    frame = channel_codec.encode_datagram(origin, rid, message)
    header = frame_header.read_header(frame)
    assert header.is_datagram
    assert header.targets == ((rid, 0, 0),)
    assert channel_codec.decode_datagram(frame, header) == message


@given(TARGETS, MESSAGES, st.dictionaries(U64, st.none() | st.integers(1, 3)))
def test_splitting_gives_each_target_to_its_next_hop_once_with_the_same_payload(
    targets: tuple[Target, ...], message: RouterMessage, hops: dict[int, int | None]
) -> None:
    def next_hop(rid: int) -> int | None:
        return hops.get(rid, rid % 4 or None)

    frame = channel_codec.encode_frame(7, targets, message)
    copies = frame_header.split(frame, frame_header.read_header(frame), next_hop)
    assert len({hop for hop, _ in copies}) == len(copies)
    reached: list[Target] = []
    for hop, copy in copies:
        header = frame_header.read_header(copy)
        assert all(next_hop(rid) == hop for rid, _, _ in header.targets)
        assert header.hop_limit == frame_header.HOP_LIMIT - 1
        assert fields(channel_codec.decode_message(copy, header)) == fields(message)
        reached += header.targets
    assert sorted(reached) == sorted(target for target in targets if next_hop(target[0]) is not None)


def test_a_frame_that_goes_in_circles_ends() -> None:
    frame = channel_codec.encode_frame(1, [(2, 1, 1)], Credit(5))
    hops = 0
    while copies := frame_header.split(frame, frame_header.read_header(frame), lambda rid: rid):
        ((_, frame),) = copies
        hops += 1
    assert hops == frame_header.HOP_LIMIT - 1


@given(st.binary(max_size=80))
def test_any_bytes_are_a_frame_or_a_typed_error(data: bytes) -> None:
    decode_anything(data)


@given(TARGETS, MESSAGES | DATAGRAMS, st.data())
def test_a_damaged_frame_is_a_frame_or_a_typed_error(
    targets: tuple[Target, ...], message: RouterMessage | Datagram, data: st.DataObject
) -> None:
    if isinstance(message, Hello | Barrier | Applied):
        frame = bytearray(channel_codec.encode_datagram(1, targets[0][0], message))
    else:
        frame = bytearray(channel_codec.encode_frame(1, targets, message))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(0, len(frame) - 1))] = data.draw(st.integers(0, 255))
    decode_anything(bytes(frame[: data.draw(st.integers(0, len(frame)))]))


def decode_anything(data: bytes) -> None:
    with contextlib.suppress(ChannelCodecError):
        header = frame_header.read_header(data)
        if header.is_datagram:
            channel_codec.decode_datagram(data, header)
        else:
            channel_codec.decode_message(data, header)


def test_another_protocol_version_is_refused_by_name() -> None:
    frame = bytearray(channel_codec.encode_frame(1, [(2, 1, 1)], Credit(5)))
    frame[0] = 9
    with pytest.raises(ChannelCodecError, match="version 9; this router speaks 1"):
        frame_header.read_header(bytes(frame))


def test_a_sync_that_claims_more_tags_than_it_has_bytes_is_refused_before_any_is_read() -> None:
    frame = bytearray(channel_codec.encode_frame(1, [(2, 1, 1)], Sync(1, (), (), ())))
    frame[-4:] = struct.pack(">I", 2**32 - 1)
    with pytest.raises(ChannelCodecError, match="claims"):
        channel_codec.decode_message(bytes(frame), frame_header.read_header(bytes(frame)))


def test_a_sequenced_frame_is_not_read_as_a_datagram_nor_the_other_way_round() -> None:
    frame = channel_codec.encode_frame(1, [(2, 1, 1)], Credit(5))
    with pytest.raises(ChannelCodecError, match="not a datagram"):
        channel_codec.decode_datagram(frame, frame_header.read_header(frame))
    datagram = channel_codec.encode_datagram(1, 2, Barrier(5))
    with pytest.raises(ChannelCodecError, match="not a sequenced frame"):
        channel_codec.decode_message(datagram, frame_header.read_header(datagram))


def test_trailing_bytes_are_refused() -> None:
    frame = channel_codec.encode_frame(1, [(2, 1, 1)], Credit(5)) + b"x"
    with pytest.raises(ChannelCodecError, match="too many"):
        channel_codec.decode_message(frame, frame_header.read_header(frame))
