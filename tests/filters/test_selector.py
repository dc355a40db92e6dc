"""Reading selectors: what is one, its canonical text, and how a wrong one is refused (Jakarta Messaging 3.8.1.1)."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncewire.filters.errors import FilterError
from oncewire.filters.limits import MAX_SELECTOR_CHARS, MAX_SELECTOR_DEPTH
from oncewire.filters.selector import RESERVED, read_selector
from oncewire.filters.syntax import (
    Between,
    Chain,
    Comparison,
    In,
    IsNull,
    Junction,
    Like,
    Literal,
    Name,
    Node,
    Not,
    Sign,
    write,
)

CANONICAL = {
    "color='red'": "color = 'red'",
    "a!=1 aNd NOT(b<2 or c Is Not Null)": "a <> 1 AND NOT (b < 2 OR c IS NOT NULL)",
    "x not between -1 and 2.5E3": "x NOT BETWEEN -1 AND 2500.0",
    "y in ('b','a','b')": "y IN ('a', 'b')",
    "phone LIKE '12%3' and w like '\\_%' escape '\\'": "phone LIKE '12%3' AND w LIKE '\\_%' ESCAPE '\\'",
    "orders = 1 OR android = true": "orders = 1 OR android = TRUE",
    "(a AND b) AND c": "(a AND b) AND c",
    "a+b*2-3 >= -c/(d-1)": "a + b * 2 - 3 >= - c / (d - 1)",
    "it = 'it''s'": "it = 'it''s'",
    "a = 0x1F OR b = 7L OR c = 7. OR d = .5f OR e = 5d": "a = 31 OR b = 7 OR c = 7.0 OR d = 0.5 OR e = 5.0",
    "größe > 3 AND amqp.subject = 'x' AND $x_1 = 2": "größe > 3 AND amqp.subject = 'x' AND $x_1 = 2",
    "a = -9223372036854775808": "a = -9223372036854775808",
}


@pytest.mark.parametrize("text", CANONICAL)
def test_equal_selectors_have_one_canonical_text(text: str) -> None:
    written = write(read_selector(text))
    assert written == CANONICAL[text]
    assert write(read_selector(written)) == written


WRONG = {
    "color =": "character 8 is the end; expected",
    "a = 'x": 'character 5 is "\'x"; a string ends with a single quote',
    "a = 1 2": "character 7 is '2'; expected * or /, + or -, AND, OR, the end",
    "AND": "character 1 is 'AND'",
    "like = 1": "character 1 is 'like = 1'",
    "a IN ()": "expected a string in single quotes",
    "a IN (1)": "expected a string in single quotes",
    "(a = 1": "expected",
    "5a = 1": "nothing of a selector begins so",
    "a = 1 AND 'b'": "a number or a string stands where a condition must be",
    "a + 1": "a number or a string stands where a condition must be",
    "a LIKE 'x!' ESCAPE '!'": "ends with its escape character",
    "a LIKE 'x' ESCAPE 'no'": "ESCAPE takes one character",
    "a = 9223372036854775808": "has more than 64 bits",
    "a = 1e999": "too large for a double",
    "JMSXDeliveryCount > 1": "JMSXDeliveryCount differs between the first and a repeated copy",
    "   ": "it is empty",
    "a" * (MAX_SELECTOR_CHARS + 1): "more than 4096",
    " OR ".join(["a"] * 300): "more than 512 words",
    "NOT " * (MAX_SELECTOR_DEPTH + 1) + "a": "nested deeper than 64",
    " OR ".join(["a LIKE '%b%'"] * 17): "17 LIKE, more than 16",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_selector_is_reported_the_place_and_what_to_do(text: str) -> None:
    with pytest.raises(FilterError) as raised:
        read_selector(text)
    assert WRONG[text] in str(raised.value)
    assert raised.value.condition == "amqp:invalid-field"
    assert len(str(raised.value)) < 350, "it must fit a small frame"


NAMES = st.from_regex(r"\A[a-z_$][a-z0-9_$]{0,5}(\.[a-z0-9]{1,3})?\Z").filter(lambda n: n.upper() not in RESERVED)
STRINGS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False).map(lambda f: f + 0.0)
)
VALUES: st.SearchStrategy[Node] = st.one_of(st.builds(Name, NAMES), st.builds(Literal, st.one_of(STRINGS, NUMBERS)))


def _numeric(parts: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    def chain(first: Node, rest: list[tuple[str, Node]], signs: str) -> Node:
        return Chain(first, tuple((signs[len(sign) % 2], operand) for sign, operand in rest))

    pairs = st.lists(st.tuples(st.sampled_from(["", "x"]), parts), min_size=1, max_size=2)
    signed = st.builds(Sign, st.sampled_from("+-"), parts.filter(lambda n: not isinstance(n, Literal)))
    return st.one_of(signed, st.builds(chain, parts, pairs, st.sampled_from(["+-", "*/"])))


OPERANDS = st.recursive(VALUES, _numeric, max_leaves=4)
LIKES = st.builds(Like, OPERANDS, STRINGS.filter(lambda s: "!" not in s), st.sampled_from(["", "!"]), st.booleans())
PREDICATES: st.SearchStrategy[Node] = st.one_of(
    st.builds(Comparison, st.sampled_from(["=", "<>", "<", "<=", ">", ">="]), OPERANDS, OPERANDS),
    st.builds(Between, OPERANDS, OPERANDS, OPERANDS, st.booleans()),
    st.builds(In, OPERANDS, st.sets(STRINGS, min_size=1, max_size=3).map(lambda s: tuple(sorted(s))), st.booleans()),
    LIKES,
    st.builds(IsNull, OPERANDS, st.booleans()),
    st.builds(Name, NAMES),
    st.builds(Literal, st.booleans()),
)
CONDITIONS = st.recursive(
    PREDICATES,
    lambda parts: st.one_of(
        st.builds(Not, parts),
        st.builds(Junction, st.sampled_from(["AND", "OR"]), st.lists(parts, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=6,
)


@given(CONDITIONS)
def test_what_is_written_is_read_as_what_it_was(node: Node) -> None:
    assert read_selector(write(node)) == node


@given(st.text(max_size=80) | st.text("()'=<>+-*/ aANDORNTLIKEBETWISU01.%_", max_size=200))
def test_whatever_is_sent_is_a_selector_or_a_clear_error(text: str) -> None:
    said = "selector: "
    try:
        node = read_selector(text)
    except FilterError as error:
        said = str(error)
    else:
        assert read_selector(write(node)) == node
    assert said.startswith("selector: ")


@pytest.mark.parametrize(
    "text", ["(" * 4096, "a=" * 2048, "-" * 4096, "NOT " * 1024, "a." * 2048, "'" * 4096, "1" * 4096, "0x" + "f" * 4000]
)
def test_hostile_selectors_are_refused_at_once(text: str) -> None:
    started = time.process_time()
    with pytest.raises(FilterError):
        read_selector(text)
    assert time.process_time() - started < 5.0, "a bound that only a loop without one exceeds"
