"""Which messages have the same identity (D-3): user and message-id, with its type."""

from __future__ import annotations

from uuid import UUID

import pytest

from oncewire.client.journal_records import MessageIdentity
from oncewire.client.message_identity import DIGEST_BYTES, identity_of
from oncewire.wire import Header, Message, Properties, Symbol, ULong, encode_message, vocabulary

SEVEN = UUID(int=7)
IDS = (ULong(7), SEVEN, b"7", "7", SEVEN.bytes, str(SEVEN), (7).to_bytes(8, "big"), ULong(8), "", b"")


def encoded(message_id: object, user: str | None = "ann", **fields: object) -> bytes:
    annotations: dict[Symbol, object] = {} if user is None else {vocabulary.USER: user}
    properties = Properties(message_id=message_id)  # type: ignore[arg-type]  # of any of its types
    return encode_message(Message(b"body", properties=properties, annotations=annotations, **fields))  # type: ignore[arg-type]  # as above


def identified(message_id: object, user: str | None = "ann", **fields: object) -> MessageIdentity:
    found = identity_of(encoded(message_id, user, **fields), 0)
    assert found is not None
    return found


def test_ids_of_different_type_or_value_differ() -> None:
    assert len({identified(each) for each in IDS}) == len(IDS)


@pytest.mark.parametrize("message_id", IDS)
def test_an_id_is_the_same_whatever_else_the_message_has(message_id: object) -> None:
    one = identified(message_id)
    assert one == identified(message_id, header=Header(durable=True, delivery_count=1))
    assert one.user == "ann"
    assert len(one.digest) == DIGEST_BYTES


def test_a_number_is_the_same_in_each_of_its_encodings() -> None:
    def with_id(octets: bytes) -> bytes:
        return b"\x00\x53\x73\xc0" + bytes([1 + len(octets), 1]) + octets + b"\x00\x53\x75\xa0\x00"

    forms = [with_id(octets) for octets in (b"\x44", b"\x53\x00", b"\x80" + bytes(8))]
    assert len({identity_of(form, 0) for form in forms}) == 1
    assert identity_of(forms[0], 0) == identified(ULong(0), None)


def test_the_user_is_part_of_it_and_is_empty_where_there_is_none() -> None:
    assert identified("7", "ann") != identified("7", "bob")
    assert identified("7", None).user == ""
    assert identified("7", vocabulary.ANONYMOUS) != identified("7", None)


def test_the_length_of_an_id_does_not_matter() -> None:
    assert identified("x" * 100_000) != identified("x" * 100_001)


@pytest.mark.parametrize(
    "payload",
    [
        encode_message(Message(b"body")),
        encode_message(Message(b"body", properties=Properties(subject="no id"))),
        encode_message(Message(b"body", annotations={vocabulary.USER: "ann"})),
        b"\x00\x53\x73\x45\x00\x53\x75\xa0\x00",
        b"\x00\x53\x73\xc0\x03\x01\x54\x07\x00\x53\x75\xa0\x00",
        b"\x00\x53\x73\xa1\x01a\x00\x53\x75\xa0\x00",
        b"",
        b"nothing of AMQP",
        encoded("7")[:20],
    ],
    ids=["no properties", "no id", "no list", "empty list", "an int", "a string", "empty", "rubbish", "cut off"],
)
def test_a_message_without_an_id_or_one_that_cannot_be_read_has_none(payload: bytes) -> None:
    assert identity_of(payload, 0) is None


def test_a_payload_of_another_format_has_none() -> None:
    assert identity_of(encoded("7"), 1) is None


def test_sections_are_read_up_to_the_properties() -> None:
    properties = b"\x00\x53\x73\xc0\x04\x01\xa1\x017"
    annotations = b"\x00\x53\x72\xc1\x01\x00"
    assert identity_of(properties + b"\x00\x53\x75\xa0\x00", 0) == identified("7", None)
    assert identity_of(annotations + properties + b"\x00\x53\x75\xa0\x00", 0) == identified("7", None)
    rest_is_broken = properties + b"\x00\x53\x74\xff"
    assert identity_of(rest_is_broken, 0) == identified("7", None)
