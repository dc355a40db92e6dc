"""The anonymous terminus is not built: scenarios of the protocol test suite, by its names.

A client that sends to it without waiting is refused cleanly: what it sent goes nowhere, and its session goes on.
"""

from __future__ import annotations

from oncewire.wire import Message, Properties, Source, Symbol, Target, encode_message
from oncewire.wire.errors import NOT_IMPLEMENTED
from tests.conformance.peer import Dial, heard, published, subscribed, symbols
from tests.conformance.test_transactions import assert_coordinator_is_refused, transactional

RELAY = "ANONYMOUS-RELAY"
ACCEPTED, REJECTED = symbols("amqp:accepted:list", "amqp:rejected:list")


def _assert_refused(
    dial: Dial, topic: str, to: str, *, settled: bool = False, outcomes: tuple[Symbol, ...] = (),
    in_transaction: bool = False, controller_outcomes: tuple[Symbol, ...] = (ACCEPTED, REJECTED),
) -> None:  # fmt: skip
    """What is sent before the refusal is known has no effect; nobody receives it, whomever it is for."""
    witness = subscribed(dial, topic)
    peer = dial()
    reply = peer.open(desired_capabilities=symbols(RELAY))
    assert Symbol(RELAY) not in reply.offered_capabilities, "a client can see that it is not there"
    peer.begin()
    if in_transaction:
        assert_coordinator_is_refused(peer, 9, controller_outcomes)
    message = encode_message(Message(properties=Properties(to=to), body=b"relayed"))
    state = transactional() if in_transaction else None
    peer.send_attach(False, "relay", 0, source=Source(outcomes=outcomes), target=Target())
    error = peer.refused(0, in_flight=message, delivery_tag=b"testTag", settled=settled, state=state)
    assert error.condition == NOT_IMPLEMENTED
    peer.sync()
    published(dial, topic, b"control")
    assert heard(witness) == b"control"
    peer.close()


class TestAnonymousTerminus:
    """Nothing is relayed, settled or not, in a transaction or not."""

    def test_transfer_pre_settled_to_known_destination(self, dial: Dial, topic: str) -> None:
        _assert_refused(dial, topic, topic, settled=True)

    def test_transfer_pre_settled_to_unknown_destination(self, dial: Dial, topic: str) -> None:
        _assert_refused(dial, topic, "unknown", settled=True)

    def test_transfer_unsettled_to_unknown_destination_when_rejected_outcome_supported_by_source(
        self, dial: Dial, topic: str
    ) -> None:
        _assert_refused(dial, topic, "unknown", outcomes=(ACCEPTED, REJECTED))

    def test_transfer_unsettled_to_unknown_destination_when_rejected_outcome_not_supported_by_source(
        self, dial: Dial, topic: str
    ) -> None:
        _assert_refused(dial, topic, "unknown", outcomes=(ACCEPTED,))

    def test_transfer_pre_settled_in_transaction_to_known_destination(self, dial: Dial, topic: str) -> None:
        _assert_refused(dial, topic, topic, settled=True, in_transaction=True)

    def test_transfer_unsettled_in_transaction_to_known_destination(self, dial: Dial, topic: str) -> None:
        _assert_refused(dial, topic, topic, in_transaction=True)

    def test_transfer_unsettled_in_transaction_to_unknown_destination_when_rejected_outcome_supported_by_source(
        self, dial: Dial, topic: str
    ) -> None:
        _assert_refused(dial, topic, "unknown", outcomes=(ACCEPTED, REJECTED), in_transaction=True)

    def test_transfer_unsettled_in_transaction_to_unknown_destination_when_rejected_outcome_not_supported_by_source(
        self, dial: Dial, topic: str
    ) -> None:
        _assert_refused(dial, topic, "unknown", outcomes=(ACCEPTED,), in_transaction=True)

    def test_transfer_pre_settled_in_transaction_to_unknown_destination_when_reject_outcome_supported_by_tx_controller(
        self, dial: Dial, topic: str
    ) -> None:
        _assert_refused(dial, topic, "unknown", settled=True, in_transaction=True)

    def test_transfer_pre_settled_in_transaction_to_unknown_destination_when_reject_outcome_not_supported_by_tx_controller(  # noqa: E501  (the name is that of the scenario)
        self, dial: Dial, topic: str
    ) -> None:
        _assert_refused(
            dial, topic, "unknown", settled=True, in_transaction=True, controller_outcomes=(ACCEPTED,)
        )
