"""From a source's filters to the text in a subscription's key, and back (AMQP 1.0 section 3.5.8; rule E-9)."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncewire.filters.errors import FilterError
from oncewire.filters.filter_set import canonical_text, compile_text, described
from oncewire.filters.limits import MAX_FILTER_TEXT
from oncewire.filters.sections import MessageSections
from oncewire.wire import Described, Symbol, UInt, ULong
from oncewire.wire.message import Message, Properties, encode_message
from oncewire.wire.types import Timestamp
from oncewire.wire.vocabulary import FILTER_CODES


def text_of(**filters: tuple[object, object]) -> str:
    return canonical_text({Symbol(name): Described(*pair) for name, pair in filters.items()})


def code(number: int) -> ULong:
    return ULong(number)


SELECTOR, NO_LOCAL, DIRECT, PATTERN = (code(0x0000_468C_0000_0000 + n) for n in (4, 3, 0, 1))
PROPERTIES, APPLICATION = code(0x173), code(0x174)


def chosen(text: str, message: Message) -> bool:
    test = compile_text(text).test
    assert test is not None
    return test(MessageSections(encode_message(message), 0))


def test_names_order_and_descriptor_form_do_not_matter() -> None:
    one = text_of(a=(SELECTOR, "x=1"), b=(NO_LOCAL, []))
    other = text_of(z=(FILTER_CODES[NO_LOCAL], "NoLocalFilter{}"), y=(FILTER_CODES[SELECTOR], "x = 1"))
    assert one == other == '[["no-local",true],["selector","x = 1"]]'


@pytest.mark.parametrize("asked", [None, {}, {Symbol("x"): None}])
def test_no_filter_is_none(asked: dict[Symbol, object] | None) -> None:
    assert canonical_text(asked) == ""


def test_all_filters_of_a_source_must_match() -> None:
    text = text_of(a=(SELECTOR, "x = 1"), b=(SELECTOR, "y = 2"), c=(DIRECT, "news"))
    message = Message(b"", properties=Properties(subject="news"), application_properties={"x": 1, "y": 2})
    assert chosen(text, message)
    message.application_properties["y"] = 3
    assert not chosen(text, message)


@pytest.mark.parametrize(
    ("pattern", "subject", "matches"),
    [
        ("*.stock.#", "usd.stock", True),
        ("*.stock.#", "eur.stock.db", True),
        ("*.stock.#", "stock.nasdaq", False),
        ("#", None, True),
        ("a", None, False),
        ("#.#.#.x", "a.b.c.x", True),
        ("#", ".".join("a" * 500), True),
        ("a.#", "a" + ".a" * 500, False),
    ],
)
def test_subject_patterns(pattern: str, subject: str | None, matches: bool) -> None:
    properties = None if subject is None else Properties(subject=subject)
    assert chosen(text_of(a=(PATTERN, pattern)), Message(b"", properties=properties)) is matches


ORDER = Message(
    b"",
    properties=Properties(
        message_id=5,
        user_id=b"u",
        to="to",
        subject="&x",
        correlation_id=UUID(int=3),
        content_type="text/plain",
        creation_time=77,
        group_sequence=9,
    ),
    application_properties={"region": "europe-west", "n": UInt(7), "flag": True, "sym": Symbol("s"), "none": None},
)
MATCHING: list[dict[object, object]] = [
    {"region": "europe-west"},
    {"region": "&p:europe"},
    {"region": "&s:west"},
    {"n": 7},
    {"n": 7.0},
    {"flag": True},
    {"region": None},
    {"none": None},
    {"sym": "s"},
    {"region": Symbol("europe-west")},
    {"region": "&p:", "n": 7},
]
OTHER: list[dict[object, object]] = [
    {"region": "europe"},
    {"region": "&p:west"},
    {"n": "7"},
    {"flag": 1},
    {"missing": None},
    {"n": True},
    {"region": Symbol("&p:europe")},
    {"region": "&&p:europe"},
    {"region": "&p:europe", "n": 8},
]


@pytest.mark.parametrize("fields", MATCHING)
def test_application_properties_that_equal_those_of_the_message(fields: dict[object, object]) -> None:
    assert chosen(text_of(a=(APPLICATION, fields)), ORDER)


@pytest.mark.parametrize("fields", OTHER)
def test_application_properties_that_do_not(fields: dict[object, object]) -> None:
    assert not chosen(text_of(a=(APPLICATION, fields)), ORDER)


def test_properties_of_each_type() -> None:
    fields: dict[object, object] = {
        Symbol("message-id"): ULong(5),
        Symbol("user-id"): b"u",
        Symbol("to"): "&p:t",
        Symbol("subject"): "&&x",
        Symbol("correlation-id"): UUID(int=3),
        Symbol("content-type"): Symbol("text/plain"),
        Symbol("creation-time"): Timestamp(77),
        Symbol("group-sequence"): UInt(9),
    }
    text = text_of(a=(PROPERTIES, fields))
    assert chosen(text, ORDER)
    assert not chosen(text, Message(b""))
    fields[Symbol("message-id")] = "5"
    assert not chosen(text_of(a=(PROPERTIES, fields)), ORDER)


REFUSED: list[tuple[object, object, str]] = [
    (Symbol("example:test"), "x", "filter f (example:test) is not offered"),
    (ULong(0x0000_468C_0000_0002), {}, "filter f (0x0000468c00000002) is not offered"),
    (SELECTOR, 5, "selector: the value is a int"),
    (SELECTOR, "a =", "selector: character 4 is the end"),
    (PROPERTIES, {}, "1 to 16 fields"),
    (PROPERTIES, {Symbol("colour"): "x"}, "colour is none of message-id"),
    (PROPERTIES, {Symbol("to"): 5}, "to takes a string"),
    (PROPERTIES, {Symbol("group-sequence"): "5"}, "group-sequence takes a number"),
    (PROPERTIES, {Symbol("message-id"): True}, "message-id takes a string, ulong, uuid or binary"),
    (APPLICATION, {"a": "&x"}, "begins with &"),
    (APPLICATION, {"a": [1]}, "is a list, which is not compared"),
    (APPLICATION, {5: 1}, "a key is a int"),
    (APPLICATION, {str(n): n for n in range(17)}, "1 to 16 fields"),
    (APPLICATION, {"a": float("inf")}, "is a float"),
    (PATTERN, "a." * 70, "more than 64 tokens"),
    (DIRECT, "x" * MAX_FILTER_TEXT, "make them shorter"),
    (DIRECT, "\ud800", "half of a surrogate pair"),
]


@pytest.mark.parametrize(("descriptor", "value", "said"), REFUSED, ids=[said for _, _, said in REFUSED])
def test_what_is_refused_and_why(descriptor: object, value: object, said: str) -> None:
    with pytest.raises(FilterError) as raised:
        text_of(f=(descriptor, value))
    assert said in str(raised.value)
    expected = "amqp:not-implemented" if "not offered" in said else "amqp:invalid-field"
    assert raised.value.condition == expected


def test_an_undescribed_value_is_not_offered() -> None:
    with pytest.raises(FilterError, match="filter plain is not offered"):
        canonical_text({Symbol("plain"): "a = 1"})


def test_nine_filters_are_too_many() -> None:
    with pytest.raises(FilterError, match="9 filters"):
        canonical_text({Symbol(str(n)): Described(SELECTOR, f"a = {n}") for n in range(9)})


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(codec="utf-8"), max_size=5).filter(lambda s: not s.startswith("&")),
    st.binary(max_size=5),
    st.uuids(),
    st.from_regex(r"\A[a-z]{1,5}\Z").map(Symbol),
)


@given(st.dictionaries(st.text(st.characters(codec="utf-8"), max_size=5), VALUES, min_size=1, max_size=4))
def test_the_text_describes_the_filter_that_it_came_from(fields: dict[str, object]) -> None:
    text = text_of(a=(APPLICATION, fields), b=(NO_LOCAL, []), c=(SELECTOR, "x = 1"), d=(DIRECT, "s"))
    assert canonical_text(described(text)) == text
    assert compile_text(text).no_local


def test_the_properties_of_a_look_up_are_described_with_their_types() -> None:
    text = text_of(a=(PROPERTIES, {Symbol("message-id"): ULong(5), Symbol("to"): "x"}))
    assert canonical_text(described(text)) == text


@given(
    st.text(max_size=30)
    | st.sampled_from(
        [
            "[]",
            "{}",
            "[[]]",
            '[["selector"]]',
            '[["selector",5]]',
            '[["selector","a ="]]',
            '[["new-kind",1]]',
            "[1]",
            '[["properties",5]]',
            '[["properties",{"x":1}]]',
            '[["application-properties",{"a":{"uuid":"x"}}]]',
            '[["application-properties",{"a":[1]}]]',
            '[["application-properties",{"a":{"b":{}}}]]',
            "[[[],1]]",
            "[[{},1]]",
            '[["subject",null]]',
            '[["no-local",1],["properties",{"message-id":{"binary":"zz"}}]]',
            "[" * 100_000,
        ]
    )
)
def test_a_text_that_nobody_here_wrote_is_refused_and_never_raises_anything_else(text: str) -> None:
    try:
        found = compile_text(text)
    except FilterError:
        return
    if found.test is not None:
        assert found.test(MessageSections(b"", 0)) in (True, False)
