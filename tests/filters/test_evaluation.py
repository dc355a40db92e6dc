"""What filters say of messages: SQL's three values, JMS names, LIKE, and messages that nobody can read."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncewire.filters.evaluation import compile_selector
from oncewire.filters.filter_set import canonical_text, compile_text
from oncewire.filters.like import compile_like
from oncewire.filters.sections import MessageSections
from oncewire.filters.selector import read_selector
from oncewire.wire import Described, Symbol, UInt, ULong
from oncewire.wire.message import Header, Message, Properties, encode_message
from oncewire.wire.types import AmqpArray, Decimal64, Timestamp
from oncewire.wire.vocabulary import SELECTOR_FILTER


def sections(message: Message) -> MessageSections:
    return MessageSections(encode_message(message), 0)


def is_chosen(selector: str, message: Message) -> bool:
    return compile_selector(read_selector(selector))(sections(message))


def with_properties(**properties: object) -> Message:
    return Message(b"body", application_properties=properties)


TRUTHS = {"t": True, "f": False, "u": None}
"""`u` is a property that the message does not have."""


@pytest.mark.parametrize(("one", "other"), [*itertools.product("tfu", repeat=2)])
def test_the_tables_of_and_or_and_not(one: str, other: str) -> None:
    message = with_properties(t=True, f=False)
    a, b = TRUTHS[one], TRUTHS[other]
    both = False if a is False or b is False else None if a is None or b is None else True
    either = True if a is True or b is True else None if a is None or b is None else False
    assert is_chosen(f"{one} AND {other}", message) is (both is True)
    assert is_chosen(f"NOT ({one} AND {other})", message) is (both is False)
    assert is_chosen(f"{one} OR {other}", message) is (either is True)
    assert is_chosen(f"NOT ({one} OR {other})", message) is (either is False)
    assert is_chosen(f"NOT {one}", message) is (a is False)


TRUE = (
    "age = 30",
    "age = 30.0",
    "age <> 31",
    "age BETWEEN 30 AND 30",
    "age NOT BETWEEN 31 AND 40",
    "age + 2 * 5 = 40",
    "(age - 1) / 2 = 14",
    "-age < 0",
    "+age = 30",
    "half * 2 = 1",
    "color IN ('red', 'blue')",
    "color NOT IN ('blue')",
    "color LIKE 'r_d'",
    "color NOT LIKE 'x%'",
    "missing IS NULL",
    "color IS NOT NULL",
    "flag",
    "flag = TRUE",
    "flag <> FALSE",
    "NOT age > 30",
    "color = 'red' AND age >= 30",
    "age NOT IN ('30')",
    "sym = 'symbol'",
    "when > 1000",
    "uuid = '00000000-0000-0000-0000-000000000007'",
    "-7 / 2 = -3",
    "age / 4.0 = 7.5",
    "letter = 'a'",
)
NOT_TRUE = (
    "age = '30'",
    "age <> '30'",
    "color <> 30",
    "color > 'a'",
    "flag > FALSE",
    "flag = 1",
    "missing = 1",
    "missing <> 1",
    "missing IN ('a')",
    "missing NOT IN ('a')",
    "missing LIKE '%'",
    "missing NOT LIKE '%'",
    "NOT missing = 1",
    "missing BETWEEN 1 AND 2",
    "missing NOT BETWEEN 1 AND 2",
    "age / 0 = 1",
    "age / 0 IS NOT NULL",
    "color + 1 = 1",
    "flag + 1 = 2",
    "-color IS NOT NULL",
    "age LIKE '3%'",
    "binary IS NOT NULL",
    "color",
    "age",
    "NOT color",
    "decimal IS NOT NULL",
    "array IS NOT NULL",
    "decimal = 0",
    "nan = nan",
    "Color = 'red'",
    "missing IS NOT NULL",
    "huge * huge * 1e300 * 1e300 < 0",
)
PERSON = with_properties(
    age=UInt(30),
    color="red",
    flag=True,
    half=0.5,
    sym=Symbol("symbol"),
    when=Timestamp(1500),
    uuid=UUID(int=7),
    binary=b"x",
    decimal=Decimal64(bytes(8)),
    array=AmqpArray(int, (1,)),
    nan=float("nan"),
    huge=2**62,
    letter="a",
)


@pytest.mark.parametrize("selector", TRUE)
def test_a_selector_that_is_true_chooses_the_message(selector: str) -> None:
    assert is_chosen(selector, PERSON)


@pytest.mark.parametrize("selector", NOT_TRUE)
def test_false_and_unknown_choose_nothing(selector: str) -> None:
    assert not is_chosen(selector, PERSON)


JMS = Message(
    b"",
    header=Header(durable=True, priority=7, ttl=5000),
    properties=Properties(
        message_id="m1",
        user_id=b"anna",
        subject="news",
        correlation_id=UUID(int=1),
        creation_time=1700,
        to="t",
        group_id="g",
        group_sequence=3,
        reply_to="r",
        content_type="text/plain",
        absolute_expiry_time=9000,
    ),
)


@pytest.mark.parametrize(
    "selector",
    [
        "JMSMessageID = 'ID:AMQP_NO_PREFIX:m1'",
        "JMSPriority = 7",
        "JMSDeliveryMode = 'PERSISTENT'",
        "JMSTimestamp = 1700",
        "JMSType = 'news'",
        "JMSXGroupID = 'g' AND JMSXGroupSeq = 3",
        "JMSXUserID = 'anna'",
        "JMSCorrelationID = 'ID:AMQP_UUID:00000000-0000-0000-0000-000000000001'",
        "JMSExpiration = 9000",
        "amqp.message_id = 'm1' AND amqp.subject LIKE 'n%' AND amqp.to = 't'",
        "amqp.durable AND amqp.ttl = 5000",
        "amqp.content_type = 'text/plain' AND amqp.reply_to = 'r' AND amqp.priority > 4",
    ],
)
def test_fields_are_named_as_jms_clients_know_them(selector: str) -> None:
    assert is_chosen(selector, JMS)


@pytest.mark.parametrize(
    "selector",
    [
        "JMSPriority = 4",
        "JMSDeliveryMode = 'NON_PERSISTENT'",
        "JMSMessageID IS NULL",
        "JMSType IS NULL",
        "NOT amqp.durable",
    ],
)
def test_a_message_without_sections_has_amqps_defaults(selector: str) -> None:
    assert is_chosen(selector, Message(b"x"))


@pytest.mark.parametrize(
    ("identifier", "known_as"),
    [
        ("ID:x", "ID:x"),
        (ULong(5), "ID:AMQP_ULONG:5"),
        (b"\xab", "ID:AMQP_BINARY:AB"),
        (UUID(int=2), f"ID:AMQP_UUID:{UUID(int=2)}"),
        ("x", "ID:AMQP_NO_PREFIX:x"),
    ],
)
def test_message_ids_of_every_type(identifier: str | bytes | UUID | int, known_as: str) -> None:
    assert is_chosen(f"JMSMessageID = '{known_as}'", Message(b"", properties=Properties(message_id=identifier)))


@given(st.text("ab_%!", max_size=7), st.text("ab_%!", max_size=9), st.sampled_from(["", "!"]))
def test_like_is_what_a_regular_expression_says(pattern: str, text: str, escape: str) -> None:
    expression, characters = "", iter(pattern)
    for character in characters:
        if character == escape:
            following = next(characters, None)
            if following is None:
                return  # no pattern
            expression += re.escape(following)
        else:
            expression += {"%": ".*", "_": "."}.get(character, re.escape(character))
    matches = re.fullmatch(expression, text, re.DOTALL) is not None
    assert compile_like(pattern, escape)(text, MessageSections(b"", 0)) is matches


def selector_test(selector: str) -> Callable[[MessageSections], bool]:
    test = compile_text(canonical_text({Symbol("s"): Described(SELECTOR_FILTER, selector)})).test
    assert test is not None
    return test


EVERYTHING = selector_test("a = 1 OR a <> 1 OR a IS NULL OR a IS NOT NULL")


@pytest.mark.parametrize(
    ("message", "message_format"),
    [
        (encode_message(Message(b"x")), 1),
        (b"", 7),
        (b"garbage", 0),
        (b"\x00\x53\x74\xff", 0),
        (b"\x00\x53\x74\x40" + b"\x00\x53\x74\x40", 0),
        (b"\x00\x53\x74\xa1\x01x", 0),
        (b"\x00\x53\x74" + b"\xc1\x03\x02\xa1\x05", 0),
        (encode_message(with_properties(a="x" * 40_000)), 0),
        (encode_message(with_properties(**{f"p{n}": None for n in range(5000)})), 0),
    ],
)
def test_what_cannot_be_read_matches_no_filter(message: bytes, message_format: int) -> None:
    assert not EVERYTHING(MessageSections(message, message_format))


@given(st.binary(max_size=60))
def test_no_message_makes_a_filter_raise(message: bytes) -> None:
    for head in (b"", b"\x00\x53\x74\xc1", b"\x00\x53\x73\xc0", b"\x00\x53\x70\xc0"):
        opened = MessageSections(head + message, 0)
        for test in TESTS:
            assert test(opened) in (True, False)


TESTS = [EVERYTHING, selector_test("JMSMessageID LIKE '%a_' OR JMSPriority > 3"), selector_test("JMSXUserID = 'a'")]


def test_the_body_is_never_read() -> None:
    """Behind the sections in front anything may follow: nothing of it is looked at."""
    front = encode_message(with_properties(a=1)).removesuffix(b"\x00\x53\x75\xa0\x04body")
    assert selector_test("a = 1")(MessageSections(front + b"\x00\x53\x75\xff\xff no binary", 0))
