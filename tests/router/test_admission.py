"""Connections that do not say who they are leave room for those that do, whatever address they come from."""

from __future__ import annotations

import dataclasses

import pytest

from oncewire.transport.admission_core import PATIENCE_S, Admission, group_of
from router.process.admission import shares
from router.settings.config import RouterConfig

TIME_S = 10.0
LATER = PATIENCE_S + 0.1


def filled(most: int, *, keeps_known: bool = False) -> Admission:
    """Half of the places are taken by each of two addresses."""
    admission = Admission(most, TIME_S, keeps_known=keeps_known)
    for key in range(most):
        assert admission.arrive(key, "a" if key % 2 else "b", 0.0) is None
    return admission


def test_a_silent_connection_gives_its_place_to_a_newcomer() -> None:
    admission = filled(10)
    assert admission.arrive(10, "honest", LATER) == 0
    assert admission.has(10)
    assert not admission.has(0)
    assert (admission.count, admission.closed, admission.refused) == (10, 1, 0)


def test_the_address_that_has_most_gives_way() -> None:
    admission = filled(10)
    for number in range(4):
        admission.arrive(10 + number, f"honest-{number}", LATER)
    assert all(admission.has(10 + number) for number in range(4))
    admission.leave(10)
    assert admission.arrive(20, "honest-4", 2 * LATER) is None
    assert admission.arrive(21, "honest-5", 2 * LATER) in (4, 5), "of one that has three"


def test_one_address_has_half_of_the_places_and_harms_itself_alone() -> None:
    admission = Admission(10, TIME_S)
    for key in range(5):
        assert admission.arrive(key, "a", 0.0) is None
    assert admission.arrive(5, "a", 0.0) == 5, "those that are young are left alone"
    assert admission.arrive(6, "b", 0.0) is None
    assert admission.arrive(7, "a", LATER) == 0
    assert admission.refused == 1


def test_a_connection_that_is_known_needs_no_place() -> None:
    admission = filled(10)
    admission.know(3)
    assert not admission.has(3)
    assert admission.arrive(10, "c", 0.0) is None
    admission.leave(3)
    assert admission.count == 10


def test_where_known_ones_keep_their_places_silent_ones_give_way_first() -> None:
    admission = filled(4, keeps_known=True)
    admission.know(0)
    assert admission.count == 4
    assert admission.arrive(10, "b", LATER) == 2
    assert admission.has(0)
    admission.know(10)
    assert admission.arrive(11, "b", 2 * LATER) == 0, "the one that is known for longest"


def test_who_says_nothing_in_time_is_closed_and_who_is_known_is_not() -> None:
    admission = Admission(10, TIME_S, keeps_known=True)
    for key, since in ((0, 0.0), (1, 0.0), (2, 5.0)):
        admission.arrive(key, "a", since)
    admission.know(1)
    assert admission.overdue(TIME_S - 0.1) == []
    assert admission.overdue(TIME_S) == [0]
    assert admission.overdue(TIME_S + 5.0) == [2]
    assert (admission.count, admission.closed) == (1, 2)


@pytest.mark.parametrize(
    ("host", "group"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("no address", "no address"),
    ],
)
def test_addresses_of_one_ipv6_network_count_as_one(host: str, group: str) -> None:
    assert group_of(host) == group


def test_settings_that_fit_get_what_they_ask_for() -> None:
    config = RouterConfig()
    found = shares(config, 20_000)
    assert not found.is_short
    assert found.clients >= config.max_connections
    assert (found.opening, found.http) == (config.max_opening, config.http_max_connections)


@pytest.mark.parametrize("limit", [64, 256, 1024, 4096])
def test_where_descriptors_are_short_each_listener_has_its_part(limit: int) -> None:
    found = shares(dataclasses.replace(RouterConfig(), max_connections=1_000_000), limit)
    assert found.is_short
    assert min(found.clients, found.opening, found.neighbours, found.http) >= 1
    if limit > 64:
        assert found.clients + found.opening + found.neighbours + found.http < limit
