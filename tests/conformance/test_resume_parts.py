"""A connection that fails, or a delivery that is aborted, in mid-message (2.6.14, 3.4.1): I-1a, A-7."""

from __future__ import annotations

import pytest

from oncewire.wire import DeliveryState, Received, Transfer, encode_data_message
from oncewire.wire.frames import MIN_MAX_FRAME_SIZE
from tests.conformance.peer import Peer
from tests.conformance.resuming import (
    EVERYBODY,
    EVERYWHERE,
    SERVED,
    Kind,
    Network,
    Place,
    accepted,
    answer,
    pair,
    passes,
    taken,
)

TAG = b"large"
LARGE = bytes(range(256)) * 16
MESSAGE = encode_data_message(LARGE)
PART = 1000
FRAMES_TAKEN = 2
"""Those of a delivery that a subscriber has when its connection fails: its session window holds no more."""
STATES = pytest.mark.parametrize("state", [None, Received(0, PART)], ids=["null", "received"])


def _send_part(publisher: Peer, tag: bytes = TAG) -> None:
    publisher.transfer(payload=MESSAGE[:PART], delivery_tag=tag, more=True)
    publisher.sync()


@SERVED
@STATES
def test_what_a_publisher_had_sent_in_part_is_sent_again_whole(
    network: Network, kind: Kind, place: Place, state: DeliveryState | None
) -> None:
    reader, publisher = pair(network, publisher=kind)
    _send_part(publisher.peer)
    publisher.peer.drop()
    publisher.connect(place)
    assert publisher.publish({TAG: state}).unsettled == {}
    passes(publisher.peer, reader.peer, TAG, LARGE)
    passes(publisher.peer, reader.peer, b"next", b"next")


@SERVED
def test_a_part_that_its_publisher_does_not_present_leaves_no_trace(network: Network, kind: Kind, place: Place) -> None:
    reader, publisher = pair(network, publisher=kind)
    _send_part(publisher.peer)
    publisher.peer.drop()
    publisher.connect(place)
    publisher.publish({})
    passes(publisher.peer, reader.peer, b"next", b"next")


@SERVED
def test_a_publisher_that_goes_on_in_mid_message_is_ignored_and_sends_it_whole(
    network: Network, kind: Kind, place: Place
) -> None:
    reader, publisher = pair(network, publisher=kind)
    _send_part(publisher.peer)
    publisher.peer.drop()
    peer = publisher.connect(place)
    publisher.publish({TAG: Received(0, PART)})
    peer.transfer(payload=MESSAGE[PART:], delivery_tag=TAG, resume=True, state=Received(0, PART))
    passes(peer, reader.peer, TAG, LARGE)


@EVERYBODY
def test_an_aborted_delivery_leaves_no_trace_and_its_tag_is_free(network: Network, kind: Kind) -> None:
    reader, publisher = pair(network, publisher=kind)
    _send_part(publisher.peer)
    publisher.peer.more(b"", aborted=True)
    passes(publisher.peer, reader.peer, b"next", b"next")
    passes(publisher.peer, reader.peer, TAG, LARGE)


@SERVED
def test_a_delivery_whose_resend_is_aborted_may_be_sent_once_more(network: Network, kind: Kind, place: Place) -> None:
    reader, publisher = pair(network, publisher=kind)
    _send_part(publisher.peer)
    publisher.peer.drop()
    peer = publisher.connect(place)
    publisher.publish({TAG: None})
    _send_part(peer)
    peer.more(b"", aborted=True)
    passes(peer, reader.peer, TAG, LARGE)
    passes(peer, reader.peer, b"next", b"next")


@EVERYWHERE
@EVERYBODY
def test_an_aborted_delivery_that_is_not_presented_does_not_come(network: Network, kind: Kind, place: Place) -> None:
    reader, publisher = pair(network, publisher=kind)
    _send_part(publisher.peer)
    publisher.peer.more(b"", aborted=True)
    publisher.peer.sync()
    publisher.peer.drop()
    publisher.connect(place)
    publisher.publish({})
    passes(publisher.peer, reader.peer, b"next", b"next")


@EVERYWHERE
@EVERYBODY
@pytest.mark.parametrize("entry", ["absent", "null", "received"])
def test_what_a_subscriber_had_in_part_comes_again_from_its_first_byte(
    network: Network, kind: Kind, place: Place, entry: str
) -> None:
    reader, publisher = network.client(kind), network.client()
    peer = reader.connect(window=FRAMES_TAKEN, max_frame_size=MIN_MAX_FRAME_SIZE)
    reader.subscribe({}, credit=0)
    peer.send_flow(0, 1, incoming_window=FRAMES_TAKEN)
    publisher.connect()
    publisher.publish({})
    number = publisher.peer.transfer(LARGE, delivery_tag=TAG)
    first = peer.expect(Transfer)
    part = len(peer.payload)
    assert peer.expect(Transfer).more
    peer.drop()
    assert first.delivery_tag is not None
    state = None if entry == "null" else Received(0, part)
    peer = reader.connect(place)
    reply = reader.subscribe({} if entry == "absent" else {first.delivery_tag: state})
    assert reply.unsettled == ({} if entry == "absent" else {first.delivery_tag: None})
    found = taken(peer)
    assert (found.tag, found.body) == (first.delivery_tag, LARGE)
    assert bool(found.frames[0].resume) is (entry != "absent")
    answer(peer, found)
    accepted(publisher.peer, number)
    passes(publisher.peer, peer, b"next", b"next")
