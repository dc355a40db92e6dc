"""Performatives, states, termini and SASL frame bodies as bytes: golden vectors, round trips, tolerance, refusals."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oncewire.wire import performatives as p
from oncewire.wire.codec import encode
from oncewire.wire.errors import DecodeError, LocalProtocolError
from oncewire.wire.performative_codec import (
    MAX_UNSETTLED_ENTRY_SIZE,
    decode_performative,
    decode_sasl_frame,
    encode_performative,
    encode_unsettled_map,
    unsettled_map_bound,
)
from oncewire.wire.types import AmqpArray, Described, Symbol, UByte, UInt, ULong
from tests.support.effort import rounds

# --- golden vectors, by hand from parts 2.7, 3.4 and 5.3.3 ------------------------------------------------------------

GOLDEN: list[tuple[p.Performative, str]] = [
    (p.Open("c"), "00 53 10 c0 04 01 a1 01 63"),
    (
        p.Open("c", "h", 1 << 20, 255, 30_000, offered_capabilities=(Symbol("x"),)),
        "00 53 10 c0 1c 08 a1 01 63 a1 01 68 70 00 10 00 00 60 00 ff 70 00 00 75 30 40 40 e0 04 01 a3 01 78",
    ),
    (
        p.Open("c", properties={Symbol("v"): "1"}),
        "00 53 10 c0 15 0a a1 01 63" + "40" * 8 + "c1 07 02 a3 01 76 a1 01 31",
    ),
    (p.Begin(None, 0, 2048, 1), "00 53 11 c0 0a 04 40 43 70 00 00 08 00 52 01"),
    (p.Begin(7, 1, 0, 0, 1023), "00 53 11 c0 0d 05 60 00 07 52 01 43 43 70 00 00 03 ff"),
    (p.Attach("l", 0, True), "00 53 12 c0 06 03 a1 01 6c 43 41"),
    (
        p.Attach("l", 1, False, 0, 1, p.Source(), p.Target("t"), {}, initial_delivery_count=0),
        "00 53 12 c0 1d 0a a1 01 6c 52 01 42 50 00 50 01 00 53 28 45 00 53 29 c0 04 01 a1 01 74 c1 01 00 40 43",
    ),
    (
        p.Attach("l", 0, True, unsettled={b"a": None, b"b": p.ACCEPTED}),
        "00 53 12 c0 18 08 a1 01 6c 43 41 40 40 40 40 c1 0c 04 a0 01 61 40 a0 01 62 00 53 24 45",
    ),
    (p.Flow(None, 10, 0, 20), "00 53 13 c0 07 04 40 52 0a 43 52 14"),
    (p.Flow(1, 10, 0, 20, 0, 5, 100), "00 53 13 c0 0d 07 52 01 52 0a 43 52 14 43 52 05 52 64"),
    (p.Flow(1, 2, 3, 4, 0, 0, 0, None, False, True), "00 53 13 c0 0f 0a 52 01 52 02 52 03 52 04 43 43 43 40 42 41"),
    (p.Transfer(0, 1, b"\x00\x01", 0, False), "00 53 14 c0 0a 05 43 52 01 a0 02 00 01 43 42"),
    (p.Transfer(300, 70_000, b"t", 0, True, True), "00 53 14 c0 11 06 70 00 00 01 2c 70 00 01 11 70 a0 01 74 43 41 41"),
    (p.Transfer(0, more=True), "00 53 14 c0 07 06 43 40 40 40 40 41"),
    (
        p.Transfer(0, 1, b"t", None, True, False, None, p.ACCEPTED, True),
        "00 53 14 c0 10 09 43 52 01 a0 01 74 40 41 40 40 00 53 24 45 41",
    ),
    (p.Disposition(True, 5, 9, False, p.ACCEPTED), "00 53 15 c0 0b 05 41 52 05 52 09 42 00 53 24 45"),
    (p.Disposition(False, 5, None, True), "00 53 15 c0 06 04 42 52 05 40 41"),
    (p.Disposition(True, 0, None, True, p.RELEASED), "00 53 15 c0 09 05 41 43 40 41 00 53 26 45"),
    (p.Detach(3, True), "00 53 16 c0 04 02 52 03 41"),
    (
        p.Detach(0, True, p.AmqpError(Symbol("amqp:not-found"), "no")),
        "00 53 16 c0 1d 03 43 41 00 53 1d c0 15 02 a3 0e 61 6d 71 70 3a 6e 6f 74 2d 66 6f 75 6e 64 a1 02 6e 6f",
    ),
    (p.End(), "00 53 17 45"),
    (p.Close(), "00 53 18 45"),
    (p.Close(p.AmqpError(Symbol("e:x"))), "00 53 18 c0 0c 01 00 53 1d c0 06 01 a3 03 65 3a 78"),
]
GOLDEN_STATES: list[tuple[p.DeliveryState, str]] = [
    (p.Received(1, 300), "00 53 23 c0 0c 02 52 01 80 00 00 00 00 00 00 01 2c"),
    (p.ACCEPTED, "00 53 24 45"),
    (p.Rejected(), "00 53 25 45"),
    (p.Rejected(p.AmqpError(Symbol("e"))), "00 53 25 c0 0a 01 00 53 1d c0 04 01 a3 01 65"),
    (p.RELEASED, "00 53 26 45"),
    (p.Modified(), "00 53 27 45"),
    (p.Modified(True), "00 53 27 c0 02 01 41"),
    (p.Modified(False, True, {Symbol("k"): 1}), "00 53 27 c0 0b 03 40 41 c1 06 02 a3 01 6b 55 01"),
]
GOLDEN_SASL: list[tuple[p.SaslFrame, str]] = [
    (p.SaslMechanisms((Symbol("PLAIN"),)), "00 53 40 c0 0b 01 e0 08 01 a3 05 50 4c 41 49 4e"),
    (p.SaslInit(Symbol("ANONYMOUS"), b"", "h"), "00 53 41 c0 11 03 a3 09 41 4e 4f 4e 59 4d 4f 55 53 a0 00 a1 01 68"),
    (p.SaslChallenge(b"c"), "00 53 42 c0 04 01 a0 01 63"),
    (p.SaslResponse(b"r"), "00 53 43 c0 04 01 a0 01 72"),
    (p.SaslOutcomeFrame(p.SaslCode.OK), "00 53 44 c0 03 01 50 00"),
]


@pytest.mark.parametrize(("performative", "octets"), GOLDEN, ids=lambda v: type(v).__name__)
def test_performatives_are_written_and_read_as_the_specification_says(
    performative: p.Performative, octets: str
) -> None:
    data = bytes.fromhex(octets)
    assert encode_performative(performative).hex(" ") == data.hex(" ")
    assert decode_performative(b"\xee" + data + b"payload", 1, 1 + len(data)) == (performative, 1 + len(data))


@pytest.mark.parametrize(("frame", "octets"), GOLDEN_SASL, ids=lambda v: type(v).__name__)
def test_sasl_frames_are_written_and_read_as_the_specification_says(frame: p.SaslFrame, octets: str) -> None:
    data = bytes.fromhex(octets)
    assert encode_performative(frame).hex(" ") == data.hex(" ")
    assert decode_sasl_frame(data) == (frame, len(data))


@pytest.mark.parametrize(("state", "octets"), GOLDEN_STATES, ids=lambda v: type(v).__name__)
def test_states_are_written_and_read_as_the_specification_says(state: p.DeliveryState, octets: str) -> None:
    data = bytes.fromhex(octets)
    disposition = p.Disposition(True, 0, None, False, state)
    encoded = encode_performative(disposition)
    assert encoded.endswith(data)
    decoded, _ = decode_performative(encoded)
    assert decoded == disposition


# --- round trips ------------------------------------------------------------------------------------------------------

UINTS = st.one_of(st.integers(0, 300), st.integers(0, p.UINT_MAX))
TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
SYMBOLS = st.text(st.characters(codec="ascii"), max_size=20).map(Symbol)
MULTIPLE = st.lists(SYMBOLS, max_size=3).map(tuple)
BINARY = st.binary(max_size=40)
SCALARS = st.one_of(st.none(), st.booleans(), UINTS.map(UInt), UINTS.map(ULong), TEXT, SYMBOLS, BINARY)
FIELDS = st.dictionaries(SYMBOLS, st.one_of(SCALARS, st.lists(SCALARS, max_size=2)), max_size=3)
FILTERS = st.dictionaries(SYMBOLS, st.builds(Described, SYMBOLS, SCALARS), max_size=2)


def maybe(values: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.one_of(st.none(), values)


ERRORS = st.builds(p.AmqpError, SYMBOLS, maybe(TEXT), maybe(FIELDS))
DECLARED = st.builds(Described, st.just(ULong(0x33)), st.lists(BINARY, min_size=1, max_size=1))
TRANSACTIONAL = st.builds(
    Described, st.just(ULong(0x34)), st.builds(lambda txn: [txn, Described(ULong(0x24), [])], BINARY)
)
STATES = st.one_of(
    st.builds(p.Received, UINTS, st.integers(0, 2**64 - 1)),
    st.just(p.ACCEPTED),
    st.builds(p.Rejected, maybe(ERRORS)),
    st.just(p.RELEASED),
    st.builds(p.Modified, st.booleans(), st.booleans(), maybe(FIELDS)),
    DECLARED,
    TRANSACTIONAL,
)
UNSETTLED = st.dictionaries(st.binary(min_size=1, max_size=32), maybe(STATES), max_size=8)
POLICIES = st.sampled_from(["link-detach", "session-end", "connection-close", "never"]).map(Symbol)
SOURCES = st.builds(
    p.Source,
    maybe(TEXT),
    st.integers(0, 2),
    POLICIES,
    UINTS,
    st.booleans(),
    maybe(FIELDS),
    maybe(SYMBOLS),
    maybe(FILTERS),
    maybe(STATES),
    MULTIPLE,
    MULTIPLE,
)
TARGETS = st.one_of(
    st.builds(p.Target, maybe(TEXT), st.integers(0, 2), POLICIES, UINTS, st.booleans(), maybe(FIELDS), MULTIPLE),
    st.just(Described(ULong(0x30), [AmqpArray(Symbol, (Symbol("amqp:local-transactions"),))])),
)
PERFORMATIVES = st.one_of(
    st.builds(
        p.Open,
        TEXT,
        maybe(TEXT),
        UINTS,
        st.integers(0, 65535),
        maybe(UINTS),
        MULTIPLE,
        MULTIPLE,
        MULTIPLE,
        MULTIPLE,
        maybe(FIELDS),
    ),
    st.builds(p.Begin, maybe(st.integers(0, 65535)), UINTS, UINTS, UINTS, UINTS, MULTIPLE, MULTIPLE, maybe(FIELDS)),
    st.builds(
        p.Attach,
        TEXT,
        UINTS,
        st.booleans(),
        st.integers(0, 2),
        st.integers(0, 1),
        maybe(SOURCES),
        maybe(TARGETS),
        maybe(UNSETTLED),
        st.booleans(),
        maybe(UINTS),
        maybe(st.integers(0, 2**64 - 1)),
        MULTIPLE,
        MULTIPLE,
        maybe(FIELDS),
    ),
    st.builds(
        p.Flow,
        maybe(UINTS),
        UINTS,
        UINTS,
        UINTS,
        maybe(UINTS),
        maybe(UINTS),
        maybe(UINTS),
        maybe(UINTS),
        st.booleans(),
        st.booleans(),
        maybe(FIELDS),
    ),
    st.builds(
        p.Transfer,
        UINTS,
        maybe(UINTS),
        maybe(BINARY),
        maybe(UINTS),
        maybe(st.booleans()),
        st.booleans(),
        maybe(st.integers(0, 1)),
        maybe(STATES),
        st.booleans(),
        st.booleans(),
        st.booleans(),
    ),
    st.builds(p.Disposition, st.booleans(), UINTS, maybe(UINTS), st.booleans(), maybe(STATES), st.booleans()),
    st.builds(p.Detach, UINTS, st.booleans(), maybe(ERRORS)),
    st.builds(p.End, maybe(ERRORS)),
    st.builds(p.Close, maybe(ERRORS)),
)
SASL_FRAMES = st.one_of(
    st.builds(p.SaslMechanisms, MULTIPLE),
    st.builds(p.SaslInit, SYMBOLS, maybe(BINARY), maybe(TEXT)),
    st.builds(p.SaslChallenge, BINARY),
    st.builds(p.SaslResponse, BINARY),
    st.builds(p.SaslOutcomeFrame, st.integers(0, 4), maybe(BINARY)),
)


@settings(deadline=None, max_examples=rounds(400))
@given(PERFORMATIVES)
def test_every_performative_survives_encoding_and_decoding(performative: p.Performative) -> None:
    data = encode_performative(performative)
    assert decode_performative(data + b"payload") == (performative, len(data))


@settings(deadline=None)
@given(SASL_FRAMES)
def test_every_sasl_frame_survives_encoding_and_decoding(frame: p.SaslFrame) -> None:
    data = encode_performative(frame)
    assert decode_sasl_frame(data) == (frame, len(data))


@settings(deadline=None)
@given(UNSETTLED)
def test_unsettled_maps_with_every_state_survive_both_directions(unsettled: p.UnsettledMap) -> None:
    attach = p.Attach("link", 0, False, unsettled=unsettled)
    data = encode_performative(attach)
    assert encode_unsettled_map(unsettled) in data
    decoded, _ = decode_performative(data)
    assert isinstance(decoded, p.Attach)
    assert decoded.unsettled == unsettled
    assert decoded.unsettled is not None  # an empty map resumes, null does not (2.7.3)


def test_states_without_fields_are_the_singletons() -> None:
    for state in (p.ACCEPTED, p.RELEASED):
        for transfer in (p.Transfer(0, 1, b"t", 0, False, state=state), p.Disposition(True, 1, state=state)):
            decoded, _ = decode_performative(encode_performative(transfer))
            assert isinstance(decoded, (p.Transfer, p.Disposition))
            assert decoded.state is state


def test_a_full_unsettled_map_fits_the_frame_it_was_bounded_for() -> None:
    bound = unsettled_map_bound(1 << 20)
    states: list[p.DeliveryState | None] = [None, p.ACCEPTED, p.Rejected(), p.RELEASED, p.Modified()]
    unsettled = {n.to_bytes(32, "big"): states[n % 5] for n in range(bound)}
    attach = p.Attach("n" * 100, 0, True, source=p.Source("a" * 100), unsettled=unsettled)
    data = encode_performative(attach)
    assert bound == 21_834
    assert len(data) + 8 <= 1 << 20
    assert decode_performative(data) == (attach, len(data))


def test_states_without_fields_are_within_the_bound_of_a_map_entry() -> None:
    one = len(encode_unsettled_map({b"t" * 32: p.Modified()})) - 3
    assert one <= MAX_UNSETTLED_ENTRY_SIZE


# --- tolerance --------------------------------------------------------------------------------------------------------

DESCRIPTORS = {
    "smallulong": b"\x53\x16",
    "ulong": b"\x80\x00\x00\x00\x00\x00\x00\x00\x16",
    "symbol": b"\xa3\x10amqp:detach:list",
    "symbol32": b"\xb3\x00\x00\x00\x10amqp:detach:list",
}
LISTS = {
    "list8": b"\xc0\x03\x02\x43\x41",
    "list32": b"\xd0\x00\x00\x00\x06\x00\x00\x00\x02\x43\x41",
    "with nulls at the end": b"\xc0\x04\x03\x43\x41\x40",
    "with fields of a later version": b"\xc0\x08\x05\x43\x41\x40\xa1\x01x\x45",
    "with longer encodings": b"\xc0\x05\x02\x52\x00\x56\x01",
}


@pytest.mark.parametrize("descriptor", DESCRIPTORS.values(), ids=DESCRIPTORS.keys())
@pytest.mark.parametrize("fields", LISTS.values(), ids=LISTS.keys())
def test_all_forms_of_descriptor_and_list_are_read(descriptor: bytes, fields: bytes) -> None:
    data = b"\x00" + descriptor + fields
    assert decode_performative(data) == (p.Detach(0, True), len(data))


def test_empty_performatives_are_read_in_all_forms_of_a_list() -> None:
    for fields in ("45", "c0 01 00", "d0 00 00 00 04 00 00 00 00"):
        data = b"\x00\x53\x18" + bytes.fromhex(fields)
        assert decode_performative(data) == (p.Close(), len(data))


def test_capabilities_may_come_as_one_symbol_or_as_an_array() -> None:
    for value, expected in [
        (Symbol("a"), (Symbol("a"),)),
        (AmqpArray(Symbol, (Symbol("a"), Symbol("b"))), (Symbol("a"), Symbol("b"))),
        (AmqpArray(Symbol, ()), ()),
        (None, ()),
    ]:
        fields = encode(["c", None, None, None, None, None, None, value])
        decoded, _ = decode_performative(b"\x00\x53\x10" + fields)
        assert isinstance(decoded, p.Open)
        assert decoded.offered_capabilities == expected


def test_other_widths_and_strings_for_symbols_are_tolerated() -> None:
    fields = encode([Symbol("link"), ULong(7), True, UInt(0), UByte(1)])
    assert decode_performative(b"\x00\x53\x12" + fields)[0] == p.Attach("link", 7, True, 0, 1)
    error = encode([Described(ULong(0x1D), ["amqp:not-found", Symbol("text"), {"key": 1}])])
    decoded, _ = decode_performative(b"\x00\x53\x18" + error)
    assert decoded == p.Close(p.AmqpError(Symbol("amqp:not-found"), "text", {Symbol("key"): 1}))


def test_unknown_states_stay_opaque_and_can_be_sent_on() -> None:
    declared = Described(ULong(0x33), [b"txn-id"])
    vendor = Described(Symbol("com.example:done:list"), [1])
    for state in (declared, vendor):
        disposition = p.Disposition(True, 3, None, True, state)
        data = encode_performative(disposition)
        assert decode_performative(data) == (disposition, len(data))


def test_a_coordinator_stays_an_opaque_target() -> None:
    coordinator = Described(ULong(0x30), [])
    decoded, _ = decode_performative(encode_performative(p.Attach("l", 0, False, target=coordinator)))
    assert isinstance(decoded, p.Attach)
    assert decoded.target == coordinator


# --- refusals ---------------------------------------------------------------------------------------------------------


def _body(code: int, *values: object) -> bytes:
    return b"\x00\x53" + bytes((code,)) + encode(list(values))


def _attach_with_properties(properties: dict[Symbol, object]) -> bytes:
    """An attach whose source is dynamic, with these node properties."""
    source = Described(ULong(0x28), [None, None, None, None, True, properties])
    return _body(0x12, "l", UInt(0), True, None, None, source)


@pytest.mark.parametrize("code", [0x2B, 0x2C, 0x2D, 0x2E])
def test_every_standard_lifetime_policy_is_read(code: int) -> None:  # 3.5.10 to 3.5.13
    properties: dict[Symbol, object] = {
        Symbol("lifetime-policy"): Described(ULong(code), []),
        Symbol("supported-dist-modes"): Symbol("copy"),
    }
    attach, _ = decode_performative(_attach_with_properties(properties))
    assert isinstance(attach, p.Attach)
    assert attach.source is not None
    assert attach.source.dynamic_node_properties == properties


MALFORMED = {
    "nothing": b"",
    "no described value": encode([]),
    "descriptor only": b"\x00\x53\x10",
    "unknown descriptor": b"\x00\x53\x99\x45",
    "unknown symbol": b"\x00\xa3\x03a:b\x45",
    "descriptor that is no number": b"\x00\x41\x45",
    "negative descriptor": b"\x00\x55\xff\x45",
    "a state is no performative": b"\x00\x53\x24\x45",
    "a SASL frame is no performative": _body(0x43, b"r"),
    "map instead of list": b"\x00\x53\x18\xc1\x01\x00",
    "open without container-id": _body(0x10),
    "open with null as container-id": _body(0x10, None, "host"),
    "begin without windows": _body(0x11, None, UInt(0)),
    "attach without role": _body(0x12, "l", UInt(0)),
    "flow without windows": _body(0x13, UInt(0), UInt(1)),
    "flow with a null window": _body(0x13, None, None, UInt(1), UInt(1)),
    "flow without fields": _body(0x13),
    "transfer without handle": _body(0x14),
    "transfer with null as handle": _body(0x14, None, UInt(1), b"t"),
    "disposition without first": _body(0x15, True),
    "disposition without fields": _body(0x15),
    "detach without handle": _body(0x16),
    "error without condition": _body(0x18, Described(ULong(0x1D), [])),
    "error of another type": _body(0x18, Described(ULong(0x24), [])),
    "error that is not described": _body(0x18, "oops"),
    "number too large for uint": _body(0x16, ULong(2**32)),
    "negative handle": _body(0x16, -1),
    "boolean as handle": _body(0x16, True),
    "number as boolean": _body(0x16, UInt(0), UInt(1)),
    "snd-settle-mode that is none (2.8.2)": _body(0x12, "l", UInt(0), True, UByte(3)),
    "rcv-settle-mode that is none (2.8.3)": _body(0x12, "l", UInt(0), True, None, UByte(2)),
    "durability that is none (3.5.5)": _body(
        0x12, "l", UInt(0), True, None, None, Described(ULong(0x28), ["a", UInt(3)])
    ),
    "lifetime-policy that is a number (3.5.9)": _attach_with_properties({Symbol("lifetime-policy"): UInt(1)}),
    "lifetime-policy that is a state (3.5.9)": _attach_with_properties(
        {Symbol("lifetime-policy"): Described(ULong(0x24), [])}
    ),
    "distribution modes that are a number (3.5.9)": _attach_with_properties({Symbol("supported-dist-modes"): UInt(1)}),
    "string as binary": _body(0x14, UInt(0), UInt(0), "tag"),
    "symbol that is no ASCII": _body(0x18, Described(ULong(0x1D), ["\u00fc"])),
    "number as capability": _body(0x10, "c", None, None, None, None, UInt(1)),
    "described array of capabilities": _body(0x10, "c", None, None, None, None, AmqpArray(Symbol, (), (ULong(1),))),
    "list as properties": _body(0x11, None, UInt(0), UInt(0), UInt(0), None, None, None, []),
    "number as key of properties": _body(0x11, None, UInt(0), UInt(0), UInt(0), None, None, None, {1: 1}),
    "source of another type": _body(0x12, "l", UInt(0), True, None, None, Described(ULong(0x29), [])),
    "target that is not described": _body(0x12, "l", UInt(0), True, None, None, None, "topic"),
    "list as unsettled": _body(0x12, "l", UInt(0), True, None, None, None, None, []),
    "string as delivery tag": _body(0x12, "l", UInt(0), True, None, None, None, None, {"t": None}),
    "unsettled state that is not described": _body(0x12, "l", UInt(0), True, None, None, None, None, {b"t": 1}),
    "received without fields": _body(0x15, True, UInt(0), None, None, Described(ULong(0x23), [])),
    "state that is a string": _body(0x15, True, UInt(0), None, None, "accepted"),
    "transfer cut in its tag": bytes.fromhex("00 53 14 c0 08 03 43 43 a0 09 61 62 63"),
    "transfer whose list is longer than the frame": bytes.fromhex("00 53 14 c0 20 03 43 43 a0 01 61"),
    "transfer with a count that is too high": bytes.fromhex("00 53 14 c0 07 05 43 43 a0 01 61 43"),
    "transfer with a count that is too low": bytes.fromhex("00 53 14 c0 08 04 43 43 a0 01 61 43 42"),
    "disposition with a count that is too high": bytes.fromhex("00 53 15 c0 05 06 41 43 43 41"),
    "flow with a count that is too high": bytes.fromhex("00 53 13 c0 05 06 43 43 43 43"),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_malformed_performatives_are_refused(data: bytes) -> None:
    with pytest.raises(DecodeError):
        decode_performative(data)


def test_a_performative_is_no_sasl_frame() -> None:
    with pytest.raises(DecodeError):
        decode_sasl_frame(encode_performative(p.Close()))


@pytest.mark.parametrize(
    "make",
    [
        lambda: p.Transfer(-1),
        lambda: p.Transfer(0, 2**32, b"t", 0, False),
        lambda: p.Disposition(True, -1, None, False, p.ACCEPTED),
        lambda: p.Flow(0, 2**32, 0, 0, 0, 0, 0),
        lambda: p.Begin(65536, 0, 0, 0),
        lambda: p.Attach("\ud800", 0, True),
        lambda: p.Open(None),  # type: ignore[arg-type]
        lambda: p.Open("c", offered_capabilities=("\u00fc",)),  # type: ignore[arg-type]
        lambda: p.Open("c", offered_capabilities="abc"),  # type: ignore[arg-type]
        lambda: p.Attach("l", 0, True, source="topic"),  # type: ignore[arg-type]
        lambda: p.Attach("l", 0, True, unsettled=[]),  # type: ignore[arg-type]
        lambda: p.Attach("l", 0, True, unsettled={"tag": None}),  # type: ignore[dict-item]
        lambda: p.Detach("0"),  # type: ignore[arg-type]
        lambda: p.Close("error"),  # type: ignore[arg-type]
    ],
)
def test_fields_that_do_not_fit_are_local_errors(make: Callable[[], p.Performative]) -> None:
    # a compiled build refuses wrong types already when the object is made
    with pytest.raises((LocalProtocolError, TypeError)):
        encode_performative(make())


# --- fuzz -------------------------------------------------------------------------------------------------------------


def test_mutated_performatives_are_decoded_or_refused_and_can_be_sent_on() -> None:
    rng = random.Random(7)
    samples = [bytes.fromhex(octets) for _, octets in GOLDEN]
    states = [state for state, _ in GOLDEN_STATES]
    unsettled: p.UnsettledMap = {bytes((n,)) * 8: state for n, state in enumerate(states)}
    unsettled[b"none"] = None
    samples.append(encode_performative(p.Attach("link", 0, False, source=p.Source("a"), unsettled=unsettled)))
    samples += [encode_performative(p.Disposition(True, 1, 9, False, state)) for state in states]
    refused = 0
    tried = rounds(20_000)
    for _ in range(tried):
        data = bytearray(rng.choice(samples))
        for _ in range(rng.randint(1, 3)):
            at = rng.randrange(len(data))
            if rng.random() < 0.7:
                data[at] = rng.choice((rng.randrange(256), 0x40, 0x41, 0x43, 0x52, 0x70, 0xC0, 0xD0, 0x45, 0xFF))
            else:
                data[at:at] = rng.randbytes(rng.randint(1, 4))
        try:
            performative, end = decode_performative(bytes(data))
        except DecodeError:
            refused += 1
            continue
        assert 4 <= end <= len(data)
        again = encode_performative(performative)
        assert decode_performative(again) == (performative, len(again)) or b"\x72" in again or b"\x82" in again
    assert 0.25 < refused / tried < 0.975
