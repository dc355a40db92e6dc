"""A link that another connection of the same container attaches is stolen (2.6.1, A-8, E-7, I-7)."""

from __future__ import annotations

import pytest

from delivery_records.model.limits import STEALS
from oncewire.wire import RELEASED, AmqpError, Attach, Detach, Disposition, Flow
from oncewire.wire.errors import RESOURCE_LOCKED, STOLEN
from tests.conformance.peer import Peer
from tests.conformance.resuming import (
    EVERYBODY,
    EVERYWHERE,
    SERVED,
    Client,
    Ending,
    Kind,
    Network,
    Place,
    accepted,
    answer,
    pair,
    passes,
    settle,
    settled,
    taken,
)

SUBSCRIBER, PUBLISHER = True, False
ROLES = pytest.mark.parametrize("role", [SUBSCRIBER, PUBLISHER], ids=["subscriber", "publisher"])


def _attach(client: Client, role: bool) -> Attach:
    return client.subscribe({}) if role is SUBSCRIBER else client.publish({})


def _robbed(peer: Peer, by: Peer) -> None:
    """The router detaches its link, not closed, and names the connection that has it now."""
    found = peer.expect(Detach, Flow, Disposition)
    assert found.error is not None
    assert (bool(found.closed), found.error.condition) == (False, STOLEN)
    assert by.address in (found.error.description or "")


@EVERYWHERE
@EVERYBODY
def test_a_subscriber_goes_on_at_the_thief_and_what_the_holder_still_states_is_ignored(
    network: Network, kind: Kind, place: Place
) -> None:
    reader, publisher = pair(network, reader=kind)
    holder = reader.peer
    number = publisher.peer.transfer(b"message", delivery_tag=b"message")
    had = taken(holder)
    thief = reader.connect(place)
    assert reader.subscribe({had.tag: None}).unsettled == {had.tag: None}
    _robbed(holder, thief)
    answer(holder, had)
    holder.sync()
    resumed = taken(thief)
    assert (resumed.tag, resumed.frames[0].resume) == (had.tag, True)
    answer(thief, resumed, RELEASED)
    again = taken(thief)
    assert (again.tag, bool(again.frames[0].resume)) == (had.tag, False), "it was not done yet"
    answer(thief, again)
    accepted(publisher.peer, number)
    settled(thief, again)


@SERVED
def test_a_publisher_goes_on_at_the_thief_and_what_the_holder_still_sends_is_ignored(
    network: Network, kind: Kind, place: Place
) -> None:
    reader, publisher = pair(network, publisher=kind)
    holder = publisher.peer
    holder.transfer(b"message", delivery_tag=b"message")
    had = taken(reader.peer)
    thief = publisher.connect(place)
    assert publisher.publish({b"message": None}).unsettled == ({} if kind is Kind.CAPABILITY else {b"message": None})
    _robbed(holder, thief)
    holder.transfer(b"late", delivery_tag=b"late")
    settle(holder, 0)
    holder.sync()
    number = thief.transfer(b"message", delivery_tag=b"message")
    answer(reader.peer, had)
    accepted(thief, number)
    settled(reader.peer, had)
    passes(thief, reader.peer, b"next", b"next")


@EVERYWHERE
@ROLES
def test_two_that_steal_from_each_other_are_stopped_and_both_are_named(
    network: Network, role: bool, place: Place
) -> None:
    client = network.client()
    places = [Place.SAME_ROUTER, place]
    peers: list[Peer] = []
    seen = dict.fromkeys(Place, 0)
    while seen[at := places[len(peers) % 2]] < STEALS:
        peers.append(client.connect(at))
        _attach(client, role)
        if len(peers) > 1:
            seen[places[len(peers) % 2]] += 1
            _robbed(peers[-2], peers[-1])
    refused = client.connect(at)
    client.send_attach(role, unsettled={})
    error = refused.refused()
    assert error.condition == RESOURCE_LOCKED
    robbed, holder = peers[-2:]
    assert {robbed.address, holder.address} <= set(_words(error))
    holder.sync()
    client.peer = holder
    assert holder.detach().error is None, "the last one keeps the link"


def _words(error: AmqpError) -> list[str]:
    return (error.description or "").replace(";", " ").split()


@EVERYWHERE
def test_two_links_of_one_name_and_different_roles_do_not_steal(network: Network, place: Place) -> None:
    client = network.client()
    reader = client.connect()
    client.subscribe({})
    publisher = client.connect(place)
    client.publish({})
    number = publisher.transfer(b"message", delivery_tag=b"message")
    found = taken(reader)
    answer(reader, found)
    accepted(publisher, number)
    settled(reader, found)


@EVERYWHERE
@ROLES
@pytest.mark.parametrize("ending", [Ending.DETACH, Ending.END, Ending.CLOSE], ids=lambda ending: ending.value)
def test_a_link_that_was_ended_before_is_not_stolen_however_often(
    network: Network, role: bool, place: Place, ending: Ending
) -> None:
    client = network.client()
    for number in range(2 * STEALS + 2):
        peer = client.connect((Place.SAME_ROUTER, place)[number % 2])
        _attach(client, role)
        ending.carry_out(peer)
