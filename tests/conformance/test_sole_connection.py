"""Sole connections for a container: scenarios of the protocol test suite, by its names."""

from __future__ import annotations

from oncewire.wire import AmqpError, Flow, Symbol, UInt
from oncewire.wire.errors import INVALID_FIELD, RESOURCE_LOCKED
from oncewire.wire.performatives import Close
from tests.conformance.peer import Dial, Peer, symbols

SOLE = "sole-connection-for-container"
POLICY, DETECTION = symbols("sole-connection-enforcement-policy", "sole-connection-detection-policy")
NOT_ESTABLISHED = Symbol("amqp:connection-establishment-failed")
REFUSE, CLOSE_EXISTING, STRONG = UInt(0), UInt(1), UInt(0)


def _opened(
    dial: Dial, name: str, policy: UInt | None = None, *, desired: bool = True, is_refused: bool = False
) -> Peer:
    """A connection, which asks to be the only one of its container unless it does not know the extension.

    The router offers it to all, and says in its open whether the connection will give way to the next one.
    """
    peer = dial()
    reply = peer.open(
        container_id=name,
        desired_capabilities=symbols(SOLE) if desired else (),
        properties=None if policy is None else {POLICY: policy},
    )
    properties = reply.properties or {}
    assert Symbol(SOLE) in reply.offered_capabilities
    assert properties.get(DETECTION) == (STRONG if desired else None), "strong is the default"
    assert properties.get(POLICY) == (CLOSE_EXISTING if policy == CLOSE_EXISTING else None)
    assert properties.get(NOT_ESTABLISHED) == (True if is_refused else None)
    if is_refused:
        assert _closed(peer) == (INVALID_FIELD, {Symbol("invalid-field"): Symbol("container-id")})
    else:
        peer.begin()
        peer.sync()
    return peer


def _closed(peer: Peer) -> tuple[Symbol, dict[Symbol, object] | None]:
    found = peer.expect(Close, Flow)
    assert isinstance(found.error, AmqpError)
    peer.send(Close(), channel=0)
    return found.error.condition, found.error.info


def _assert_replaced(peer: Peer) -> None:
    assert _closed(peer) == (RESOURCE_LOCKED, {Symbol("sole-connection-enforcement"): True})


class TestCloseExistingPolicy:
    """Clients that want the older one of two connections closed."""

    def test_basic_negotiation(self, dial: Dial) -> None:
        _opened(dial, "close-1", CLOSE_EXISTING).close()

    def test_existing_connection_closed(self, dial: Dial) -> None:
        first = _opened(dial, "close-2", CLOSE_EXISTING)
        second = _opened(dial, "close-2", CLOSE_EXISTING)
        _assert_replaced(first)
        second.close()

    def test_strong_detection_when_connection_without_sole_connection_capability_opened(self, dial: Dial) -> None:
        first = _opened(dial, "close-3", desired=False)
        second = _opened(dial, "close-3", CLOSE_EXISTING)
        _assert_replaced(first)
        second.close()

    def test_strong_detection(self, dial: Dial) -> None:
        first = _opened(dial, "close-4", CLOSE_EXISTING)
        second = _opened(dial, "close-4", desired=False)
        _assert_replaced(first)
        second.close()


class TestMixedPolicy:
    """Two clients that want different things: the wish of the connection that is there counts."""

    def test_first_close_then_refuse(self, dial: Dial) -> None:
        first = _opened(dial, "mixed-1", CLOSE_EXISTING)
        second = _opened(dial, "mixed-1", REFUSE)
        _assert_replaced(first)
        _opened(dial, "mixed-1", CLOSE_EXISTING, is_refused=True)
        second.close()

    def test_first_refuse_then_close(self, dial: Dial) -> None:
        first = _opened(dial, "mixed-2", REFUSE)
        _opened(dial, "mixed-2", CLOSE_EXISTING, is_refused=True)
        first.close()


class TestRefuseConnectionPolicy:
    """Clients that want a second connection refused."""

    def test_basic_negotiation(self, dial: Dial) -> None:
        _opened(dial, "refuse-1", REFUSE).close()

    def test_new_connection_refused(self, dial: Dial) -> None:
        first = _opened(dial, "refuse-2", REFUSE)
        _opened(dial, "refuse-2", REFUSE, is_refused=True)
        first.sync()
        first.close()
        _opened(dial, "refuse-2", REFUSE).close()

    def test_strong_detection_when_connection_without_sole_connection_capability_opened(self, dial: Dial) -> None:
        first = _opened(dial, "refuse-3", desired=False)
        _opened(dial, "refuse-3", REFUSE, is_refused=True)
        first.close()

    def test_strong_detection(self, dial: Dial) -> None:
        first = _opened(dial, "refuse-4", REFUSE)
        _opened(dial, "refuse-4", desired=False, is_refused=True)
        first.close()

    def test_refuse_is_default(self, dial: Dial) -> None:
        first = _opened(dial, "refuse-5")
        _opened(dial, "refuse-5", is_refused=True)
        first.close()
