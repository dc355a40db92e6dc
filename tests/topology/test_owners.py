"""Who owns a subscription, as its name shows."""

from __future__ import annotations

import pytest

from oncewire.client.journals import random_container_id
from topology.inspector.owners_core import CLIENT, FEED, JOURNAL, MEMBER, NAMED_BY_TOPIC, RANDOM, owner_of


@pytest.mark.parametrize(
    ("name", "topic", "kind"),
    [
        ("edge-0123456789abcdef/feed", "orders", FEED),
        ("edge-0123456789abcdef/journal", "orders.#", JOURNAL),
        ("edge-0123456789abcdef/feed", "feed", FEED),
        ("workqueue/feed", "orders", CLIENT),
        ("billing/orders", "orders", NAMED_BY_TOPIC),
        ("host.flights/orders/eu", "orders/eu", NAMED_BY_TOPIC),
        ("store/all", "orders", CLIENT),
    ],
)
def test_the_owner_of_a_subscription_is_known_by_its_name(name: str, topic: str, kind: str) -> None:
    owner = owner_of(name, topic)
    assert (owner.kind, owner.command) == (kind, f"oncewire manage delete subscription {name}")


def test_a_program_without_a_name_of_its_own_is_known_by_its_random_container_id() -> None:
    assert owner_of(f"{random_container_id()}/sub-0123456789abcdef", "orders").kind == RANDOM


def test_a_member_is_known_by_its_subscription_and_a_name_is_quoted_for_the_shell() -> None:
    owner = owner_of("my store/all's|2", "orders", "my store/all")
    assert owner.kind == MEMBER
    assert owner.command == """oncewire manage delete subscription 'my store/all'"'"'s|2'"""
