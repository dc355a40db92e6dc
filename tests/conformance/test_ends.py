"""What a publisher hears between its end and the answer to it (parts 2.4.3, 2.5.5 and 2.6.4; rules A-9a and X-1)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oncewire.wire import (
    ACCEPTED,
    Close,
    DeliveryState,
    Detach,
    Disposition,
    End,
    Flow,
    Message,
    Modified,
    Properties,
    Target,
    decode_message,
    encode_message,
)
from tests.conformance.peer import Dial, Peer
from tests.conformance.routers import Router, running

MESSAGES = 8
CREDIT = 3
ENDS: dict[str, Detach | End | Close] = {
    "detach": Detach(0, False),
    "close the link": Detach(0, True),
    "end": End(),
    "close": Close(),
}
NAMED = ["named", "anonymous"]
IN_DOUBT = Modified(delivery_failed=True)


@pytest.fixture(scope="module")
def impatient_router(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Router]:
    """A router whose T_end is half a second."""
    yield from running(tmp_path_factory.mktemp("impatient"), "--limits-end-wait-s=0.5")


def subscriber(dial: Dial, topic: str, port: int | None = None) -> Peer:
    """One with credit for some."""
    peer = dial(*[] if port is None else [port]).ready()
    peer.attach_receiver(topic)
    peer.send_flow(0, CREDIT)
    return peer


def sent(peer: Peer, topic: str, kind: str, how: str) -> list[int]:
    """Eight messages and the end, in one write; returns their delivery-ids."""
    target = Target() if kind == "anonymous" else Target(address=topic)
    peer.attach_sender(topic, target=target)
    with peer.pipelined():
        ids = [
            peer.transfer(payload=encode_message(Message(b"%d" % number, properties=Properties(to=topic))))
            for number in range(MESSAGES)
        ]
        peer.send(ENDS[how], channel=0)
    return ids


def reported(peer: Peer, how: str) -> list[tuple[int, DeliveryState | None, bool]]:
    """What is stated before the answer: (delivery-id, state, settled)."""
    found: list[tuple[int, DeliveryState | None, bool]] = []
    while True:
        frame = peer.expect_one_of(Disposition, type(ENDS[how]), skipped=(Flow,))
        if not isinstance(frame, Disposition):
            assert isinstance(frame, Detach | End | Close)
            assert frame.error is None
            assert getattr(frame, "closed", None) == getattr(ENDS[how], "closed", None)
            return found
        last = frame.first if frame.last is None else frame.last
        found += [(number, frame.state, frame.settled) for number in range(frame.first, last + 1)]


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("kind", NAMED)
def test_all_outcomes_come_before_the_answer(dial: Dial, topic: str, kind: str, how: str) -> None:
    reader, peer = subscriber(dial, topic), dial().ready()
    ids = sent(peer, topic, kind, how)
    for number in range(MESSAGES):
        delivery = reader.delivery(Disposition)
        assert decode_message(delivery.payload).body == b"%d" % number
        reader.dispose(delivery.id)
        reader.send_flow(0, CREDIT, delivery_count=number + 1)
    heard = reported(peer, how)
    assert [(number, state) for number, state, _ in heard] == [(number, ACCEPTED) for number in ids]


@pytest.mark.parametrize("how", ["close the link", "end", "close"])
@pytest.mark.parametrize("kind", NAMED)
def test_what_has_none_in_time_is_modified(
    dial: Dial, impatient_router: Router, topic: str, kind: str, how: str
) -> None:
    reader, peer = subscriber(dial, topic, impatient_router.port), dial(impatient_router.port).ready()
    ids = sent(peer, topic, kind, how)
    reader.dispose(reader.delivery(Disposition).id)
    heard = reported(peer, how)
    assert heard == [(ids[0], ACCEPTED, True), *((number, IN_DOUBT, True) for number in ids[1:])]


def test_a_closed_connection_is_kept_up_while_it_waits(dial: Dial, topic: str) -> None:
    reader = subscriber(dial, topic)
    peer = dial()
    peer.open(idle_time_out=400)
    peer.begin()
    sent(peer, topic, "named", "close")
    for _ in range(3):
        peer.expect_heartbeat()
    for number in range(MESSAGES):
        reader.dispose(reader.delivery(Disposition).id)
        reader.send_flow(0, CREDIT, delivery_count=number + 1)
    assert len(reported(peer, "close")) == MESSAGES
    peer.expect_gone()
