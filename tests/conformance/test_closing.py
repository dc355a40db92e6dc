"""Links, sessions and connections that end with something unsent (2.4.3, 2.5.6, 2.6.6): not in the suite."""

from __future__ import annotations

import pytest

from oncewire.wire import Detach, Disposition, Flow, Source, Transfer
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
def test_a_detach_is_answered_while_the_session_window_is_closed(
    dial: Dial, topic: str, closed: bool
) -> None:
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


def test_another_link_of_the_session_gets_its_deliveries_with_the_next_numbers(
    dial: Dial, topic: str
) -> None:
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
