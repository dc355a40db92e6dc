"""What a router changes in a repeated delivery: what it must, and counted for those who may have had it (3.2.1)."""

from __future__ import annotations

import pytest

from delivery_records.model.effects import Deliver, DeliverPart
from delivery_records.model.parts import Part
from oncewire.wire import (
    Header,
    Long,
    Message,
    Modified,
    Symbol,
    Timestamp,
    UInt,
    decode_message,
    encode,
    encode_message,
    read_annotations,
)
from router.clients.delivery_states import next_attempt
from router.clients.message_edits import Annotator, edit_for_attempt


class Nobody:
    """Nobody can log in."""

    has_logins = False


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


OURS = ("x-opt-topic-user", "x-opt-topic-publisher", "x-opt-topic-session", "x-opt-topic-x", "x-opt-dead-letter-topic")


@pytest.mark.parametrize("as_symbol", [True, False], ids=["symbol", "string"])
@pytest.mark.parametrize("is_large", [False, True], ids=["whole", "in parts"])
def test_what_modified_adds_replaces_no_annotation_of_a_router(as_symbol: bool, is_large: bool) -> None:  # I-1b
    plain = encode_message(Message(body=b"body"))
    message = Annotator(Nobody()).annotate(plain, "box/till", b"1", 7, "ann")
    before = read_annotations(message)
    kind = Symbol if as_symbol else str
    changes = {encode(kind(name)): encode("forged") for name in OURS}
    changes[encode(Symbol("x-opt-note"))] = encode("kept")
    if is_large:
        effect: Deliver | DeliverPart = DeliverPart(1, b"tag", message, Part.FIRST, attempt=1, annotations=changes)
    else:
        effect = Deliver(1, b"tag", message, attempt=1, annotations=changes)
    assert read_annotations(edit_for_attempt(effect, message)) == {**before, "x-opt-note": "kept"}
    assert before["x-opt-topic-user"] == "ann"


@pytest.mark.parametrize(
    ("given", "delay_ms"),
    [
        ({"x-opt-delivery-delay": UInt(40)}, 40),
        ({"x-opt-delivery-time": Timestamp(1_040)}, 40),
        ({"x-opt-delivery-time": Long(1_040)}, 40),
        ({"x-opt-delivery-time": Timestamp(900)}, 0),
        ({"x-opt-delivery-time": Timestamp(5_000), "x-opt-delivery-delay": UInt(40)}, 40),
        ({"x-opt-delivery-time": "soon"}, None),
        ({"x-opt-delivery-time": True}, None),
        ({}, None),
    ],
    ids=str,
)
def test_modified_says_when_the_next_attempt_is_wanted_and_adds_no_name_of_routers(
    given: dict[str, object], delay_ms: int | None
) -> None:
    annotations = {Symbol(name): value for name, value in given.items()}
    forged = {Symbol("x-opt-topic-user"): "forged", Symbol("x-opt-note"): "kept"}
    state = Modified(delivery_failed=True, message_annotations={**annotations, **forged})
    assert next_attempt(state, 1_000) == ({encode(Symbol("x-opt-note")): encode("kept")}, delay_ms)
