"""What a router changes in a repeated delivery: what it must, and counted for those who may have had it (3.2.1)."""

from __future__ import annotations

import pytest

from delivery_records.effects import Deliver
from oncewire.wire import Header, Message, decode_message, encode_message, read_annotations
from router.clients.message_edits import edit_for_attempt


def delivery(header: Header | None = None, *, redelivered: bool = True, attempt: int = 0) -> Deliver:
    message = encode_message(Message(body=b"body", header=header))
    return Deliver(1, b"tag", message, redelivered=redelivered, attempt=attempt)


@pytest.mark.parametrize(("attempt", "counted"), [(0, 1), (1, 1), (3, 3)])
def test_a_repeat_to_a_subscriber_without_a_map_counts_as_an_attempt(attempt: int, counted: int) -> None:
    repeat = delivery(Header(durable=True, priority=7), attempt=attempt)
    edited = edit_for_attempt(repeat, repeat.message, counts_repeats=True)
    message = decode_message(edited)
    assert message.header == Header(durable=True, priority=7, delivery_count=counted)
    assert message.body == b"body"
    assert read_annotations(edited)["x-opt-topic-redelivered"] is True


def test_a_repeat_to_a_subscriber_with_a_map_is_marked_and_not_counted() -> None:
    repeat = delivery()
    edited = edit_for_attempt(repeat, repeat.message)
    assert decode_message(edited).header is None
    assert read_annotations(edited)["x-opt-topic-redelivered"] is True


def test_another_attempt_that_is_no_repeat_keeps_its_number() -> None:
    again = delivery(redelivered=False, attempt=2)
    edited = edit_for_attempt(again, again.message, counts_repeats=True)
    header = decode_message(edited).header
    assert header is not None
    assert header.delivery_count == 2
