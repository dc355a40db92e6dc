"""The group of an AMQP message (SH-6)."""

from __future__ import annotations

import pytest

from oncewire.wire import Symbol
from oncewire.wire.message import Message, Properties, encode_message
from router.clients.message_groups import read_group

ANNOTATION = Symbol("x-opt-group-id")


MANY = [True] * 5000


def written(group_id: str | None = None, annotation: object = None) -> bytes:
    annotations: dict[Symbol, object] = {} if annotation is None else {ANNOTATION: annotation}
    return encode_message(Message(b"body", properties=Properties(group_id=group_id), annotations=annotations))


@pytest.mark.parametrize(
    ("message", "group"),
    [
        (written("ann"), b"ann"),
        (written("ann", "bob"), b"bob"),
        (written(None, Symbol("bob")), b"bob"),
        (written("ann", 7), None),
        (written(), None),
        (written(""), None),
        (encode_message(Message(b"body")), None),
        (b"no sections", None),
        (b"", None),
        (written("x" * 40_000), None),
        (written("ann", "x" * 40_000), None),
        (encode_message(Message(b"body", annotations={Symbol("a"): MANY, ANNOTATION: "ann"})), None),
    ],
    ids=[
        "group-id",
        "the annotation goes first",
        "a symbol",
        "no text",
        "none",
        "empty",
        "no properties",
        "malformed",
        "nothing",
        "properties of more than 32 KiB",
        "annotations of more",
        "more values than are read",
    ],
)
def test_the_group_is_the_annotation_or_the_group_id(message: bytes, group: bytes | None) -> None:
    assert read_group(message, 0) == group


def test_another_message_format_has_no_group() -> None:
    assert read_group(written("ann"), 1) is None
