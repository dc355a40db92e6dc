"""Where a message's trace context stands, and that writing it leaves the bare message alone."""

from __future__ import annotations

import pytest

from oncewire.wire import Message, Symbol, decode_message, encode_message
from router.operator.trace_context import QUICK_LOOK_BYTES, TraceContext, parse, read_context, with_context

TRACE, SPAN = 0x4BF92F3577B34DA6A3CE929D0E0E4736, 0x00F067AA0BA902B7
TEXT = f"00-{TRACE:032x}-{SPAN:016x}-01"
CONTEXT = TraceContext(TRACE, SPAN, True)
OTHER = TraceContext(7, 8, False)


def encoded(annotation: object = None, application_property: object = None) -> bytes:
    message = Message(b"body")
    if annotation is not None:
        message.annotations = {Symbol("a"): 1, Symbol("traceparent"): annotation, Symbol("z"): [1, 2]}
    if application_property is not None:
        message.application_properties = {"first": "x" * 300, "traceparent": application_property}
    return bytes(encode_message(message))


def test_a_context_reads_as_it_was_written() -> None:
    assert parse(TEXT) == CONTEXT
    assert CONTEXT.text() == TEXT
    assert parse(OTHER.text()) == OTHER


def test_a_later_version_may_have_more_fields_and_other_flags() -> None:
    assert parse(f"cc-{TRACE:032x}-{SPAN:016x}-03-what-comes-then") == CONTEXT


@pytest.mark.parametrize(
    "text",
    [
        None,
        17,
        b"00",
        "",
        TEXT.upper(),
        TEXT + "-more",
        TEXT[:-1],
        f"ff-{TRACE:032x}-{SPAN:016x}-01",
        f"00-{0:032x}-{SPAN:016x}-01",
        f"00-{TRACE:032x}-{0:016x}-01",
    ],
)
def test_a_malformed_context_is_none(text: object) -> None:
    assert parse(text) is None


def test_the_annotation_goes_before_the_application_property() -> None:
    assert read_context(encoded(TEXT, OTHER.text()), also_properties=True) == CONTEXT
    assert read_context(encoded(OTHER.text(), TEXT), also_properties=True) == OTHER


def test_the_application_property_is_read_only_where_it_is_asked_for() -> None:
    assert read_context(encoded(None, TEXT), also_properties=True) == CONTEXT
    assert read_context(encoded(None, TEXT), also_properties=False) is None


def test_a_malformed_annotation_leaves_the_application_property() -> None:
    assert read_context(encoded("nonsense", TEXT), also_properties=True) == CONTEXT


def test_a_message_that_ends_anywhere_is_read_without_a_fault() -> None:
    whole = encoded(TEXT, TEXT)
    for size in range(len(whole)):
        assert read_context(whole[:size], also_properties=True) in (None, CONTEXT)


def test_a_context_is_found_in_messages_of_any_size() -> None:
    for size in (0, QUICK_LOOK_BYTES, 10 * QUICK_LOOK_BYTES):
        for properties in ({}, {"traceparent": TEXT}):
            message = bytes(encode_message(Message(b"x" * size, application_properties=dict(properties))))
            assert read_context(message, also_properties=True) == (CONTEXT if properties else None)


def test_garbage_has_no_context() -> None:
    for first in range(256):
        assert read_context(bytes([0, 0x53, 0x72, first, 4, 2, 0xA3, 1, 97]), also_properties=True) is None
    assert read_context(b"", also_properties=True) is None


def test_writing_replaces_the_annotation_and_copies_everything_else() -> None:
    before = decode_message(encoded(TEXT, TEXT))
    after = decode_message(with_context(encoded(TEXT, TEXT), OTHER))
    assert after.annotations == {**before.annotations, Symbol("traceparent"): OTHER.text()}
    assert after.application_properties == before.application_properties
    assert after.body == before.body


def test_writing_adds_the_section_where_there_is_none() -> None:
    bare = encoded()
    written = with_context(bare, CONTEXT)
    assert written.endswith(bare)
    assert read_context(written, also_properties=False) == CONTEXT


def test_a_malformed_message_stays_as_it_is() -> None:
    assert with_context(b"nonsense", CONTEXT) == b"nonsense"
