"""Maps that are presented in parts (2.6.13, C-4): rounds of a subscriber, and a publisher that may have none."""

from __future__ import annotations

import pytest

from delivery_records.model.limits import REDUCTION_ROUNDS
from oncewire.wire import ACCEPTED, RELEASED, DeliveryState, Detach, Disposition, Flow, Rejected, UnsettledMap
from oncewire.wire.errors import RESOURCE_LIMIT_EXCEEDED
from tests.conformance.peer import Delivery
from tests.conformance.resuming import (
    EVERYBODY,
    EVERYWHERE,
    SERVED,
    Client,
    Kind,
    Network,
    Place,
    accepted,
    answer,
    pair,
    passes,
    settle,
    settled,
    stated,
    taken,
)

MESSAGES = 12
PART = 4


def _sent(network: Network, kind: Kind, count: int) -> tuple[Client, Client, list[Delivery]]:
    """A subscriber, its publisher, and deliveries that came and were not answered."""
    reader, publisher = pair(network, reader=kind)
    for number in range(count):
        publisher.peer.transfer(b"%d" % number, delivery_tag=b"%d" % number)
        publisher.peer.sync()  # 2.5.6: the window of a session that has sent nothing is small
    return reader, publisher, [taken(reader.peer) for _ in range(count)]


def _suspended(reader: Client) -> None:
    """The router ends the round: the link is detached, not closed, without an error, and nothing new came on it."""
    found = reader.peer.expect(Detach, Flow, Disposition)
    assert (bool(found.closed), found.error) == (False, None)
    reader.peer.drop()


@EVERYBODY
def test_rounds_at_one_router_and_another_go_on_until_the_map_fits(network: Network, kind: Kind) -> None:
    reader, publisher, had = _sent(network, kind, MESSAGES)
    reader.peer.drop()
    new = publisher.peer.transfer(b"new", delivery_tag=b"new")
    for first in range(0, MESSAGES, PART):
        part = dict.fromkeys(each.tag for each in had[first : first + PART])
        is_last = first + PART == MESSAGES
        reader.connect((Place.OTHER_ROUTER, Place.SAME_ROUTER)[first // PART % 2])
        reply = reader.subscribe(part, incomplete_unsettled=not is_last)
        assert reply.unsettled == part
        assert bool(reply.incomplete_unsettled) is not is_last
        for number, tag in enumerate(part, first):
            found = taken(reader.peer)
            assert (found.tag, found.body, found.frames[0].resume) == (tag, b"%d" % number, True)
            answer(reader.peer, found)
            accepted(publisher.peer, number)
        if not is_last:
            _suspended(reader)
    found = taken(reader.peer)
    assert (found.body, bool(found.frames[0].resume)) == (b"new", False), "only behind the whole map"
    answer(reader.peer, found)
    accepted(publisher.peer, new)


@EVERYWHERE
@EVERYBODY
@pytest.mark.parametrize("outcome", [ACCEPTED, Rejected()], ids=["accepted", "rejected"])
def test_a_part_with_outcomes_is_resumed_settled_and_the_link_ends_with_its_last_entry(
    network: Network, kind: Kind, place: Place, outcome: DeliveryState
) -> None:
    reader, publisher, had = _sent(network, kind, 3)
    reader.peer.drop()
    reader.connect(place)
    reply = reader.subscribe({each.tag: outcome for each in had[:2]}, incomplete_unsettled=True)
    assert reply.unsettled == dict.fromkeys(each.tag for each in had[:2])
    stated(publisher.peer, 1)  # and 0, in the same frame or before
    for number in (0, 1):
        settle(publisher.peer, number)
        found = taken(reader.peer)
        assert (found.tag, found.frames[0].resume, found.settled) == (had[number].tag, True, True)
        assert found.frames[0].state == outcome
    _suspended(reader)
    reader.connect(place)
    assert reader.subscribe({had[2].tag: outcome}).unsettled == {had[2].tag: None}
    accepted(publisher.peer, 2)
    assert taken(reader.peer).settled
    passes(publisher.peer, reader.peer, b"new", b"new")


@EVERYWHERE
def test_the_attach_behind_two_rounds_without_progress_is_refused(network: Network, place: Place) -> None:
    reader, publisher, had = _sent(network, Kind.CAPABILITY, 2)
    for each in had:
        answer(reader.peer, each)
    stated(publisher.peer, 1)
    reader.peer.drop()
    part: UnsettledMap = {had[0].tag: ACCEPTED}
    for _ in range(REDUCTION_ROUNDS):
        reader.connect(place)
        assert reader.subscribe(part, incomplete_unsettled=True).unsettled == dict.fromkeys(part)
        _suspended(reader)
    reader.connect(place)
    reader.send_attach(True, unsettled=part, incomplete_unsettled=True)
    assert reader.peer.refused().condition == RESOURCE_LIMIT_EXCEEDED
    reader.connect(place)
    assert reader.subscribe({each.tag: ACCEPTED for each in had}).unsettled == dict.fromkeys(each.tag for each in had)
    for number in (0, 1):
        settle(publisher.peer, number)
        assert taken(reader.peer).tag == had[number].tag
    passes(publisher.peer, reader.peer, b"new", b"new")


@EVERYWHERE
def test_what_precedes_a_part_is_not_taken_for_processed(network: Network, place: Place) -> None:
    reader, publisher, had = _sent(network, Kind.CAPABILITY, 2)
    reader.peer.drop()
    reader.connect(place)
    reader.subscribe({had[1].tag: None}, incomplete_unsettled=True)
    answer(reader.peer, taken(reader.peer))
    _suspended(reader)
    reader.connect(place)
    reply = reader.subscribe({had[0].tag: None, had[1].tag: ACCEPTED})
    assert reply.unsettled == dict.fromkeys(each.tag for each in had)
    found = taken(reader.peer)
    assert (found.tag, found.body, found.frames[0].resume) == (had[0].tag, b"0", True)
    answer(reader.peer, found)
    stated(publisher.peer, 1)
    settle(publisher.peer, 0)
    settled(reader.peer, found)
    settle(publisher.peer, 1)
    found = taken(reader.peer)
    assert (found.tag, found.settled) == (had[1].tag, True)
    passes(publisher.peer, reader.peer, b"new", b"new")


@EVERYWHERE
@EVERYBODY
def test_what_is_wanted_again_waits_for_a_whole_map(network: Network, kind: Kind, place: Place) -> None:
    reader, publisher, had = _sent(network, kind, 2)
    reader.peer.drop()
    reader.connect(place)
    reply = reader.subscribe({had[0].tag: None, had[1].tag: RELEASED}, incomplete_unsettled=True)
    assert reply.unsettled == {had[0].tag: None}
    found = taken(reader.peer)
    assert (found.tag, found.frames[0].resume) == (had[0].tag, True)
    answer(reader.peer, found)
    accepted(publisher.peer, 0)
    settled(reader.peer, found)
    _suspended(reader)
    reader.connect(place)
    assert reader.subscribe({had[1].tag: RELEASED}).unsettled == {}
    found = taken(reader.peer)
    assert (found.tag, bool(found.frames[0].resume)) == (had[1].tag, False)
    answer(reader.peer, found)
    accepted(publisher.peer, 1)
    passes(publisher.peer, reader.peer, b"new", b"new")


@SERVED
def test_an_incomplete_map_of_a_publisher_is_refused_and_its_session_goes_on(
    network: Network, kind: Kind, place: Place
) -> None:
    reader, publisher = pair(network, publisher=kind)
    publisher.peer.transfer(b"0", delivery_tag=b"0")
    had = taken(reader.peer)
    publisher.peer.drop()
    peer = publisher.connect(place)
    publisher.send_attach(False, unsettled={b"0": None}, incomplete_unsettled=True)
    assert peer.refused().condition == RESOURCE_LIMIT_EXCEEDED
    publisher.publish({b"0": None}, 1)
    number = peer.transfer(b"0", 1, delivery_tag=b"0")
    answer(reader.peer, had)
    accepted(peer, number)
    settled(reader.peer, had)
    peer.transfer(b"new", 1, delivery_tag=b"new")
    assert taken(reader.peer).body == b"new"
