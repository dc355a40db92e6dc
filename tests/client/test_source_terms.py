"""What a subscriber asks of its source, and which attach replies grant it (SH-1, E-9)."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from oncewire.client import UsageError
from oncewire.client.source_terms import NAME, SourceTerms, Start, journal_terms, member_name, source_terms
from oncewire.wire import Described, Source, Symbol, Timestamp, ULong, vocabulary

ASKED = SourceTerms(selector="color = 'red'")
APPLIED = Described(Symbol("apache.org:selector-filter:string"), ASKED.selector)
SHARED = SourceTerms(is_shared=True)
GROUPED = SourceTerms(is_shared=True, by_group=True)


def test_a_subscriber_without_terms_asks_for_no_filter_and_needs_none() -> None:
    assert SourceTerms().filter is None
    assert SourceTerms().capabilities == (vocabulary.TOPIC,)
    assert SourceTerms().refused(Source(address="orders")) is None


def test_a_reply_that_states_what_was_asked_for_is_taken() -> None:
    assert ASKED.refused(Source(address="orders", filter=ASKED.filter)) is None
    assert SHARED.refused(Source(address="orders", capabilities=SHARED.capabilities)) is None
    assert GROUPED.refused(Source(address="orders", capabilities=GROUPED.capabilities)) is None


@pytest.mark.parametrize(
    "reply",
    [
        None,
        Source(address="orders"),
        Source(address="orders", filter={}),
        Source(address="orders", filter={Symbol("other"): APPLIED}),
        Source(address="orders", filter={NAME: ASKED.selector}),
        Source(address="orders", filter=SourceTerms(selector="color = 'blue'").filter),
    ],
)
def test_a_reply_without_it_is_not(reply: Source | None) -> None:
    """Such a router would send what the selector excludes, or every message to each of those that share."""
    refused = ASKED.refused(reply)
    assert refused is not None
    assert "selector" in refused[0]
    assert SHARED.refused(reply) is not None


def test_the_name_of_a_shared_subscription_stands_before_that_of_its_link() -> None:
    assert member_name("work", "in") == "work|in"
    assert member_name(None, "in") == "in"


@pytest.mark.parametrize("share", ["", "a|b"])
def test_a_name_that_cannot_be_reported_from_what_follows_is_refused(share: str) -> None:
    with pytest.raises(UsageError, match="choose another name"):
        member_name(share, "in")


def test_a_reply_that_does_not_say_that_groups_come_in_order_is_refused() -> None:  # SH-6
    refused = GROUPED.refused(Source(address="orders", capabilities=SHARED.capabilities))
    assert refused is not None
    assert "leave by_group out" in refused[1]


def test_the_order_of_groups_is_of_a_shared_subscription() -> None:
    with pytest.raises(UsageError, match="by_group is of a shared subscription"):
        source_terms(None, None, by_group=True)


@pytest.mark.parametrize(
    ("start", "stated"),
    [
        ("first", "first"),
        ("earliest", "first"),
        ("latest", "next"),
        (17, ULong(17)),
        (datetime(2026, 1, 31, 12, tzinfo=UTC).replace(tzinfo=None), Timestamp(1769860800000)),
        (datetime(2026, 1, 31, 12, 0, 0, 500, tzinfo=UTC), Timestamp(1769860800000)),
    ],
)
def test_a_reader_of_a_journal_states_a_place_a_position_or_a_time(start: Start, stated: object) -> None:
    (found,) = (journal_terms(start).filter or {}).values()
    assert isinstance(found, Described)
    assert (found.value, type(found.value)) == (stated, type(stated))


def test_a_reader_takes_the_position_that_the_answer_names_and_needs_one() -> None:
    asked = journal_terms("next")
    answer = Source(address="journal://orders", filter=asked.at(4).filter)
    assert asked.refused(answer) is None
    assert asked.at_place_of(answer) == asked.at(4)
    refused = asked.refused(Source(address="journal://orders"))
    assert refused is not None
    assert "no journal is behind it" in refused[0]
