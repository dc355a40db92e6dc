"""Topics and patterns, against a pattern matcher that tries everything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delivery_records.model.topics import (
    MAX_TOKENS,
    MAX_TOPIC_BYTES,
    TopicError,
    check_pattern,
    check_topic,
    is_pattern,
    matches,
)

WORDS = st.sampled_from(["a", "b", "ab", ""])
PARTS = st.lists(st.one_of(WORDS, st.sampled_from(["*", "#"])), min_size=1, max_size=7)
TOPIC = st.lists(WORDS, min_size=1, max_size=7)
SEPARATOR = st.sampled_from([".", "/"])


def _matches_by_trying(pattern: list[str], topic: list[str]) -> bool:
    if not pattern:
        return not topic
    head, rest = pattern[0], pattern[1:]
    if head == "#":
        return any(_matches_by_trying(rest, topic[skipped:]) for skipped in range(len(topic) + 1))
    return bool(topic) and head in ("*", topic[0]) and _matches_by_trying(rest, topic[1:])


def test_half_of_a_surrogate_pair_is_no_topic() -> None:
    """It cannot be written as UTF-8; JSON and URLs can bring it."""
    with pytest.raises(TopicError, match="UTF-8"):
        check_topic("orders\ud800")


@given(PARTS, TOPIC, SEPARATOR, SEPARATOR)
def test_a_pattern_matches_what_trying_everything_matches(
    pattern: list[str], topic: list[str], one: str, other: str
) -> None:
    if not any(part in ("*", "#") for part in pattern):
        other = one  # without a wildcard a topic is just its name
    assert matches(one.join(pattern), other.join(topic)) == _matches_by_trying(pattern, topic)


@pytest.mark.parametrize(
    ("pattern", "topic", "expected"),
    [
        ("orders", "orders", True),
        ("orders", "order", False),
        ("orders.*", "orders.eu", True),
        ("orders.*", "orders", False),
        ("orders.*", "orders.eu.berlin", False),
        ("orders.#", "orders", True),
        ("orders.#", "orders.eu.berlin", True),
        ("#", "anything/at/all", True),
        ("#.berlin", "orders.eu.berlin", True),
        ("orders.*x", "orders.yx", False),
        ("orders/*", "orders.eu", True),
    ],
)
def test_examples(pattern: str, topic: str, expected: bool) -> None:
    assert matches(pattern, topic) is expected


def test_a_star_inside_a_word_is_no_wildcard() -> None:
    assert not is_pattern("a*b")
    check_topic("a*b")
    assert matches("a*b", "a*b")


@pytest.mark.parametrize(
    "topic", ["", "x" * (MAX_TOPIC_BYTES + 1), "\u00e4" * 128, "a.*/b", ".".join("a" * (MAX_TOKENS + 1))]
)
def test_what_cannot_be_used_is_refused_with_a_reason(topic: str) -> None:
    with pytest.raises(TopicError, match=r"topic|pattern"):
        check_pattern(topic)


@pytest.mark.parametrize("topic", ["a.*", "#", "*"])
def test_nobody_publishes_to_a_pattern(topic: str) -> None:
    check_pattern(topic)
    with pytest.raises(TopicError, match="wildcard"):
        check_topic(topic)


def test_the_longest_allowed_is_allowed() -> None:
    check_topic("x" * MAX_TOPIC_BYTES)
    check_topic(".".join("a" * MAX_TOKENS))
    check_topic("a.b/c")


def test_many_hashes_cost_little() -> None:
    assert not matches(".".join(["#"] * 15 + ["z"]), ".".join("a" * 16))
