"""Protocol headers and frames come out of the byte stream however it is cut, and malformed ones at once as errors."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncewire.wire.errors import FRAMING_ERROR, LocalProtocolError, RemoteProtocolError
from oncewire.wire.frames import (
    AMQP_FRAME,
    AMQP_HEADER,
    HEARTBEAT_FRAME,
    SASL_FRAME,
    SASL_HEADER,
    FrameParser,
    encode_frame,
)


def _drain(parser: FrameParser) -> list[tuple[int, int, bytes]]:
    frames = []
    while (frame := parser.next_frame()) is not None:
        channel, frame_type, buf, start, end = frame
        frames.append((channel, frame_type, buf[start:end]))
    return frames


def _parse(data: bytes, max_frame_size: int = 1 << 20) -> list[tuple[int, int, bytes]]:
    parser = FrameParser(max_frame_size)
    parser.feed(data)
    return _drain(parser)


def test_a_frame_is_written_as_the_specification_says() -> None:
    assert encode_frame(0x0102, b"per", b"load").hex(" ") == "00 00 00 0f 02 00 01 02 70 65 72 6c 6f 61 64"
    assert encode_frame(0, b"x", frame_type=SASL_FRAME).hex(" ") == "00 00 00 09 02 01 00 00 78"
    assert HEARTBEAT_FRAME.hex(" ") == "00 00 00 08 02 00 00 00"
    assert encode_frame(1, b"a", memoryview(b"bcd")[1:]) == encode_frame(1, b"acd")


def test_headers_are_those_of_the_specification() -> None:
    assert b"AMQP" + bytes((0, 1, 0, 0)) == AMQP_HEADER
    assert b"AMQP" + bytes((3, 1, 0, 0)) == SASL_HEADER


@pytest.mark.parametrize("channel", [-1, 65536])
def test_a_channel_that_does_not_fit_is_a_local_error(channel: int) -> None:
    with pytest.raises(LocalProtocolError):
        encode_frame(channel, b"")


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 65535), st.sampled_from([AMQP_FRAME, SASL_FRAME]), st.binary(max_size=600))),
    st.randoms(use_true_random=False),
)
def test_frames_come_out_however_the_stream_is_cut(frames: list[tuple[int, int, bytes]], rng: random.Random) -> None:
    stream = b"".join(encode_frame(channel, body, frame_type=kind) for channel, kind, body in frames)
    parser = FrameParser(1024)
    seen = []
    pos = 0
    while pos < len(stream):
        step = rng.choice((1, 3, 7, 8, 9, 100, 2000))
        parser.feed(stream[pos : pos + step])
        seen += _drain(parser)
        pos += step
    assert seen == frames
    assert parser.buffered == 0


def test_an_empty_frame_is_handed_out_as_a_sign_of_life() -> None:
    assert _parse(HEARTBEAT_FRAME * 2) == [(0, AMQP_FRAME, b"")] * 2


def test_an_extended_frame_header_is_passed_over() -> None:
    # 2.3.1: DOFF 4 = 8 bytes of extended header
    assert _parse(bytes.fromhex("00 00 00 12 04 00 00 05") + b"extended" + b"ab") == [(5, AMQP_FRAME, b"ab")]
    assert _parse(bytes.fromhex("00 00 00 10 04 00 00 05") + b"extended") == [(5, AMQP_FRAME, b"")]


MALFORMED = {
    "size 0": "00 00 00 00 02 00 00 00",
    "size 7": "00 00 00 07 02 00 00 00",
    "data offset 0": "00 00 00 08 00 00 00 00",
    "data offset 1": "00 00 00 08 01 00 00 00",
    "data offset behind the frame": "00 00 00 0b 03 00 00 00 00 00 00",
    "type 2": "00 00 00 08 02 02 00 00",
    "larger than allowed": "00 00 02 01 02 00 00 00",
    "2**32 - 1 bytes": "ff ff ff ff 02 00 00 00",
}


@pytest.mark.parametrize("octets", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_frame_is_refused_as_soon_as_its_header_is_there(octets: str) -> None:
    good = encode_frame(3, b"good")
    parser = FrameParser(512)
    parser.feed(good + bytes.fromhex(octets))
    assert parser.next_frame() is not None
    for _ in range(3):  # and it never gets past it
        with pytest.raises(RemoteProtocolError) as caught:
            parser.next_frame()
        assert caught.value.condition == FRAMING_ERROR


def test_a_frame_of_exactly_the_maximal_size_is_accepted() -> None:
    frame = encode_frame(0, b"x" * 504)
    assert len(frame) == 512
    assert _parse(frame, 512) == [(0, AMQP_FRAME, b"x" * 504)]
    with pytest.raises(RemoteProtocolError):
        _parse(frame, 511)


def test_a_large_frame_in_many_pieces_is_put_together_once() -> None:
    body = random.Random(1).randbytes(1_000_000)
    stream = encode_frame(0, body)
    parser = FrameParser(1 << 20)
    for pos in range(0, len(stream) - 1, 1460):
        parser.feed(stream[pos : min(pos + 1460, len(stream) - 1)])
        assert parser.next_frame() is None
        assert parser.buffered == min(pos + 1460, len(stream) - 1)
    parser.feed(stream[-1:] + HEARTBEAT_FRAME)
    assert _drain(parser) == [(0, AMQP_FRAME, body), (0, AMQP_FRAME, b"")]


def test_frames_that_were_not_taken_out_are_kept_when_more_is_fed() -> None:
    parser = FrameParser(512)
    parser.feed(encode_frame(1, b"a") + encode_frame(2, b"b"))
    assert parser.next_frame() is not None
    parser.feed(encode_frame(3, b"c")[:5])
    parser.feed(encode_frame(3, b"c")[5:])
    assert [channel for channel, _, _ in _drain(parser)] == [2, 3]


@pytest.mark.parametrize("step", [1, 3, 8, 100])
def test_a_header_is_followed_by_frames(step: int) -> None:
    stream = SASL_HEADER + encode_frame(0, b"sasl", frame_type=SASL_FRAME) + AMQP_HEADER + encode_frame(4, b"open")
    parser = FrameParser(512)
    seen: list[object] = []
    for pos in range(0, len(stream), step):
        parser.feed(stream[pos : pos + step])
        while True:
            item = parser.next_header() if len(seen) in {0, 2} else parser.next_frame()
            if item is None:
                break
            seen.append(item if isinstance(item, bytes) else item[2][item[3] : item[4]])
    assert seen == [SASL_HEADER, b"sasl", AMQP_HEADER, b"open"]


@pytest.mark.parametrize("data", [b"G", b"GET / HT", b"AMQQ", b"\x16", b"AMPQ\x00\x01\x00\x00"])
def test_a_peer_that_does_not_speak_amqp_is_refused_at_its_first_wrong_byte(data: bytes) -> None:
    parser = FrameParser()
    parser.feed(data)
    with pytest.raises(RemoteProtocolError, match="does not speak AMQP"):
        parser.next_header()


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\x00\x01\x00\x01", b"\x15\x03\x03\x00\x02\x02\x46"])
def test_a_peer_that_speaks_tls_is_named_as_such(data: bytes) -> None:
    parser = FrameParser()
    parser.feed(data)
    with pytest.raises(RemoteProtocolError, match="the peer speaks TLS"):
        parser.next_header()


def test_other_protocol_ids_and_versions_are_handed_to_the_caller() -> None:
    for header in (b"AMQP\x02\x01\x00\x00", b"AMQP\x00\x00\x09\x01"):
        parser = FrameParser()
        parser.feed(header)
        assert parser.next_header() == header


def test_random_bytes_never_loop_and_never_hold_more_than_one_frame() -> None:
    rng = random.Random(5)
    for _ in range(3_000):
        parser = FrameParser(64)
        for _ in range(20):
            chunk = bytearray(encode_frame(rng.randrange(3), rng.randbytes(rng.randrange(50))))
            if rng.random() < 0.3:
                chunk[rng.randrange(8)] = rng.randrange(256)
            parser.feed(bytes(chunk[: rng.randrange(1, len(chunk) + 1)]))
            try:
                taken = _drain(parser)
            except RemoteProtocolError:
                break
            assert len(taken) <= 9
            assert parser.buffered < 64
