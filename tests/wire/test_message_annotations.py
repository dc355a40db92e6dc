"""Annotations are spliced in on the bytes: nothing else of a message changes (rule I-1b)."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delivery_records.model.limits import LARGE_BYTES
from oncewire.wire.annotations import (
    MAX_FRONT_BYTES,
    DeliveryAnnotator,
    add_annotations,
    annotate_dead_letter,
    mark_in_doubt,
    mark_redelivered,
    read_annotations,
    replace_annotations,
    set_delivery_count,
    splice_annotations,
    topic_annotations,
)
from oncewire.wire.codec import encode
from oncewire.wire.errors import DecodeError
from oncewire.wire.message import Header, Message, Properties, decode_message, encode_message
from oncewire.wire.types import Symbol, UByte, ULong
from oncewire.wire.vocabulary import IN_DOUBT

OURS, COUNT = topic_annotations("client-1/orders", b"\x01\x02", 77)
OURS_DECODED: dict[object, object] = {
    Symbol("x-opt-topic-publisher"): "client-1/orders",
    Symbol("x-opt-topic-session"): ULong(77),
    Symbol("x-opt-topic-tag"): b"\x01\x02",
}
BODY = b"\x00\x53\x75\xa0\x03abc"
FOOTER = b"\x00\x53\x78\xc1\x01\x00"
OURS_SECTION = splice_annotations(BODY, OURS, COUNT).removesuffix(BODY)


def section(code: int, value: object) -> bytes:
    return b"\x00\x53" + bytes((code,)) + encode(value)


def test_our_annotations_are_encoded_pairs() -> None:
    assert (
        b"".join(
            (
                b"\xa3\x15x-opt-topic-publisher\xa1\x0fclient-1/orders",
                b"\xa3\x13x-opt-topic-session\x53\x4d",
                b"\xa3\x0fx-opt-topic-tag\xa0\x02\x01\x02",
            )
        )
        == OURS
    )
    assert COUNT == 3


def letter_of(message: bytes, error: str = "") -> bytes:
    return annotate_dead_letter(
        message, reason="rejected", topic="orders", subscription="till/s", attempts=3, error=error, count=2
    )


@pytest.mark.parametrize("before", [b"", b"\x00\x53\x70\xc0\x02\x01\x41"], ids=["nothing", "header"])
def test_a_dead_letter_names_its_failure_beside_what_names_the_delivery_and_keeps_the_message(before: bytes) -> None:
    message = splice_annotations(before + BODY + FOOTER, OURS, COUNT)
    letter = letter_of(message)
    failure: dict[object, object] = {
        Symbol("x-opt-dead-letter-reason"): Symbol("rejected"),
        Symbol("x-opt-dead-letter-topic"): "orders",
        Symbol("x-opt-dead-letter-subscription"): "till/s",
        Symbol("x-opt-dead-letter-attempts"): 3,
        Symbol("x-opt-dead-letter-count"): 2,
    }
    assert read_annotations(letter) == OURS_DECODED | failure
    assert read_annotations(letter_of(message, "app:bad: no")) == OURS_DECODED | failure | {
        Symbol("x-opt-dead-letter-error"): "app:bad: no"
    }
    assert letter.startswith(before)
    assert letter.endswith(BODY + FOOTER)
    assert read_annotations(letter_of(letter, "app:bad: no")) == read_annotations(letter_of(message, "app:bad: no"))


def test_no_client_can_pass_a_message_off_as_a_dead_letter() -> None:
    annotations = section(0x72, {Symbol("x-opt-dead-letter-reason"): Symbol("rejected"), Symbol("x-opt-mine"): 1})
    message = splice_annotations(annotations + BODY, OURS, COUNT)
    assert read_annotations(message) == OURS_DECODED | {Symbol("x-opt-mine"): 1}


def test_a_delivery_in_doubt_says_so() -> None:
    added, count = topic_annotations("p/l", b"t", 1, in_doubt=True)
    message = splice_annotations(BODY, added, count)
    assert read_annotations(message)["x-opt-topic-in-doubt"] is True
    assert count == 4


@pytest.mark.parametrize("size", [1, 8, 32])
@pytest.mark.parametrize(
    "before",
    [b"", b"\x00\x53\x70\x45", b"\x00\x53\x70\xc0\x02\x01\x41", b"\x00\x53\x72\xc1\x01\x00"],
    ids=["nothing", "empty header", "header", "annotations"],
)
def test_annotating_a_delivery_in_one_step_changes_nothing(before: bytes, size: int) -> None:
    tag = b"t" * size
    added, count = topic_annotations("client-1/orders", tag, 77)
    message = before + BODY + FOOTER
    expected = splice_annotations(message, added, count)
    annotator = DeliveryAnnotator()
    assert annotator.annotate(message, "client-1/orders", tag, 77) == expected
    added, count = topic_annotations("client-1/orders", tag, 77, user="ann")
    named = splice_annotations(message, added, count)
    assert annotator.annotate(message, "client-1/orders", tag, 77, user="ann") == named
    assert annotator.annotate(message, "client-1/orders", tag, 77) == expected
    assert read_annotations(named) == {**read_annotations(expected), Symbol("x-opt-topic-user"): "ann"}
    assert read_annotations(expected)[Symbol("x-opt-topic-tag")] == tag


def test_a_message_without_sections_in_front_gets_one() -> None:
    spliced = splice_annotations(BODY, OURS, COUNT)
    size = len(OURS) + 1
    assert spliced == b"\x00\x53\x72\xc1" + bytes((size, 6)) + OURS + BODY
    assert read_annotations(spliced) == OURS_DECODED


@pytest.mark.parametrize(
    "bare",
    [
        BODY,
        BODY + FOOTER,
        BODY * 3,
        section(0x77, None),
        section(0x76, [1, 2]),
        encode_message(Message(b"x", properties=Properties("id"), application_properties={"a": 1})),
        b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x75\xa0\x01x",
        b"\x00\xa3\x11amqp:amqp-value:*\x41",
        BODY + b"what follows is not looked at",
    ],
)
@pytest.mark.parametrize("header", [b"", section(0x70, []), section(0x70, [True, UByte(9), None])])
@pytest.mark.parametrize("delivery_annotations", [b"", section(0x71, {Symbol("hop"): 1})])
@pytest.mark.parametrize("annotations", [b"", section(0x72, {}), section(0x72, {Symbol("x-opt-a"): [1, "b"]})])
def test_header_and_bare_message_are_copied_byte_for_byte(
    bare: bytes, header: bytes, delivery_annotations: bytes, annotations: bytes
) -> None:
    message = header + delivery_annotations + annotations + bare
    expected = section(0x72, read_annotations(message) | OURS_DECODED)
    assert splice_annotations(message, OURS, COUNT) == header + expected + bare


DESCRIPTORS = {
    0x70: [b"\x53\x70", b"\x80" + (0x70).to_bytes(8, "big"), b"\xa3\x10amqp:header:list"],
    0x71: [
        b"\x53\x71",
        b"\x80" + (0x71).to_bytes(8, "big"),
        b"\xa3\x1damqp:delivery-annotations:map",
        b"\xb3\x00\x00\x00\x1damqp:delivery-annotations:map",
    ],
    0x72: [
        b"\x53\x72",
        b"\x80" + (0x72).to_bytes(8, "big"),
        b"\xa3\x1camqp:message-annotations:map",
        b"\xb3\x00\x00\x00\x1camqp:message-annotations:map",
    ],
}


@pytest.mark.parametrize("header", DESCRIPTORS[0x70])
@pytest.mark.parametrize("delivery", DESCRIPTORS[0x71])
@pytest.mark.parametrize("annotations", DESCRIPTORS[0x72])
def test_sections_are_known_by_every_form_of_their_descriptor(
    header: bytes, delivery: bytes, annotations: bytes
) -> None:
    first = b"\x00" + header + encode([True])
    entries = encode({Symbol("x-opt-topic-tag"): b"forged", Symbol("kept"): 1})
    message = first + b"\x00" + delivery + encode({}) + b"\x00" + annotations + entries + BODY
    spliced = splice_annotations(message, OURS, COUNT)
    assert spliced.startswith(first + b"\x00\x53\x72")
    assert spliced.endswith(BODY)
    assert read_annotations(spliced) == OURS_DECODED | {"kept": 1}


def test_what_a_client_forged_is_removed_and_the_rest_keeps_its_bytes_and_order() -> None:
    kept_first = encode(Symbol("a")) + b"\x70\x00\x00\x00\x01"  # a uint in a longer form than needed
    kept_last = encode(ULong(5)) + encode({Symbol("x-opt-topic-inner"): 1})
    entries = b"".join(
        (
            kept_first,
            encode(Symbol("x-opt-topic-publisher")) + encode("somebody else"),
            b"\xb3\x00\x00\x00\x0fx-opt-topic-tag" + encode(b"forged"),
            encode("x-opt-topic-session") + encode(ULong(1)),
            encode(Symbol("x-opt-topic-")) + encode(None),
            encode(Symbol("x-opt-topic-redelivered")) + encode(True),
            kept_last,
        )
    )
    message = b"\x00\x53\x72\xd1" + (len(entries) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x0e" + entries + BODY
    spliced = splice_annotations(message, OURS, COUNT)
    assert spliced == b"\x00\x53\x72\xc1" + bytes((len(kept_first + kept_last + OURS) + 1, 10)) + (
        kept_first + kept_last + OURS + BODY
    )


def test_keys_that_a_client_may_set_are_kept_when_named() -> None:
    message = section(0x72, {IN_DOUBT: True, Symbol("x-opt-topic-tag"): b"forged"}) + BODY
    spliced = splice_annotations(message, OURS, COUNT, keep=(b"x-opt-topic-in-doubt",))
    assert read_annotations(spliced) == OURS_DECODED | {"x-opt-topic-in-doubt": True}


def test_a_map8_grows_into_a_map32_when_it_must() -> None:
    message = section(0x72, {Symbol("x-opt-a"): b"v" * 200}) + BODY
    assert message[3] == 0xC1
    spliced = splice_annotations(message, OURS, COUNT)
    assert spliced[3] == 0xD1
    assert read_annotations(spliced) == OURS_DECODED | {"x-opt-a": b"v" * 200}
    many = section(0x72, {Symbol(f"k{n}"): None for n in range(126)}) + BODY
    assert read_annotations(splice_annotations(many, OURS, COUNT)).keys() >= OURS_DECODED.keys()


def test_redelivery_is_marked_once_and_nothing_else_changes() -> None:
    header = section(0x70, [True])
    spliced = splice_annotations(header + BODY + FOOTER, OURS, COUNT)
    marked = mark_redelivered(spliced)
    assert read_annotations(marked) == OURS_DECODED | {"x-opt-topic-redelivered": True}
    assert marked.startswith(header)
    assert marked.endswith(BODY + FOOTER)
    assert mark_redelivered(marked) == marked
    assert read_annotations(mark_redelivered(BODY)) == {"x-opt-topic-redelivered": True}


def test_what_is_sent_again_in_doubt_is_marked_and_keeps_its_producers_number() -> None:
    """By producer and number a subscriber knows the copy: without them it would process both (A-5)."""
    own: dict[Symbol, object] = {
        Symbol("x-opt-topic-producer"): "p@5",
        Symbol("x-opt-topic-seq"): ULong(7),
        Symbol("x-opt-topic-transaction"): "continue",
        Symbol("x-opt-topic-delivery-hash"): "ab",
        Symbol("a"): 1,
    }
    message = section(0x72, own) + BODY + FOOTER
    marked = mark_in_doubt(message)
    assert read_annotations(marked) == own | {Symbol("x-opt-topic-in-doubt"): True}
    assert marked.endswith(BODY + FOOTER)
    assert mark_in_doubt(marked) == marked
    assert read_annotations(mark_in_doubt(BODY)) == {"x-opt-topic-in-doubt": True}


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (b"", Header(delivery_count=3)),
        (section(0x70, []), Header(delivery_count=3)),
        (section(0x70, [True, UByte(9)]), Header(True, 9, None, False, 3)),
        (encode_message(Message(b"", header=Header(True, 9, 1000, True, 7)))[:-5], Header(True, 9, 1000, True, 3)),
        (b"\x00\xa3\x10amqp:header:list\xd0\x00\x00\x00\x05\x00\x00\x00\x01\x41", Header(True, delivery_count=3)),
    ],
)
def test_the_delivery_count_is_written_and_the_rest_of_the_header_kept(header: bytes, expected: Header) -> None:
    rest = section(0x72, {Symbol("a"): 1}) + BODY
    counted = set_delivery_count(header + rest, 3)
    assert decode_message(counted).header == expected
    assert counted.endswith(rest)


def test_header_fields_of_a_later_version_survive_a_new_delivery_count() -> None:
    header = section(0x70, [True, None, None, None, None, "later"])
    assert (
        set_delivery_count(header + BODY, 1) == b"\x00\x53\x70\xc0\x0e\x06\x41\x40\x40\x40\x52\x01\xa1\x05later" + BODY
    )


HEADER = section(0x70, [])
ANNOTATIONS = section(0x72, {})
MALFORMED = {
    "nothing": b"",
    "one byte": b"\x00",
    "no section": b"x" * 100,
    "header twice": HEADER + HEADER + BODY,
    "annotations twice": ANNOTATIONS + ANNOTATIONS + BODY,
    "annotations in front of the header": ANNOTATIONS + HEADER + BODY,
    "delivery annotations behind message annotations": ANNOTATIONS + section(0x71, {}) + BODY,
    "unknown section": b"\x00\x53\x7f\x45" + BODY,
    "performative": b"\x00\x53\x14\x45",
    "header cut short": HEADER[:3],
    "header without a count": b"\x00\x53\x70\xc0\x00" + BODY,
    "header longer than the message": b"\x00\x53\x70\xc0\xff\x00" + BODY,
    "described descriptor": b"\x00\x00\x53\x70\x45\x45" + BODY,
    "descriptor that is a string": b"\x00\xa1\x10amqp:header:list\x45" + BODY,
    "symbol longer than the message": b"\x00\xb3\xff\xff\xff\xffamqp",
}
MALFORMED_ANNOTATIONS = {
    "list": section(0x72, ["a", 1]) + BODY,
    "null": section(0x72, None) + BODY,
    "key without a value": b"\x00\x53\x72\xc1\x04\x01\xa3\x01a" + BODY,
    "entry longer than the map": b"\x00\x53\x72\xc1\x05\x02\xa3\x01a\xa1\x10" + BODY,
    "more entries than bytes": b"\x00\x53\x72\xd1\x00\x00\x00\x04\xff\xff\xff\xfe" + BODY,
    "bytes behind the entries": b"\x00\x53\x72\xc1\x06\x02\xa3\x01a\x40\x40" + BODY,
    "unknown format code": b"\x00\x53\x72\xc1\x05\x02\xa3\x01a\x57" + BODY,
}


@pytest.mark.parametrize("message", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_malformed_part_in_front_of_the_bare_message_is_refused(message: bytes) -> None:
    for change in (
        lambda: splice_annotations(message, OURS, COUNT),
        lambda: mark_redelivered(message),
        lambda: set_delivery_count(message, 1),
        lambda: read_annotations(message),
    ):
        with pytest.raises(DecodeError):
            change()


@pytest.mark.parametrize("front", [HEADER, ANNOTATIONS, section(0x71, {}), b""], ids=bytes.hex)
@pytest.mark.parametrize("bare", [b"", FOOTER], ids=bytes.hex)
def test_a_message_without_a_body_gets_annotations(front: bytes, bare: bytes) -> None:
    if front or bare:
        spliced = splice_annotations(front + bare, OURS, COUNT)
        assert spliced == (HEADER if front == HEADER else b"") + OURS_SECTION + bare
        assert decode_message(set_delivery_count(mark_redelivered(spliced), 2)).body is None


def test_annotations_that_are_all_there_is_of_a_large_message_are_refused() -> None:
    """L-1: the beginning of a large message goes on alone, and what follows it is not looked at."""
    front = section(0x72, {Symbol("a"): bytes(MAX_FRONT_BYTES)})
    assert len(front) > LARGE_BYTES == MAX_FRONT_BYTES
    with pytest.raises(DecodeError, match="longer than 1048576 bytes"):
        splice_annotations(front, OURS, COUNT)
    assert splice_annotations(front + BODY, OURS, COUNT).endswith(BODY)


@pytest.mark.parametrize("message", MALFORMED_ANNOTATIONS.values(), ids=MALFORMED_ANNOTATIONS.keys())
def test_malformed_annotations_are_refused(message: bytes) -> None:
    for change in (
        lambda: splice_annotations(message, OURS, COUNT),
        lambda: mark_redelivered(message),
        lambda: read_annotations(message),
    ):
        with pytest.raises(DecodeError):
            change()


@pytest.mark.parametrize(
    "header", [section(0x70, {}), b"\x00\x53\x70\xc0\x01\x05", b"\x00\x53\x70\xc0\x03\x01\x40\x40"]
)
def test_a_malformed_header_takes_no_delivery_count(header: bytes) -> None:
    with pytest.raises(DecodeError):
        set_delivery_count(header + BODY, 1)


ENTRIES = st.dictionaries(
    st.one_of(
        st.text(st.characters(codec="ascii"), max_size=30).map(Symbol),
        st.sampled_from(["x-opt-topic-tag", "x-opt-topic-other", "x-opt-topi", "x-opt-delivery-time"]).map(Symbol),
        st.integers(0, 2**64 - 1).map(ULong),
    ),
    st.one_of(st.none(), st.integers(-5, 500), st.binary(max_size=200), st.lists(st.booleans(), max_size=3)),
    max_size=6,
)


@settings(deadline=None)
@given(ENTRIES, st.booleans(), st.booleans(), st.binary(max_size=50))
def test_splicing_equals_decoding_changing_and_encoding(
    entries: dict[object, object], with_header: bool, with_delivery_annotations: bool, rest: bytes
) -> None:
    message = (
        (HEADER if with_header else b"")
        + (section(0x71, {Symbol("d"): 1}) if with_delivery_annotations else b"")
        + section(0x72, entries)
        + BODY
        + rest
    )
    kept = {k: v for k, v in entries.items() if not (isinstance(k, str) and k.startswith("x-opt-topic-"))}
    expected = (HEADER if with_header else b"") + section(0x72, kept | OURS_DECODED) + BODY + rest
    assert splice_annotations(message, OURS, COUNT) == expected


def test_mutated_messages_are_spliced_or_refused_and_stay_readable() -> None:
    rng = random.Random(3)
    sample = section(0x70, [True, UByte(9)]) + section(0x71, {Symbol("d"): 1})
    sample += section(0x72, {Symbol("x-opt-topic-tag"): b"forged", Symbol("kept"): [1, "b"]})
    spliced = 0
    for _ in range(20_000):
        data = bytearray(sample + BODY)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(sample))] = rng.choice((rng.randrange(256), 0x00, 0x53, 0x70, 0x72, 0x75, 0xFF))
        try:
            message = splice_annotations(bytes(data), OURS, COUNT)
        except DecodeError:
            continue
        spliced += 1
        assert message.endswith((BODY, OURS))  # the size of a section may have come to cover the body
        assert OURS in message
        again = splice_annotations(message, OURS, COUNT)  # what came out is well-formed
        assert again == message
    assert 1_000 < spliced < 19_000


KEYS = st.sampled_from(["x-opt-topic-publisher", "x-opt-journal-time", "x-stream-offset", "x-opt-mine"]).map(Symbol)
VALUES = st.one_of(st.text(max_size=300), st.integers(0, 9).map(ULong), st.just("x-stream-offset"))


@given(
    st.sampled_from([b"", section(0x70, [True]), section(0x70, []), section(0x71, {Symbol("a"): 1})]),
    st.none() | st.dictionaries(KEYS, VALUES, max_size=4),
    st.sampled_from([b"", BODY, BODY + FOOTER, section(0x73, ["id"]) + BODY, FOOTER]),
)
def test_added_annotations_are_those_of_the_long_way(
    front: bytes, annotations: dict[Symbol, object] | None, behind: bytes
) -> None:
    message = front + (b"" if annotations is None else section(0x72, annotations)) + behind
    dropped = (b"x-stream-offset", b"x-opt-journal-")
    added = encode(Symbol("x-stream-offset")) + encode(ULong(7))
    if message:
        assert add_annotations(message, dropped, added, 1) == replace_annotations(message, dropped, added, 1)
    else:
        with pytest.raises(DecodeError):
            add_annotations(message, dropped, added, 1)
