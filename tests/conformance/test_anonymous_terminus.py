"""The anonymous terminus: scenarios of the protocol test suite, by its names.

An unknown destination of the suite is an address that no router has made: a topic that nobody subscribes to is none.
"""

from __future__ import annotations

from oncewire.wire import Message, Properties, Rejected, Source, Symbol, Target, encode_message
from oncewire.wire.errors import NOT_FOUND
from oncewire.wire.performatives import Detach, Disposition, Flow
from oncewire.wire.transactions import UNKNOWN_TRANSACTION
from tests.conformance.peer import Dial, Peer, heard, published, subscribed, symbols
from tests.conformance.test_transactions import assert_coordinator_is_refused, transactional

RELAY = "ANONYMOUS-RELAY"
UNKNOWN = "_reply/unknown"
ACCEPTED_ONLY = symbols("amqp:accepted:list")
BOTH = symbols("amqp:accepted:list", "amqp:rejected:list")


def _attached(dial: Dial, outcomes: tuple[Symbol, ...] = ()) -> Peer:
    peer = dial()
    reply = peer.open(desired_capabilities=symbols(RELAY))
    assert Symbol(RELAY) in reply.offered_capabilities
    peer.begin()
    attached = peer.attach(False, "relay", 0, source=Source(outcomes=outcomes), target=Target())
    assert isinstance(attached.target, Target)
    assert attached.target.address is None
    peer.credit()
    return peer


def _message(to: str) -> bytes:
    return encode_message(Message(properties=Properties(to=to), body=b"relayed"))


def _assert_detached(peer: Peer, condition: Symbol) -> Detach:
    found = peer.expect(Detach, Flow, Disposition)
    assert found.closed
    assert found.error is not None
    assert found.error.condition == condition
    peer.send(Detach(0, True))
    return found


def _assert_refused_in_transaction(
    dial: Dial,
    topic: str,
    to: str,
    *,
    settled: bool = False,
    outcomes: tuple[Symbol, ...] = (),
    controller_outcomes: tuple[Symbol, ...] = BOTH,
) -> None:
    """There are no transactions: what is sent in one goes nowhere, and ends its link (4.4.1)."""
    witness = subscribed(dial, topic)
    peer = _attached(dial, outcomes)
    assert_coordinator_is_refused(peer, 9, controller_outcomes)
    peer.transfer(payload=_message(to), delivery_tag=b"testTag", settled=settled, state=transactional())
    found = peer.expect(Detach, Flow, Disposition)
    assert found.error is not None
    assert found.error.condition == UNKNOWN_TRANSACTION
    published(dial, topic, b"control")
    assert heard(witness) == b"control"


class TestAnonymousTerminus:
    """Each message goes to the address in its `to`; in a transaction nothing is relayed."""

    def test_transfer_pre_settled_to_known_destination(self, dial: Dial, topic: str) -> None:
        witness = subscribed(dial, topic)
        peer = _attached(dial)
        peer.transfer(payload=_message(topic), delivery_tag=b"testTag", settled=True)
        assert heard(witness) == b"relayed"
        peer.detach(closed=True)
        peer.close()

    def test_transfer_pre_settled_to_unknown_destination(self, dial: Dial) -> None:
        peer = _attached(dial)
        peer.transfer(payload=_message(UNKNOWN), delivery_tag=b"testTag", settled=True)
        error = _assert_detached(peer, NOT_FOUND).error
        assert error is not None
        assert error.info == {Symbol("delivery-tag"): b"testTag"}

    def test_transfer_unsettled_to_unknown_destination_when_rejected_outcome_supported_by_source(
        self, dial: Dial
    ) -> None:
        peer = _attached(dial, BOTH)
        number = peer.transfer(payload=_message(UNKNOWN), delivery_tag=b"testTag", settled=False)
        found = peer.outcome(number)
        assert found.settled
        assert isinstance(found.state, Rejected)
        assert found.state.error is not None
        assert found.state.error.condition == NOT_FOUND
        assert found.state.error.info == {Symbol("delivery-tag"): b"testTag"}
        peer.sync()

    def test_transfer_unsettled_to_unknown_destination_when_rejected_outcome_not_supported_by_source(
        self, dial: Dial
    ) -> None:
        peer = _attached(dial, ACCEPTED_ONLY)
        peer.transfer(payload=_message(UNKNOWN), delivery_tag=b"testTag", settled=False)
        error = _assert_detached(peer, NOT_FOUND).error
        assert error is not None
        assert error.info == {Symbol("delivery-tag"): b"testTag"}

    def test_transfer_pre_settled_in_transaction_to_known_destination(self, dial: Dial, topic: str) -> None:
        _assert_refused_in_transaction(dial, topic, topic, settled=True)

    def test_transfer_unsettled_in_transaction_to_known_destination(self, dial: Dial, topic: str) -> None:
        _assert_refused_in_transaction(dial, topic, topic)

    def test_transfer_unsettled_in_transaction_to_unknown_destination_when_rejected_outcome_supported_by_source(
        self, dial: Dial, topic: str
    ) -> None:
        _assert_refused_in_transaction(dial, topic, UNKNOWN, outcomes=BOTH)

    def test_transfer_unsettled_in_transaction_to_unknown_destination_when_rejected_outcome_not_supported_by_source(
        self, dial: Dial, topic: str
    ) -> None:
        _assert_refused_in_transaction(dial, topic, UNKNOWN, outcomes=ACCEPTED_ONLY)

    def test_transfer_pre_settled_in_transaction_to_unknown_destination_when_reject_outcome_supported_by_tx_controller(
        self, dial: Dial, topic: str
    ) -> None:
        _assert_refused_in_transaction(dial, topic, UNKNOWN, settled=True)

    def test_transfer_pre_settled_in_transaction_to_unknown_destination_when_reject_outcome_not_supported_by_tx_controller(  # noqa: E501  (the name is that of the scenario)
        self, dial: Dial, topic: str
    ) -> None:
        _assert_refused_in_transaction(dial, topic, UNKNOWN, settled=True, controller_outcomes=ACCEPTED_ONLY)
