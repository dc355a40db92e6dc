"""What becomes of a delivery when a link is attached again (2.6.13, 3.4.6): local state x what is known here.

`SENDER` and `RECEIVER` are the tables: one row for each state in the client's map, one column for what the network
knows of the delivery. `docs/conformance.md` states them for those who write clients. Each cell runs on a second
connection to the same router and on one to another router, once with a client that has the capability and once with
one that has not.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from delivery_records.model.limits import RESUME_FLAGS_IGNORED
from oncewire.wire import (
    ACCEPTED,
    RELEASED,
    DeliveryState,
    Described,
    Detach,
    Flow,
    Modified,
    Received,
    ReceiverSettleMode,
    Rejected,
    ULong,
    UnsettledMap,
)
from oncewire.wire.errors import NOT_ALLOWED
from router.clients.message_edits import EMPTY_DATA_SECTION
from tests.conformance.peer import Delivery, Peer
from tests.conformance.resuming import (
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
    stated,
    taken,
)
from tests.support.effort import partly

PAGE = Path(__file__).parents[2] / "docs" / "conformance.md"
TAG = b"delivery"
MESSAGE, NEXT = b"message", b"next"
FOREIGN_TAG = b"of-another-network"
FIRST = 0
"""Its delivery-id."""
KINDS = tuple(Kind)


class Local(Enum):
    """The delivery in the map that the client presents."""

    NO_MAP = "no map"
    ABSENT = "no entry"
    NULL = "null"
    RECEIVED = "received"
    TRANSACTIONAL = "transactional-state"
    ACCEPTED = "accepted"
    REJECTED = "rejected"
    UNDELIVERABLE = "modified (undeliverable-here)"
    RELEASED = "released"
    MODIFIED = "modified"
    MODIFIED_FAILED = "modified (delivery-failed)"


STATES: Mapping[Local, DeliveryState | None] = {
    Local.NULL: None,
    Local.RECEIVED: Received(0, 4),
    Local.TRANSACTIONAL: Described(ULong(0x34), [b"transaction", Described(ULong(0x24), [])]),
    Local.ACCEPTED: ACCEPTED,
    Local.REJECTED: Rejected(),
    Local.UNDELIVERABLE: Modified(undeliverable_here=True),
    Local.RELEASED: RELEASED,
    Local.MODIFIED: Modified(),
    Local.MODIFIED_FAILED: Modified(delivery_failed=True),
}


def presented(local: Local, tag: bytes) -> UnsettledMap | None:
    """The map of a client in whose map nothing else is."""
    if local is Local.NO_MAP:
        return None
    return {} if local is Local.ABSENT else {tag: STATES[local]}


class Known(Enum):
    """What the network knows of the delivery when its client comes back: head of a column on the page."""

    NOTHING = "never arrived"
    SENT = "delivered, not answered"
    STATED = "accepted by the subscriber"
    SETTLED = "settled by the publisher"
    NO_SESSION = "the publisher's session has ended"
    FOREIGN = "tag of another network"


class Sender(Enum):
    """What becomes of a delivery in a publisher's map.

    In the first four the publisher has the capability and sends it again, resume=false; in the next four it goes by the
    reply's map.
    """

    DELIVERED = "delivered (I-1)"
    ANSWERED_ONCE = "not delivered again: the answer to the first counts (E-3)"
    ACCEPTED_AT_ONCE = "accepted at once (I-2)"
    TWICE = "delivered a second time (P-a)"
    LEFT_OUT = "left out, and delivered (A-3b, I-1)"
    RESUMED = "null in the reply map, not delivered again (A-3b)"
    OUTCOME = "its outcome in the reply map (A-3b)"
    LEFT_OUT_TWICE = "left out, and delivered a second time (A-3b)"
    DROPPED = "not sent, settled at subscribers (A-4, I-4)"
    DROPPED_ENTRY = "not sent (A-4)"
    EXPIRED = "refused: `oncewire:session-expired` (A-5)"
    UNKNOWN = "refused: `oncewire:unsettled-unknown` (A-3c)"


class Receiver(Enum):
    """What becomes of a delivery in a subscriber's map."""

    RESUMED = "resumed with its body (A-7, E-3)"
    RESUMED_WHEN_SETTLED = "resumed settled, once its publisher settles it (A-7)"
    AS_NEW = "left out, sent as new (E-3, E-4a)"
    NOT_SENT = "left out (A-6)"
    ENDED = "left out, or resumed settled (A-6, A-7)"
    KEPT = "in the reply map, nothing is sent (E-6)"


WITHOUT_OUTCOME = (Local.NULL, Local.RECEIVED, Local.TRANSACTIONAL)
"""A state of part 4 is no outcome, for no transaction is open here."""
UNFINISHED = {
    Known.NOTHING: Sender.DELIVERED,
    Known.SENT: Sender.ANSWERED_ONCE,
    Known.STATED: Sender.ACCEPTED_AT_ONCE,
    Known.SETTLED: Sender.TWICE,
    Known.NO_SESSION: Sender.EXPIRED,
}
FINISHED = {
    Known.NOTHING: Sender.DROPPED_ENTRY,
    Known.SENT: Sender.DROPPED,
    Known.STATED: Sender.DROPPED,
    Known.SETTLED: Sender.DROPPED_ENTRY,
    Known.NO_SESSION: Sender.DROPPED_ENTRY,
}
SENDER: Mapping[Local, Mapping[Known, Sender]] = {
    local: UNFINISHED if local in WITHOUT_OUTCOME else FINISHED for local in Local
}
"""3.4.6 distinguishes more, for there both ends keep states. Here a publisher's outcome is its own to settle (A-4)."""
RESUMED = {
    Known.NOTHING: Sender.LEFT_OUT,
    Known.SENT: Sender.RESUMED,
    Known.STATED: Sender.OUTCOME,
    Known.SETTLED: Sender.LEFT_OUT_TWICE,
    Known.NO_SESSION: Sender.EXPIRED,
}
PLAIN_SENDER: Mapping[Local, Mapping[Known, Sender]] = {
    local: RESUMED if local in WITHOUT_OUTCOME else FINISHED for local in Local
}
"""Without the capability, at the router that served the link. Another one refuses the rows without an outcome."""

WITHOUT_ENTRY = {
    Known.NO_SESSION: Receiver.NOT_SENT,
    Known.SENT: Receiver.AS_NEW,
    Known.STATED: Receiver.NOT_SENT,
    Known.SETTLED: Receiver.NOT_SENT,
}
OPEN = {
    Known.NO_SESSION: Receiver.NOT_SENT,
    Known.SENT: Receiver.RESUMED,
    Known.STATED: Receiver.RESUMED_WHEN_SETTLED,
    Known.SETTLED: Receiver.ENDED,
    Known.FOREIGN: Receiver.KEPT,
}
DONE = {**OPEN, Known.SENT: Receiver.RESUMED_WHEN_SETTLED}
AGAIN = {**WITHOUT_ENTRY, Known.FOREIGN: Receiver.NOT_SENT}
RECEIVER: Mapping[Local, Mapping[Known, Receiver]] = {
    Local.NO_MAP: WITHOUT_ENTRY,
    Local.ABSENT: WITHOUT_ENTRY,
    Local.NULL: OPEN,
    Local.RECEIVED: OPEN,
    Local.TRANSACTIONAL: OPEN,
    Local.ACCEPTED: DONE,
    Local.REJECTED: DONE,
    Local.UNDELIVERABLE: DONE,
    Local.RELEASED: AGAIN,
    Local.MODIFIED: AGAIN,
    Local.MODIFIED_FAILED: AGAIN,
}


def cells(table: Mapping[Local, Mapping[Known, Enum]]) -> list[ParameterSet]:
    """(kind, place, local, known, expected): each cell at both places, and with both kinds of client, one at each."""
    found = [(local, known, expected) for local, row in table.items() for known, expected in row.items()]
    return [
        pytest.param(kind, place, *cell, id=f"{cell[0].name.lower()}-{cell[1].name.lower()}-{kind.value}-{place.value}")
        for number, cell in enumerate(found)
        for kind, place in zip(KINDS if number % 2 else reversed(KINDS), Place, strict=True)
    ]


def sender_cells() -> list[ParameterSet]:
    """(kind, place, local, known, expected): all four of kind and place where there is no outcome, else two of them."""
    found = [each for each in cells(SENDER) if each.values[2] not in WITHOUT_OUTCOME]
    for kind, table in ((Kind.CAPABILITY, SENDER), (Kind.PLAIN, PLAIN_SENDER)):
        for local in WITHOUT_OUTCOME:
            for known, expected in table[local].items():
                for place in Place:
                    is_known = kind is Kind.CAPABILITY or place is Place.SAME_ROUTER or known is Known.NO_SESSION
                    what = expected if is_known else Sender.UNKNOWN
                    cell = f"{local.name.lower()}-{known.name.lower()}-{kind.value}-{place.value}"
                    found.append(pytest.param(kind, place, local, known, what, id=cell))
    return found


# --- a publisher comes back -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "place", "local", "known", "expected"), partly(sender_cells(), 3))
def test_a_publisher_that_comes_back_settles_sends_again_or_is_refused_by_its_map(
    network: Network, kind: Kind, place: Place, local: Local, known: Known, expected: Sender
) -> None:
    reader, publisher = pair(network, publisher=kind)
    had = _publish_until(known, publisher, reader.peer)
    publisher.peer.drop()
    publisher.connect(place)
    unsettled = presented(local, TAG)
    if expected in (Sender.EXPIRED, Sender.UNKNOWN):
        publisher.send_attach(False, unsettled=unsettled)
        assert publisher.peer.refused().condition in expected.value
        return
    reply = publisher.publish(unsettled)
    held = {Sender.RESUMED: {TAG: None}, Sender.OUTCOME: {TAG: ACCEPTED}}.get(expected, {})
    assert reply.unsettled == (None if unsettled is None else held), "A-3a, A-3b"
    assert not reply.incomplete_unsettled
    if expected is Sender.DROPPED:
        assert had is not None
        settled(reader.peer, had)
    elif expected in GOES_BY_THE_MAP:
        _go_by_the_map(publisher.peer, reader.peer, had, expected)
    elif expected is not Sender.DROPPED_ENTRY:
        _send_again(publisher.peer, reader.peer, had, expected)
    passes(publisher.peer, reader.peer, b"next", NEXT)


def _publish_until(known: Known, publisher: Client, reader: Peer) -> Delivery | None:
    """The first connection of the publisher, up to what is to be known; what the reader has got."""
    peer = publisher.peer
    if known is Known.NO_SESSION:
        assert peer.detach(closed=True).closed
    if known in (Known.NOTHING, Known.NO_SESSION):
        return None
    number = peer.transfer(MESSAGE, delivery_tag=TAG)
    had = taken(reader)
    if known is Known.SENT:
        return had
    answer(reader, had)
    if known is Known.STATED:
        assert peer.outcome(number).state == ACCEPTED
        return had
    accepted(peer, number)
    settled(reader, had)
    return had


GOES_BY_THE_MAP = (Sender.LEFT_OUT, Sender.RESUMED, Sender.OUTCOME, Sender.LEFT_OUT_TWICE)


def _go_by_the_map(publisher: Peer, reader: Peer, had: Delivery | None, expected: Sender) -> None:
    """3.4.6: resume what the map names; take an outcome; send what is left out, as a new delivery with a new tag."""
    if expected is Sender.OUTCOME:
        publisher.transfer(payload=b"", delivery_tag=TAG, resume=True, settled=True, state=ACCEPTED)
    else:
        is_new = expected is not Sender.RESUMED
        number = publisher.transfer(MESSAGE, delivery_tag=b"another" if is_new else TAG, resume=not is_new)
        if is_new:
            had = taken(reader)
            assert had.body == MESSAGE
        assert had is not None
        answer(reader, had)
        accepted(publisher, number)
    assert had is not None
    settled(reader, had)


def _send_again(publisher: Peer, reader: Peer, had: Delivery | None, expected: Sender) -> None:
    """The publisher does what the empty reply map asks for."""
    number = publisher.transfer(MESSAGE, delivery_tag=TAG)
    if expected in (Sender.DELIVERED, Sender.TWICE):
        had = taken(reader)
        assert (had.body, bool(had.frames[0].resume)) == (MESSAGE, False)
    assert had is not None
    if expected is not Sender.ACCEPTED_AT_ONCE:
        answer(reader, had)
    accepted(publisher, number)
    settled(reader, had)


@SERVED
def test_transfers_that_resume_what_is_not_known_are_ignored_and_the_third_detaches_the_link(
    network: Network, kind: Kind, place: Place
) -> None:
    reader, publisher = pair(network, publisher=kind)
    assert _publish_until(Known.NOTHING, publisher, reader.peer) is None
    publisher.peer.drop()
    peer = publisher.connect(place)
    publisher.publish({TAG: None})
    for _ in range(RESUME_FLAGS_IGNORED):
        peer.transfer(b"ignored", delivery_tag=TAG, resume=True)
    ended, error = peer.expect_error(Flow)
    assert (ended, error.condition) == (Detach, NOT_ALLOWED)
    assert "resend without resume" in (error.description or "")
    peer.drop()
    peer = publisher.connect(place)
    publisher.publish({TAG: None})
    passes(peer, reader.peer, TAG, MESSAGE)


@EVERYWHERE
@pytest.mark.parametrize("ending", Ending, ids=lambda ending: ending.value)
def test_a_publisher_goes_on_however_its_link_ended_and_as_often_as_it_ends(
    network: Network, place: Place, ending: Ending
) -> None:
    reader, publisher = pair(network)
    had = _publish_until(Known.SENT, publisher, reader.peer)
    assert had is not None
    for at in (place, Place.SAME_ROUTER, place):
        ending.carry_out(publisher.peer)
        publisher.connect(at)
        publisher.publish({TAG: None})
        number = publisher.peer.transfer(MESSAGE, delivery_tag=TAG)
    answer(reader.peer, had)
    accepted(publisher.peer, number)
    settled(reader.peer, had)


@SERVED
def test_with_rcv_settle_mode_first_an_outcome_that_is_lost_means_a_second_delivery(
    network: Network, kind: Kind, place: Place
) -> None:
    reader, publisher = network.client(), network.client(kind)
    reader.connect()
    reader.subscribe({})
    peer = publisher.connect()
    publisher.publish({}, rcv_settle_mode=ReceiverSettleMode.FIRST)
    number = peer.transfer(MESSAGE, delivery_tag=TAG)
    had = taken(reader.peer)
    answer(reader.peer, had)
    outcome = peer.outcome(number)
    assert (outcome.state, outcome.settled) == (ACCEPTED, True), "the router forgets it before the publisher records it"
    settled(reader.peer, had)
    peer.drop()
    peer = publisher.connect(place)
    publisher.publish({TAG: None}, rcv_settle_mode=ReceiverSettleMode.FIRST)
    number = peer.transfer(MESSAGE, delivery_tag=TAG)
    again = taken(reader.peer)
    assert (again.tag, again.body) == (had.tag, MESSAGE)
    answer(reader.peer, again)
    assert peer.outcome(number).settled


# --- a subscriber comes back ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "place", "local", "known", "expected"), partly(cells(RECEIVER), 3))
def test_a_subscriber_that_comes_back_gets_what_its_map_asks_for_and_once(
    network: Network, kind: Kind, place: Place, local: Local, known: Known, expected: Receiver
) -> None:
    reader, publisher = network.client(kind), network.client()
    reader.connect()
    reader.subscribe(None if local is Local.NO_MAP else {})
    publisher.connect()
    publisher.publish({})
    tag = _receive_until(known, publisher, reader.peer)
    reader.peer.drop()
    reader.connect(place)
    reply = reader.subscribe(presented(local, tag))
    _assert_reply(reply.unsettled, tag, local, expected)
    if expected in (Receiver.RESUMED, Receiver.AS_NEW):
        _assert_sent(reader.peer, publisher.peer, tag, resume=expected is Receiver.RESUMED)
    if expected is Receiver.RESUMED_WHEN_SETTLED and known is Known.SENT:
        stated(publisher.peer, FIRST)
    if known is Known.STATED or expected is Receiver.RESUMED_WHEN_SETTLED:
        settle(publisher.peer, FIRST)
    if expected is Receiver.RESUMED_WHEN_SETTLED or (expected is Receiver.ENDED and reply.unsettled):
        _assert_resumed_settled(reader, tag, None if local in WITHOUT_OUTCOME else STATES[local])
    passes(publisher.peer, reader.peer, b"next", NEXT)


@EVERYWHERE
@pytest.mark.parametrize("ending", Ending, ids=lambda ending: ending.value)
def test_a_subscriber_goes_on_however_its_link_ended_and_as_often_as_it_ends(
    network: Network, place: Place, ending: Ending
) -> None:
    reader, publisher = pair(network)
    tag = _receive_until(Known.SENT, publisher, reader.peer)
    for at in (place, Place.SAME_ROUTER, place):
        ending.carry_out(reader.peer)
        reader.connect(at)
        reader.subscribe({tag: None})
        found = taken(reader.peer)
        assert (found.tag, found.body, found.frames[0].resume) == (tag, MESSAGE, True)
    answer(reader.peer, found)
    accepted(publisher.peer, FIRST)
    settled(reader.peer, found)


def _receive_until(known: Known, publisher: Client, reader: Peer) -> bytes:
    """The first connection of the subscriber, up to what is to be known; the tag of its delivery."""
    peer = publisher.peer
    if known is Known.FOREIGN:
        return FOREIGN_TAG
    number = peer.transfer(MESSAGE, delivery_tag=TAG)
    had = taken(reader)
    if known is Known.NO_SESSION:
        assert peer.detach(closed=True).closed
        publisher.publish({})
    if known in (Known.STATED, Known.SETTLED):
        answer(reader, had)
    if known is Known.SETTLED:
        accepted(peer, number)
        peer.sync()
    if known is Known.STATED:
        stated(peer, number)
    return had.tag


def _assert_reply(found: UnsettledMap | None, tag: bytes, local: Local, expected: Receiver) -> None:
    """A-6: what is unsettled of the presented map, without states."""
    if local is Local.NO_MAP:
        assert found is None
    elif expected is Receiver.ENDED:
        assert found in ({}, {tag: None})
    elif expected in (Receiver.RESUMED, Receiver.RESUMED_WHEN_SETTLED, Receiver.KEPT):
        assert found == {tag: None}
    else:
        assert found == {}


def _assert_sent(reader: Peer, publisher: Peer, tag: bytes, *, resume: bool) -> None:
    """It comes with its body; the subscriber answers, the publisher settles, the subscriber has it settled."""
    found = taken(reader)
    assert (found.tag, found.body, bool(found.frames[0].resume), found.settled) == (tag, MESSAGE, resume, False)
    answer(reader, found)
    accepted(publisher, FIRST)
    settled(reader, found)


def _assert_resumed_settled(reader: Client, tag: bytes, state: DeliveryState | None) -> None:
    """A-7: with the subscriber's own state; a body, an empty one, only where a client may need one."""
    found = taken(reader.peer)
    first = found.frames[0]
    assert (found.tag, bool(first.resume), found.settled) == (tag, True, True)
    assert found.payload == (b"" if reader.kind is Kind.CAPABILITY else EMPTY_DATA_SECTION)
    assert first.state == state


# --- both come back ---------------------------------------------------------------------------------------------------


UNSETTLED_AT_PUBLISHER = {
    Local.ABSENT: Receiver.AS_NEW,
    Local.NULL: Receiver.RESUMED,
    Local.ACCEPTED: Receiver.RESUMED_WHEN_SETTLED,
    Local.RELEASED: Receiver.AS_NEW,
}
DONE_AT_PUBLISHER = {
    Local.ABSENT: Receiver.NOT_SENT,
    Local.NULL: Receiver.ENDED,
    Local.ACCEPTED: Receiver.ENDED,
    Local.RELEASED: Receiver.NOT_SENT,
}
BOTH = {Local.NULL: UNSETTLED_AT_PUBLISHER, Local.ACCEPTED: DONE_AT_PUBLISHER, Local.ABSENT: DONE_AT_PUBLISHER}
"""By the map of the publisher, which is at a new ingress by then, and that of the subscriber. Nobody else knows the
outcome that the subscriber stated before (E-2)."""


@EVERYWHERE
@pytest.mark.parametrize(
    ("sent", "got", "expected"),
    [
        pytest.param(sent, got, expected, id=f"{sent.name.lower()}-{got.name.lower()}")
        for sent, row in BOTH.items()
        for got, expected in row.items()
    ],
)
def test_when_a_subscriber_comes_back_behind_its_publisher_their_two_maps_decide(
    network: Network, place: Place, sent: Local, got: Local, expected: Receiver
) -> None:
    reader, publisher = pair(network)
    tag = _receive_until(Known.STATED, publisher, reader.peer)
    reader.peer.drop()
    publisher.peer.drop()
    publisher.connect(Place.OTHER_ROUTER)
    publisher.publish(presented(sent, TAG))
    if sent is Local.NULL:
        assert publisher.peer.transfer(MESSAGE, delivery_tag=TAG) == FIRST
    reader.connect(place)
    reply = reader.subscribe(presented(got, tag))
    _assert_reply(reply.unsettled, tag, got, expected)
    if expected in (Receiver.RESUMED, Receiver.AS_NEW):
        _assert_sent(reader.peer, publisher.peer, tag, resume=expected is Receiver.RESUMED)
    if expected is Receiver.RESUMED_WHEN_SETTLED:
        accepted(publisher.peer, FIRST)
    if expected is Receiver.RESUMED_WHEN_SETTLED or (expected is Receiver.ENDED and reply.unsettled):
        _assert_resumed_settled(reader, tag, STATES[got])
    passes(publisher.peer, reader.peer, b"next", NEXT)


# --- the page ---------------------------------------------------------------------------------------------------------


def _stated(heading: str) -> dict[str, dict[str, str]]:
    """The table of the page below a heading: by state of the client's map, then by what the network knows."""
    lines = PAGE.read_text(encoding="utf-8").split(f"### {heading}\n")[1].split("\n#")[0].splitlines()
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("|")]
    return {
        local: {known: text for known, text in zip(head[1:], row[1:], strict=True) if text != "-"}
        for row in rows
        for local in row[0].split(", ")
    }


@pytest.mark.parametrize(
    ("heading", "table"),
    [
        ("A publisher's map, with the capability", SENDER),
        ("A publisher's map, without it", PLAIN_SENDER),
        ("A subscriber's map", RECEIVER),
    ],
    ids=["sender", "plain-sender", "receiver"],
)
def test_the_page_on_conformance_states_these_tables(heading: str, table: Mapping[Local, Mapping[Known, Enum]]) -> None:
    assert _stated(heading) == {
        local.value: {known.value: expected.value for known, expected in row.items()} for local, row in table.items()
    }
