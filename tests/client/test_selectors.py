"""The client's selector: what it asks for, and which replies say that it is applied (E-9)."""

from __future__ import annotations

import pytest

from oncewire.client import selectors
from oncewire.wire import Described, Source, Symbol

ASKED = "color = 'red'"
APPLIED = Described(Symbol("apache.org:selector-filter:string"), ASKED)


def test_a_subscriber_without_a_selector_asks_for_no_filter_and_needs_none() -> None:
    assert selectors.filter_of(None) is None
    assert selectors.is_applied(None, Source(address="orders"))


def test_a_reply_that_states_the_selector_is_taken() -> None:
    assert selectors.is_applied(ASKED, Source(address="orders", filter=selectors.filter_of(ASKED)))


@pytest.mark.parametrize(
    "reply",
    [
        None,
        Source(address="orders"),
        Source(address="orders", filter={}),
        Source(address="orders", filter={Symbol("other"): APPLIED}),
        Source(address="orders", filter={selectors.NAME: ASKED}),
        Source(address="orders", filter=selectors.filter_of("color = 'blue'")),
    ],
)
def test_a_reply_without_it_is_not(reply: Source | None) -> None:
    """Such a router would send what the selector excludes."""
    assert not selectors.is_applied(ASKED, reply)
