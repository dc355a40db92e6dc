"""An attach with a large unsettled map is decoded in pieces, and is the same attach."""

from __future__ import annotations

import pytest

from oncewire.wire import (
    ACCEPTED,
    RELEASED,
    Attach,
    Begin,
    Connection,
    ConnectionLost,
    DecodeError,
    LinkAttached,
    Modified,
    Open,
    Rejected,
    Role,
    Source,
    Symbol,
    Target,
    encode_performative,
)
from oncewire.wire.decoding import MAX_FRAME_VALUES
from oncewire.wire.frames import AMQP_HEADER, encode_frame
from oncewire.wire.large_attach import ENTRIES_PER_UNIT, LARGE_FRAME, begin
from oncewire.wire.performative_codec import decode_performative
from oncewire.wire.performatives import UnsettledMap

STATES = (None, ACCEPTED, RELEASED, Rejected(), Modified(True, False, {Symbol("x-n"): 1}))
MANY = 20_000


def attach_of(unsettled: UnsettledMap) -> Attach:
    attach = Attach("link", 0, True)
    attach.source, attach.target = Source(address="topic"), Target(address="me")
    attach.unsettled = unsettled
    attach.properties = {Symbol("x-behind"): "the map"}
    return attach


def tags(count: int) -> list[bytes]:
    return [b"%016d" % number for number in range(count)]


def decoded(body: bytes, units: int) -> Attach:
    attach = begin(body, 0, len(body))
    assert attach is not None
    while not attach.is_done:
        attach.decode(units)
    return attach.finish()


@pytest.mark.parametrize("units", [1, 3, 64, 1 << 30])
def test_in_pieces_of_any_size_it_is_what_it_is_in_one(units: int) -> None:
    unsettled: UnsettledMap = {tag: STATES[number % len(STATES)] for number, tag in enumerate(tags(1000))}
    body = encode_performative(attach_of(unsettled))
    assert decoded(body, units) == decode_performative(body)[0]


@pytest.mark.parametrize("descriptor", [b"\x80\0\0\0\0\0\0\0\x12", b"\xa3\x10amqp:attach:list"])
def test_descriptors_of_all_forms_are_known(descriptor: bytes) -> None:
    body = encode_performative(attach_of(dict.fromkeys(tags(1000))))
    assert decoded(b"\0" + descriptor + body[3:], 64) == decode_performative(body)[0]


def test_what_is_small_has_no_map_or_is_no_attach_is_decoded_as_ever() -> None:
    small = encode_performative(attach_of(dict.fromkeys(tags(10))))
    assert begin(small, 0, len(small)) is None
    large = attach_of({})
    large.unsettled = None
    large.properties = {Symbol("x-text"): "x" * LARGE_FRAME}
    for other in (large, Open("x" * LARGE_FRAME)):
        body = encode_performative(other)
        assert begin(body, 0, len(body)) is None


def _map_body(entries: bytes, count: int) -> bytes:
    """An attach whose map has these bytes."""
    body = encode_performative(attach_of(dict.fromkeys(tags(1))))
    entry = b"\xa0\x10" + tags(1)[0] + b"\x40"
    small = b"\xc1" + bytes((len(entry) + 1, 2)) + entry
    assert small in body
    size = len(entries) + 4
    fields = body[body.index(b"\xa1\x04link") :].replace(
        small, b"\xd1" + size.to_bytes(4, "big") + count.to_bytes(4, "big") + entries
    )
    return body[:3] + b"\xd0" + (len(fields) + 4).to_bytes(4, "big") + b"\0\0\0" + _field_count(body) + fields


def _field_count(body: bytes) -> bytes:
    return body[5:6] if body[3] == 0xC0 else body[11:12]


FILLING = b"".join(b"\xa0\x10" + tag + b"\x40" for tag in tags(1000))


@pytest.mark.parametrize(
    ("entries", "count"),
    [
        (FILLING + FILLING[:19], 2002),  # the same tag twice
        (FILLING + b"\xa0\x01a", 2002),  # a tag without a state
        (FILLING + b"\xa0\xffa\x40", 2002),  # longer than the map
        (FILLING + b"\xa1\x01a\x40", 2002),  # no binary
        (FILLING + b"\xa0\x01a\x45", 2002),  # no state
        (FILLING + b"\xa0\x01a\x40", 2001),
        (FILLING + b"\xa0\x01a\x40", 2000),  # more than it says
        (FILLING, 2002),  # fewer
        (FILLING, 1 << 31),
    ],
)
def test_malformed_maps_are_decode_errors_as_they_are_in_one_piece(entries: bytes, count: int) -> None:
    body = _map_body(entries, count)
    with pytest.raises(DecodeError):
        decode_performative(body)
    with pytest.raises(DecodeError):
        decoded(body, 3)


def test_a_map_made_by_hand_is_one() -> None:
    assert decoded(_map_body(FILLING, 2000), 3).unsettled == dict.fromkeys(tags(1000))


def server() -> Connection:
    engine = Connection(Role.SERVER, container_id="server")
    hello = encode_frame(0, encode_performative(Open("client", None, 1 << 20)))
    engine.receive_data(AMQP_HEADER + hello + encode_frame(0, encode_performative(Begin(None, 0, 99, 99))), 0.0)
    engine.events()
    return engine


def test_a_call_of_the_engine_decodes_what_its_work_is_worth_and_later_frames_wait() -> None:
    """So a turn of the router ends in time, whatever a frame holds."""
    engine = server()
    second = attach_of({})
    second.name, second.handle = "behind", 1
    data = encode_frame(0, encode_performative(attach_of(dict.fromkeys(tags(MANY)))))
    data += encode_frame(0, encode_performative(second))
    work, calls, attached = 64, 1, []
    is_left = engine.receive_data(data, 0.0, work)
    while is_left:
        attached += [event.link.name for event in engine.events() if isinstance(event, LinkAttached)]
        is_left = engine.receive_data(b"", 0.0, work)
        calls += 1
    attached += [event.link.name for event in engine.events() if isinstance(event, LinkAttached)]
    assert attached == ["link", "behind"]
    assert calls >= MANY / ENTRIES_PER_UNIT / work


def test_a_frame_beside_such_a_map_has_few_values() -> None:
    engine = server()
    attach = attach_of({})
    attach.properties = {Symbol("x-many"): [None] * (MAX_FRAME_VALUES + 1)}
    engine.receive_data(encode_frame(0, encode_performative(attach)), 0.0)
    assert any(isinstance(event, ConnectionLost) for event in engine.events())
