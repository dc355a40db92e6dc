"""Links, sessions and connections that end with something unsent (2.4.3, 2.5.6, 2.6.6): not in the suite."""

from __future__ import annotations

import pytest

from delivery_records.model.limits import FIRST_CREDIT
from oncewire.wire import Attach, Close, Detach, Disposition, End, Flow, Source, Target, Transfer
from oncewire.wire.performatives import TerminusExpiryPolicy
from tests.conformance.peer import Dial, Peer, heard, published, subscribed

BODIES = [b"%d" % number for number in range(8)]


def _kept(topic: str) -> Source:
    """A subscription that outlives its link."""
    return Source(address=topic, expiry_policy=TerminusExpiryPolicy.LINK_DETACH, timeout=60)


def _closed_window(dial: Dial, topic: str, container_id: str) -> Peer:
    """A subscriber that has taken two of eight messages, has credit for more, and no window (2.5.6)."""
    peer = dial()
    peer.open(container_id=container_id)
    peer.begin()
    peer.attach_receiver(topic, source=_kept(topic))
    peer.send_flow(0, 100, incoming_window=2)
    published(dial, topic, *BODIES)
    assert [peer.delivery().body for _ in range(2)] == BODIES[:2]
    peer.send_flow(echo=True, incoming_window=0)
    peer.expect(Flow)
    return peer


@pytest.mark.parametrize("closed", [False, True])
def test_a_detach_is_answered_while_the_session_window_is_closed(dial: Dial, topic: str, closed: bool) -> None:
    peer = _closed_window(dial, topic, f"closed-window-{closed}")
    peer.send(Detach(0, closed))
    answer = peer.expect(Detach, Disposition, Flow)
    assert (answer.closed, answer.error) == (closed, None)
    peer.send_flow()
    peer.sync()  # no transfer comes for a link that is not there


def test_what_was_unsent_at_the_detach_comes_at_the_next_attach_in_order(dial: Dial, topic: str) -> None:
    peer = _closed_window(dial, topic, "unsent")
    peer.detach()
    peer.attach_receiver(topic, source=_kept(topic), handle=1)
    peer.send_flow(1, 100)
    again = [peer.delivery() for _ in BODIES]
    assert [each.body for each in again] == BODIES
    assert [each.id for each in again] == list(range(2, 10)), "2.7.5: no number is left out"


def test_another_link_of_the_session_gets_its_deliveries_with_the_next_numbers(dial: Dial, topic: str) -> None:
    peer = _closed_window(dial, topic, "other-link")
    peer.attach_receiver(topic + "/other", "other", 1)
    peer.send_flow(1, 100, incoming_window=0)
    witness = subscribed(dial, topic + "/other")
    published(dial, topic + "/other", *BODIES)
    assert [heard(witness) for _ in BODIES] == BODIES  # what is for this session waits in it
    peer.detach()
    peer.send_flow()
    others = [peer.expect(Transfer, Flow) for _ in BODIES]
    assert [each.delivery_id for each in others] == list(range(2, 10))


# --- what a publisher sends just before the end -----------------------------------------------------------------------

ENDS: dict[str, Detach | End | Close] = {
    "detach": Detach(0),
    "closing detach": Detach(0, True),
    "end": End(),
    "close": Close(),
}


def _publisher(dial: Dial, topic: str) -> tuple[Peer, int]:
    """A publisher as stock clients are, and its credit."""
    peer = dial().ready()
    peer.attach(False, "out", 0, source=Source(address="out"), target=Target(address=topic))
    return peer, peer.credit()


def test_a_begin_states_a_window_for_the_first_credit_and_nothing_more_is_said_of_it(dial: Dial, topic: str) -> None:
    """2.5.6: a client buffers what the window does not allow, and loses it when it closes."""
    peer = dial().ready()
    assert peer.begun.incoming_window >= FIRST_CREDIT
    peer.send_attach(False, "out", 0, source=Source(address="out"), target=Target(address=topic))
    assert isinstance(peer.next_frame(), Attach), "no flow that nobody asked for"
    flow = peer.next_frame()
    assert isinstance(flow, Flow)
    assert 0 < (flow.link_credit or 0) <= flow.incoming_window


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("ending", ENDS)
def test_all_that_a_publisher_has_credit_for_arrives_with_the_end_in_the_same_write(
    dial: Dial, topic: str, ending: str, settled: bool
) -> None:
    """A session began with a window of one frame, which a flow made eight: eight of 200 came."""
    witness = dial().ready()
    witness.attach_receiver(topic, "witness")
    witness.send_flow(0, 10_000)
    witness.sync()
    peer, credit = _publisher(dial, topic)
    assert credit >= FIRST_CREDIT
    bodies = [b"%d" % number for number in range(credit)]
    with peer.pipelined():
        for body in bodies:
            peer.transfer(body, settled=settled)
        peer.send(ENDS[ending], channel=0)
    assert [heard(witness) for _ in bodies] == bodies


def test_a_window_follows_the_credit_of_the_links_of_its_session(dial: Dial, topic: str) -> None:
    witness = dial().ready()
    witness.attach_receiver(topic, "witness")
    witness.send_flow(0, 10_000)
    witness.sync()
    peer, credit = _publisher(dial, topic)
    sent, largest = 0, credit
    while sent < 5000:
        for _ in range(credit // 2):
            peer.transfer(b"%d" % sent, settled=True)
            sent += 1
        peer.send_flow(echo=True)
        limit, window, seen = sent + credit - credit // 2, -1, 0
        while window < limit - sent or seen < sent:  # it stays so where nothing more comes
            flow = peer.expect(Flow)
            seen = flow.next_incoming_id or 0
            window = flow.incoming_window - (sent - seen)
            if flow.handle is not None:
                limit = (flow.delivery_count or 0) + (flow.link_credit or 0)
        credit = limit - sent
        largest = max(largest, credit)
    assert largest > FIRST_CREDIT, "the sizes of messages are known by now"
