"""The short ways for transfer, disposition and flow say exactly what the generic tables say."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncewire.wire import performatives as p
from oncewire.wire.errors import DecodeError
from oncewire.wire.frames import FRAME_HEADER_SIZE, FrameParser, encode_frame
from oncewire.wire.hot_codec import decode_disposition, decode_flow, decode_transfer
from oncewire.wire.performative_codec import decode_performative, encode_performative
from oncewire.wire.whole_delivery import WholeDeliveries, WholeDeliveryWriter
from tests.support.effort import rounds

TRANSFER, DISPOSITION, FLOW = 0x14, 0x15, 0x13

UINT_FORMS = [b"\x43", b"\x52\x00", b"\x52\x07", b"\x70\x00\x00\x00\x07", b"\x70\xff\xff\xff\xff", b"\x40"]
BOOLEAN_FORMS = [b"\x40", b"\x41", b"\x42", b"\x56\x00", b"\x56\x01"]
TAG_FORMS = [b"\xa0\x00", b"\xa0\x03tag", b"\xb0\x00\x00\x00\x03tag", b"\xa0\x20" + b"t" * 32, b"\x40"]
MODE_FORMS = [b"\x40", b"\x50\x00", b"\x50\x01", b"\x50\x07"]
STATE_FORMS = [
    b"\x40",
    b"\x00\x53\x24\x45",
    b"\x00\x53\x24\xc0\x01\x00",
    b"\x00\xa3\x12amqp:accepted:list\x45",
    b"\x00\x53\x26\x45",
    b"\x00\x53\x25\x45",
    b"\x00\x53\x27\xc0\x02\x01\x41",
    b"\x00\x53\x23\xc0\x03\x02\x43\x44",
    b"\x00\x53\x34\xc0\x03\x01\xa0\x00",
]
UNUSUAL = [b"\x45", b"\xa1\x01x", b"\x60\x00\x01", b"\x53\x01"]

SHAPES: dict[int, list[list[bytes]]] = {
    TRANSFER: [UINT_FORMS, UINT_FORMS, TAG_FORMS, UINT_FORMS, BOOLEAN_FORMS, BOOLEAN_FORMS, MODE_FORMS, STATE_FORMS]
    + [BOOLEAN_FORMS] * 3,
    DISPOSITION: [BOOLEAN_FORMS, UINT_FORMS, UINT_FORMS, BOOLEAN_FORMS, STATE_FORMS, BOOLEAN_FORMS],
    FLOW: [UINT_FORMS] * 8 + [BOOLEAN_FORMS] * 2 + [[b"\x40", b"\xc1\x01\x00", b"\xc1\x05\x02\xa3\x01k\x41"]],
}


def _generic_descriptor(code: int) -> bytes:
    return b"\x00\x80" + code.to_bytes(8, "big")  # the hot path knows only the short form


def _read(data: bytes) -> tuple[object, int] | str:
    try:
        return decode_performative(data)
    except DecodeError:
        return "refused"


# (channel, handle, delivery-id, tag, settled, message-format, payload)
Taken = tuple[int, int, int, bytes, bool, int, bytes]


def _taken(whole: WholeDeliveries) -> Taken:
    settled, message_format = whole.settled, whole.message_format
    return whole.channel, whole.handle, whole.delivery_id, whole.tag, settled, message_format, whole.payload


def _take(frame: bytes, max_frame_size: int = 512, whole: WholeDeliveries | None = None) -> Taken | None:
    parser = FrameParser(max_frame_size)
    parser.feed(frame)
    whole = WholeDeliveries() if whole is None else whole
    return _taken(whole) if whole.take(parser) else None


def encode_whole_delivery(
    channel: int, handle: int, delivery_id: int, tag: bytes, settled: bool, payload_size: int
) -> bytes:
    """A frame up to its payload."""
    out: list[bytes] = []
    WholeDeliveryWriter(channel).write(out, handle, delivery_id, tag, settled, bytes(payload_size))
    return b"".join(out[:-1])


def _assert_both_ways_agree(code: int, fields: bytes) -> None:
    hot, generic = b"\x00\x53" + bytes((code,)) + fields, _generic_descriptor(code) + fields
    left, right = _read(hot), _read(generic)
    if isinstance(left, tuple) and isinstance(right, tuple):
        assert left[0] == right[0]
        assert left[1] - 3 == right[1] - 10
    else:
        assert left == right
    whole = _take(encode_frame(9, hot))
    if whole is not None:
        assert isinstance(left, tuple)
        channel, handle, delivery_id, tag, settled, message_format, payload = whole
        transfer = left[0]
        assert isinstance(transfer, p.Transfer)
        expected = p.Transfer(handle, delivery_id, tag, message_format, settled)
        transfer.message_format = transfer.message_format or 0
        transfer.settled = transfer.settled is True
        assert (channel, transfer, hot[left[1] :]) == (9, expected, payload)


@settings(deadline=None, max_examples=rounds(1_000))
@given(st.data())
def test_hot_and_generic_decoders_agree_on_every_mix_of_encoding_forms(data: st.DataObject) -> None:
    code = data.draw(st.sampled_from([TRANSFER, DISPOSITION, FLOW]))
    shape = SHAPES[code]
    count = data.draw(st.integers(0, len(shape) + 1))
    parts = [data.draw(st.sampled_from(forms + UNUSUAL[: data.draw(st.integers(0, 1)) * 4])) for forms in shape[:count]]
    parts += [b"\xa1\x01x"] * (count - len(parts))  # a field of a later version
    content = b"".join(parts)
    claimed = count + data.draw(st.sampled_from([0, 0, 0, 0, 1, -1]))
    fields = b"\xc0" + bytes((len(content) + 1, max(0, claimed))) + content
    _assert_both_ways_agree(code, fields + b"payload")


def test_hot_and_generic_decoders_agree_on_mutated_bytes() -> None:
    rng = random.Random(99)
    samples = [
        encode_performative(performative)
        for performative in (
            p.Transfer(0, 1, b"12345678", 0, False),
            p.Transfer(300, 70_000, b"x" * 32, 0, True, True),
            p.Transfer(1, 2, b"t", 0, False, False, 1, p.ACCEPTED, True),
            p.Disposition(True, 1, 100_000, False, p.ACCEPTED),
            p.Disposition(False, 300, None, True),
            p.Disposition(True, 300, 301, True, p.RELEASED),
            p.Flow(1, 2048, 300, 2048, 0, 70_000, 500),
            p.Flow(0, 1, 2, 3, 4, 5, 6, 7, True, True),
        )
    ]
    for _ in range(rounds(30_000)):
        sample = rng.choice(samples)
        fields = bytearray(sample[3:])
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(fields))
            if rng.random() < 0.8:
                fields[at] = rng.choice((rng.randrange(256), 0x40, 0x41, 0x42, 0x43, 0x45, 0x52, 0x70, 0xA0, 0xFF))
            else:
                del fields[at:]
                fields += b"\x40"
        _assert_both_ways_agree(sample[2], bytes(fields))


@pytest.mark.parametrize(
    "performative",
    [
        p.Transfer(0, 0, b"", 0, False),
        p.Transfer(255, 70_000, b"x" * 32, 0, False, True),
        p.Disposition(True, 0, None, False, p.ACCEPTED),
        p.Disposition(True, 70_000, 70_010, True, p.RELEASED),
        p.Disposition(False, 70_000, 70_010, True),
        p.Flow(0, 2048, 0, 2048, 0, 0, 500),
        p.Flow(70_000, 2048, 70_000, 2048, 300, 70_000, 0, 5, True, True),
    ],
    ids=repr,
)
def test_what_the_engine_itself_sends_takes_the_short_way(performative: p.Performative) -> None:
    data = encode_performative(performative)
    read = {0x14: decode_transfer, 0x15: decode_disposition, 0x13: decode_flow}[data[2]]
    assert read(data, 3, len(data)) == (performative, len(data))


@pytest.mark.parametrize("handle", [0, 1, 255])
@pytest.mark.parametrize("tag", [b"", b"t", b"12345678", b"x" * 32])
@pytest.mark.parametrize("settled", [False, True])
@pytest.mark.parametrize("delivery_id", [0, 70_000, 0xFFFFFFFF])
def test_a_delivery_in_one_frame_is_written_as_the_generic_decoder_reads_it(
    handle: int, tag: bytes, settled: bool, delivery_id: int
) -> None:
    head = encode_whole_delivery(9, handle, delivery_id, tag, settled, 7)
    parser = FrameParser()
    parser.feed(head + b"payload")
    frame = parser.next_frame()
    assert frame is not None
    channel, _, buf, start, end = frame
    assert (channel, start, end) == (9, FRAME_HEADER_SIZE, len(head) + 7)
    read = decode_performative(buf, start, end)
    assert read == (p.Transfer(handle, delivery_id, tag, 0, settled), len(head))
    assert _take(head + b"payload") == (9, handle, delivery_id, tag, settled, 0, b"payload")
    assert head[FRAME_HEADER_SIZE:] == encode_performative(p.Transfer(handle, delivery_id, tag, 0, settled)) or (
        delivery_id < 256  # the generic encoder has a shorter form for these
    )


@pytest.mark.parametrize("tag", [b"", b"t"])
@pytest.mark.parametrize("handle", [0, 9])
def test_a_delivery_is_taken_only_when_all_of_its_frame_is_there(handle: int, tag: bytes) -> None:
    frame = encode_whole_delivery(0, handle, 70_000, tag, False, 1) + b"p"
    assert _take(frame) is not None
    for end in range(len(frame)):
        assert _take(frame[:end]) is None
    parser = FrameParser()
    parser.feed(frame + frame[:-1])
    whole = WholeDeliveries()
    assert whole.take(parser)
    assert not whole.take(parser)
    assert parser.next_frame() is None
    parser.feed(frame[-1:])
    assert whole.take(parser)


def test_a_delivery_over_the_maximum_frame_size_is_not_taken() -> None:
    frame = encode_whole_delivery(0, 0, 70_000, b"t", False, 1000) + bytes(1000)
    assert _take(frame, len(frame)) is not None
    assert _take(frame, len(frame) - 1) is None


@pytest.mark.parametrize(("at", "octet"), [(4, 3), (5, 1), (8, 1), (9, 0x80), (10, 0x15), (11, 0xD0)], ids=str)
def test_another_kind_of_frame_is_not_taken_for_a_delivery(at: int, octet: int) -> None:
    frame = bytearray(encode_whole_delivery(0, 0, 70_000, b"t", False, 1) + b"p")
    frame[at] = octet
    assert _take(bytes(frame)) is None


@pytest.mark.parametrize("code", [TRANSFER, DISPOSITION, FLOW])
def test_short_ways_never_read_past_their_end(code: int) -> None:
    read = {TRANSFER: decode_transfer, DISPOSITION: decode_disposition, FLOW: decode_flow}[code]
    samples: dict[int, p.Performative] = {
        TRANSFER: p.Transfer(9, 70_000, b"12345678", 0, False),
        DISPOSITION: p.Disposition(True, 70_000, 70_001, False, p.ACCEPTED),
        FLOW: p.Flow(70_000, 70_000, 70_000, 70_000, 70_000, 70_000, 70_000),
    }
    data = encode_performative(samples[code])
    for end in range(3, len(data)):
        assert read(data, 3, end) is None
        assert read(data[:end], 3, end) is None


@st.composite
def _deliveries(draw: st.DrawFn) -> list[bytes]:
    """Frames of deliveries as peers send them one after the other, some of them of another form."""
    frames = []
    delivery_id = draw(st.sampled_from([0, 250, 0xFFFE, 0xFFFFFFFA]))
    for _ in range(draw(st.integers(1, 12))):
        handle = draw(st.sampled_from([0, 0, 0, 3]))
        tag = draw(st.sampled_from([b"12345678", b"12345679", b"t", b""]))
        payload = b"p" * draw(st.sampled_from([0, 5, 5, 5, 300]))
        settled, more = draw(st.sampled_from([(False, False)] * 6 + [(True, False), (False, True), (None, False)]))
        message_format = draw(st.sampled_from([0] * 6 + [1, None]))
        transfer = p.Transfer(handle, delivery_id, tag, message_format, settled, more)
        channel = draw(st.sampled_from([0, 0, 0, 1]))
        frames.append(encode_frame(channel, encode_performative(transfer), payload))
        delivery_id = (delivery_id + draw(st.sampled_from([1, 1, 1, 1, 300]))) & 0xFFFFFFFF
    return frames


@settings(max_examples=rounds(300), deadline=None)
@given(_deliveries(), st.integers(0, 40), st.integers(0, 255), st.integers(0, 400))
def test_a_delivery_is_taken_the_same_way_whatever_came_before_it(
    frames: list[bytes], at: int, octet: int, cut: int
) -> None:
    last = bytearray(frames[-1])
    if at < len(last):
        last[at] = octet  # whatever is wrong or different with it
    stream = [*frames, bytes(last), bytes(last[:cut])]
    remembering = WholeDeliveries()
    for frame in stream:
        assert _take(frame, 512, remembering) == _take(frame)


def test_frames_of_one_session_are_written_as_if_each_were_the_first() -> None:
    rng = random.Random(3)
    writer, out, expected = WholeDeliveryWriter(9), list[bytes](), b""
    for number in range(500):
        delivery_id = (0xFFFFFF00 + number * rng.choice([1, 1, 70])) & 0xFFFFFFFF
        handle, tag = rng.choice([0, 0, 0, 1, 255]), rng.choice([b"12345678", b"12345679", b"", b"x" * 32])
        payload = bytes(rng.choice([5, 5, 5, 6]))
        settled = rng.random() < 0.3
        writer.write(out, handle, delivery_id, tag, settled, payload)
        expected += encode_whole_delivery(9, handle, delivery_id, tag, settled, len(payload)) + payload
    assert b"".join(out) == expected
