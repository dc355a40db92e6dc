"""What a client's WebSocket frames become on their way to a library that would keep them: pieces, each a message."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncewire.transport.websocket_frames_core import (
    FRAMES_IN_A_TURN,
    PIECE_BYTES,
    PROTOCOL_ERROR,
    TEXT,
    FramesAsTheyCome,
)
from tests.support.effort import rounds

BINARY, PING = 0x82, 0x89
HEADER_BYTES = 8


def frame(first: int, payload: bytes, key: bytes) -> bytes:
    length = len(payload)
    size = bytes((0x80 | length,)) if length < 126 else b"\xfe" + length.to_bytes(2)
    if length >= 1 << 16:
        size = b"\xff" + length.to_bytes(8)
    return bytes((first,)) + size + key + bytes(each ^ key[at % 4] for at, each in enumerate(payload))


def read(data: bytes) -> list[tuple[int, bytes]]:
    """Whole frames with masks: first byte and payload."""
    found, at = [], 0
    while at < len(data):
        first, length = data[at], data[at + 1] & 0x7F
        assert data[at + 1] & 0x80
        at += 2
        if length == 126:
            length, at = int.from_bytes(data[at : at + 2]), at + 2
        key, payload = data[at : at + 4], data[at + 4 : at + 4 + length]
        assert len(payload) == length
        at += 4 + length
        found.append((first, bytes(each ^ key[place % 4] for place, each in enumerate(payload))))
    return found


FRAGMENT = st.tuples(st.binary(max_size=300), st.binary(min_size=4, max_size=4), st.booleans())
MESSAGES = st.lists(st.lists(FRAGMENT, min_size=1, max_size=4), max_size=5)
"""Messages of some fragments, each with its key, and whether a ping comes before it."""


@given(messages=MESSAGES, cuts=st.lists(st.integers(1, 40)))
@settings(max_examples=rounds(200), deadline=None)
def test_pieces_are_the_same_stream_however_it_is_cut(
    messages: list[list[tuple[bytes, bytes, bool]]], cuts: list[int]
) -> None:
    sent, stream, pings = bytearray(), b"", 0
    for fragments in messages:
        for number, (payload, key, has_ping) in enumerate(fragments):
            if has_ping:
                sent += frame(PING, b"here?", key)
                pings += 1
            opcode = 0 if number else 2
            sent += frame(opcode | 0x80 * (number == len(fragments) - 1), payload, key)
            stream += payload
    frames, out = FramesAsTheyCome(), b""
    for cut in [*cuts, len(sent) + 1]:
        out += frames.take(bytes(sent[:cut]))
        del sent[:cut]
    found = read(out)
    assert b"".join(payload for first, payload in found if first == BINARY) == stream
    assert [payload for first, payload in found if first == PING] == [b"here?"] * pings
    assert len(found) == sum(first in (BINARY, PING) for first, _ in found)
    assert frames.passed_on == len(stream)


def test_nothing_of_a_message_is_kept_and_no_piece_is_long() -> None:
    """Every byte goes on in the same call, of a message that never ends, too."""
    frames, key = FramesAsTheyCome(), b"\x01\x02\x03\x04"
    out = frames.take(bytes((0x02, 0xFF)) + (1 << 62).to_bytes(8) + key)
    assert out == b""
    for size in (1, 2, 3, PIECE_BYTES - 1, 5 * PIECE_BYTES + 7):
        before = frames.passed_on
        found = read(frames.take(bytes(size)))
        assert sum(len(payload) for _, payload in found) == size == frames.passed_on - before
        assert max(len(payload) for _, payload in found) <= PIECE_BYTES
        assert len(found) == -(-size // PIECE_BYTES)


@pytest.mark.parametrize(
    ("sent", "last"),
    [
        (b"\x82\x01a", PROTOCOL_ERROR),
        (b"\x89\x00", PROTOCOL_ERROR),
        (b"\xc2\x80\0\0\0\0", PROTOCOL_ERROR),
        (b"\x80\x80\0\0\0\0", PROTOCOL_ERROR),
        (b"\x02\x80\0\0\0\0\x82\x80\0\0\0\0", PROTOCOL_ERROR),
        (b"\x83\x80\0\0\0\0", PROTOCOL_ERROR),
        (b"\x09\x80\0\0\0\0", PROTOCOL_ERROR),
        (b"\x89\xfe\0\x7e\0\0\0\0", PROTOCOL_ERROR),
        (b"\x82\xff" + b"\xff" * 8 + bytes(4), PROTOCOL_ERROR),
        (b"\x81\x84\0\0\0\0AMQP", TEXT),
    ],
)
def test_what_is_not_allowed_is_the_end_whatever_follows(sent: bytes, last: bytes) -> None:
    for cut in range(len(sent)):
        frames = FramesAsTheyCome()
        out = frames.take(sent[:cut]) + frames.take(sent[cut:])
        assert out.endswith(last)
        assert frames.take(frame(BINARY, b"more", bytes(4))) == b""


def test_of_many_short_frames_so_many_are_taken_in_a_turn_and_none_is_lost() -> None:
    frames, count = FramesAsTheyCome(), 10 * FRAMES_IN_A_TURN
    sent = bytes(number % 251 for number in range(count))
    data = b"".join(frame(0 if at else BINARY & 0x7F, sent[at : at + 1], b"key!") for at in range(count))
    payloads, turns = b"", 0
    while data or frames.has_more:
        taken = read(frames.take(data))
        data, turns = b"", turns + 1
        assert len(taken) <= FRAMES_IN_A_TURN
        payloads += b"".join(payload for _, payload in taken)
    assert payloads == sent
    assert turns >= 10
    assert frames.passed_on == count


def test_what_is_left_waits_before_what_comes_next() -> None:
    frames = FramesAsTheyCome()
    taken = frames.take(frame(BINARY, b"a", b"key!") * (FRAMES_IN_A_TURN + 1))
    waits = frames.has_more
    taken += frames.take(frame(BINARY, b"b", b"key!"))
    assert (waits, frames.has_more) == (True, False)
    assert b"".join(payload for _, payload in read(taken)) == b"a" * (FRAMES_IN_A_TURN + 1) + b"b"


def test_nothing_is_left_behind_what_ends_the_connection() -> None:
    frames = FramesAsTheyCome()
    taken = frames.take(frame(0x70 | BINARY, b"", b"key!") + frame(BINARY, b"a", b"key!") * 2 * FRAMES_IN_A_TURN)
    assert taken == PROTOCOL_ERROR
    assert not frames.has_more
