"""What the filters of a subscription may do for one message is counted, and ends (E-9): steps, not time."""

from __future__ import annotations

import pytest

from oncewire.filters.errors import FilterError
from oncewire.filters.filter_set import canonical_text, compile_text
from oncewire.filters.like import compile_like
from oncewire.filters.limits import CHARS_A_STEP, MAX_LIKES, MAX_STEPS
from oncewire.filters.sections import MessageSections, TooCostly
from oncewire.wire import Message, encode_message
from oncewire.wire.message import Properties
from oncewire.wire.types import Described, Symbol
from oncewire.wire.vocabulary import SELECTOR_FILTER

ENDLESS = 10**9
LONG = "a" * 32_000


def asked(*selectors: str) -> str:
    wanted = {Symbol(f"s{number}"): Described(SELECTOR_FILTER, text) for number, text in enumerate(selectors)}
    return canonical_text(wanted)


def sections(text: str = LONG) -> MessageSections:
    message = Message(b"", properties=Properties(message_id=b"m"), application_properties={"a": text})
    return MessageSections(encode_message(message), 0)


@pytest.mark.parametrize("pattern", ["%a_" * 80 + "b", "%_a" * 80 + "b%", "%aaaaaaaaab%", "_%" * 100 + "b%c"])
def test_the_steps_of_like_are_proportional_to_the_string(pattern: str) -> None:
    """Going back at each `%`, as regular expressions do, would take longer than anybody lives."""
    counted = sections()
    counted.steps_left = ENDLESS
    assert not compile_like(pattern, "")(LONG, counted)
    assert ENDLESS - counted.steps_left <= len(LONG)


def test_a_filter_ends_at_its_steps_and_its_message_does_not_match() -> None:
    test = compile_text(asked(" OR ".join(f"a LIKE '%b_{number}%'" for number in range(MAX_LIKES)))).test
    assert test is not None
    opened = sections()
    with pytest.raises(TooCostly):
        test(opened)
    assert -1 <= opened.steps_left <= 0, "not a character is read that is not paid for"


@pytest.mark.parametrize("selector", ["NOT a LIKE '%b_%b_%'", "a LIKE '%b_%' OR TRUE", "a NOT LIKE '%b_%'"])
def test_whatever_the_rest_of_a_selector_says_a_message_beyond_the_steps_does_not_match(selector: str) -> None:
    test = compile_text(asked(selector)).test
    assert test is not None
    opened = sections()
    with pytest.raises(TooCostly):
        test(opened)
    with pytest.raises(TooCostly):
        test(opened)
    with pytest.raises(TooCostly):
        test(sections())


def test_each_subscription_has_its_own_steps_for_a_message() -> None:
    costly, plain = compile_text(asked("a LIKE '%b_%'")).test, compile_text(asked("a LIKE '%a%a%'")).test
    assert costly is not None
    assert plain is not None
    opened = sections()
    with pytest.raises(TooCostly):
        costly(opened)
    assert plain(opened)
    assert opened.steps_left == MAX_STEPS


def test_what_is_searched_in_one_go_is_counted_too() -> None:
    test = compile_text(asked("a LIKE '%b%'")).test
    assert test is not None
    opened = sections()
    assert not test(opened)
    assert opened.steps_left == MAX_STEPS - len(LONG) // CHARS_A_STEP


def test_a_long_message_id_is_not_written_again_and_again_without_end() -> None:
    names = " OR ".join(["JMSMessageID = 'x'"] * 120)
    test = compile_text(asked(names)).test
    assert test is not None
    message = Message(b"", properties=Properties(message_id=b"m" * 32_000))
    opened = MessageSections(encode_message(message), 0)
    with pytest.raises(TooCostly):
        test(opened)


def test_the_limits_of_selectors_hold_for_all_of_a_link_together() -> None:
    with pytest.raises(FilterError, match=r"24 LIKE, more than 16"):
        asked(*(f"a LIKE '{number}_' OR a LIKE '%x' OR a LIKE '%{number}'" for number in range(8)))
    with pytest.raises(FilterError, match=r"more than 512 words and signs"):
        asked(*(" OR ".join(f"a = {number}{each}" for each in range(20)) for number in range(8)))
    with pytest.raises(FilterError, match=r"characters, more than 4096"):
        asked(*(f"a = '{number}{'x' * 600}'" for number in range(8)))
    assert asked(*(f"a LIKE '%{number}' AND b LIKE '_{number}'" for number in range(8)))


def test_an_ordinary_message_takes_16_like_with_any_character() -> None:
    test = compile_text(asked(" OR ".join(f"a LIKE '%b_{number}%'" for number in range(MAX_LIKES)))).test
    assert test is not None
    assert not test(sections("a" * 500))
    assert test(sections("a" * 500 + "b.7."))
