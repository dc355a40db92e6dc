"""Sole connections for a container are not built: scenarios of the protocol test suite, by its names.

The extension leaves a peer that does not know it as it is: the capability is not offered, no connection is closed or
refused for another one's sake, and a link that is attached again is stolen alone (2.6.1).
"""

from __future__ import annotations

from oncewire.wire import Attach, Detach, Flow, Open, Source, Symbol, Target, UInt
from oncewire.wire.errors import STOLEN
from tests.conformance.peer import Dial, Peer, symbols

SOLE = "sole-connection-for-container"
POLICY = Symbol("sole-connection-enforcement-policy")
REFUSE, CLOSE_EXISTING = UInt(0), UInt(1)


def _opened(dial: Dial, name: str, policy: UInt | None = None, *, desired: bool = True) -> Peer:
    """A connection that asks to be the only one of its container, and is served as any other."""
    peer = dial()
    reply = peer.open(
        container_id=name,
        desired_capabilities=symbols(SOLE) if desired else (),
        properties=None if policy is None else {POLICY: policy},
    )
    _assert_not_offered(reply)
    peer.begin()
    return peer


def _assert_not_offered(reply: Open) -> None:
    assert Symbol(SOLE) not in reply.offered_capabilities
    assert POLICY not in (reply.properties or {})


def _assert_both_live(first: Peer, second: Peer) -> None:
    first.sync()
    second.sync()
    first.close()
    second.close()


class TestCloseExistingPolicy:
    """Clients that want the connection before theirs closed."""

    def test_basic_negotiation(self, dial: Dial) -> None:
        _opened(dial, "close-1", CLOSE_EXISTING).close()

    def test_existing_connection_closed(self, dial: Dial, topic: str) -> None:
        first = _opened(dial, "close-2", CLOSE_EXISTING)
        kept = first.attach_sender(topic, "link")
        second = _opened(dial, "close-2", CLOSE_EXISTING)
        # What the policy is for holds for each link: the newer attach has it (2.6.1).
        second.send_attach(False, "link", 0, source=Source(), target=Target(address=topic))
        found = first.expect(Detach, Flow)
        assert found.error is not None
        assert (found.handle, found.error.condition) == (kept.handle, STOLEN)
        assert second.expect(Attach, Flow).target is not None
        _assert_both_live(first, second)

    def test_strong_detection_when_connection_without_sole_connection_capability_opened(
        self, dial: Dial
    ) -> None:
        first = _opened(dial, "close-3", desired=False)
        _assert_both_live(first, _opened(dial, "close-3", CLOSE_EXISTING))

    def test_strong_detection(self, dial: Dial) -> None:
        first = _opened(dial, "close-4", CLOSE_EXISTING)
        _assert_both_live(first, _opened(dial, "close-4", desired=False))


class TestMixedPolicy:
    """Two clients that want different things."""

    def test_first_close_then_refuse(self, dial: Dial) -> None:
        first = _opened(dial, "mixed-1", CLOSE_EXISTING)
        second = _opened(dial, "mixed-1", REFUSE)
        third = _opened(dial, "mixed-1", CLOSE_EXISTING)
        first.sync()
        _assert_both_live(second, third)

    def test_first_refuse_then_close(self, dial: Dial) -> None:
        first = _opened(dial, "mixed-2", REFUSE)
        _assert_both_live(first, _opened(dial, "mixed-2", CLOSE_EXISTING))


class TestRefuseConnectionPolicy:
    """Clients that want a second connection refused."""

    def test_basic_negotiation(self, dial: Dial) -> None:
        _opened(dial, "refuse-1", REFUSE).close()

    def test_new_connection_refused(self, dial: Dial) -> None:
        first = _opened(dial, "refuse-2", REFUSE)
        _assert_both_live(first, _opened(dial, "refuse-2", REFUSE))

    def test_strong_detection_when_connection_without_sole_connection_capability_opened(
        self, dial: Dial
    ) -> None:
        first = _opened(dial, "refuse-3", desired=False)
        _assert_both_live(first, _opened(dial, "refuse-3", REFUSE))

    def test_strong_detection(self, dial: Dial) -> None:
        first = _opened(dial, "refuse-4", REFUSE)
        _assert_both_live(first, _opened(dial, "refuse-4", desired=False))

    def test_refuse_is_default(self, dial: Dial) -> None:
        first = _opened(dial, "refuse-5")
        _assert_both_live(first, _opened(dial, "refuse-5"))
