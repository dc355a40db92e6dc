"""Transactions (part 4) are not built: scenarios of the protocol test suite, by its names.

A coordinator is refused with `amqp:not-implemented`. No transaction can have been declared, so work that names one is
refused with `amqp:transaction:unknown-id` instead of being done outside of it: nothing is published, and no
outcome counts.
"""

from __future__ import annotations

import pytest

from oncewire.wire import ACCEPTED, AmqpError, Described, Detach, End, Flow, ReceiverSettleMode, Source, Symbol, ULong
from oncewire.wire.encoding import encode
from oncewire.wire.errors import NOT_IMPLEMENTED
from oncewire.wire.performatives import Disposition, TerminusExpiryPolicy
from tests.conformance.peer import Dial, Peer, heard, published, subscribed, symbols

COORDINATOR, DECLARE, DISCHARGE, STATE = ULong(0x30), ULong(0x31), ULong(0x32), ULong(0x34)
UNKNOWN_ID = Symbol("amqp:transaction:unknown-id")
TRANSACTION = b"\x7f\xff\xff\xff"
FIRST, SECOND = ReceiverSettleMode.FIRST, ReceiverSettleMode.SECOND
DONE = Described(ULong(0x24), [])
"""The outcome accepted, as a field of a transactional-state."""
BOTH = symbols("amqp:accepted:list", "amqp:rejected:list")


def transactional(*outcome: object) -> Described:
    """A transactional-state."""
    return Described(STATE, [TRANSACTION, *outcome])


def assert_coordinator_is_refused(
    peer: Peer, handle: int = 9, outcomes: tuple[Symbol, ...] = BOTH, message: Described | None = None
) -> None:
    """An attach to the coordinator is refused, and a message that is on its way to it goes nowhere."""
    content = encode(Described(ULong(0x77), Described(DECLARE, []) if message is None else message))
    target = Described(COORDINATOR, [list(symbols("amqp:local-transactions"))])
    peer.send_attach(False, "coordinator", handle, source=Source(outcomes=outcomes), target=target)
    assert peer.refused(handle, in_flight=content).condition == NOT_IMPLEMENTED
    peer.sync()


def _discharge(failed: bool) -> Described:
    return Described(DISCHARGE, [TRANSACTION, failed])


@pytest.fixture
def peer(dial: Dial) -> Peer:
    """A connection with a session."""
    return dial().ready()


@pytest.fixture
def witness(dial: Dial, topic: str) -> Peer:
    """Another connection's subscription of the topic."""
    return subscribed(dial, topic)


def assert_posting_is_refused(
    dial: Dial,
    peer: Peer,
    witness: Peer,
    topic: str,
    *,
    settled: bool = False,
    mode: ReceiverSettleMode = FIRST,
    detached: bool = False,
    closed: bool = False,
) -> None:
    """4.4.1: a transfer that names a transaction that does not exist is not published."""
    peer.attach_sender(topic, rcv_settle_mode=mode)
    peer.transfer(b"transactional", state=transactional(), settled=settled)
    found = peer.expect(Detach, Flow)
    assert found.error is not None
    assert found.error.condition == UNKNOWN_ID
    if detached or closed:
        peer.send(Detach(0, closed))
        peer.sync()
    published(dial, topic, b"control")
    assert heard(witness) == b"control"


def assert_retirement_is_refused(
    dial: Dial, peer: Peer, topic: str, *, mode: ReceiverSettleMode = FIRST, settled: bool = True
) -> None:
    """4.4.2: an outcome that names a transaction that does not exist does not count; the message comes again."""
    source = Source(address=topic, expiry_policy=TerminusExpiryPolicy.LINK_DETACH, timeout=60)
    peer.attach_receiver(topic, source=source, rcv_settle_mode=mode)
    sender = published(dial, topic, b"message")
    peer.send_flow(0, 1)
    delivery = peer.delivery()
    peer.dispose(delivery.id, state=transactional(DONE), settled=settled)
    assert _ended(peer).condition == UNKNOWN_ID
    peer.begin(1)
    peer.attach_receiver(topic, source=source, rcv_settle_mode=mode)
    peer.send_flow(0, 1)
    assert heard(peer) == b"message"
    assert sender.outcome(0).state == ACCEPTED, "by the outcome outside of any transaction only"


def assert_acquisition_is_refused(dial: Dial, peer: Peer, topic: str) -> None:
    """4.4.3: credit under a transaction that does not exist is none."""
    peer.attach_receiver(topic, rcv_settle_mode=FIRST)
    published(dial, topic, b"message").sync()
    peer.send_flow(0, 1, properties={Symbol("txn-id"): TRANSACTION})
    found = peer.expect(Detach, Flow)
    assert found.error is not None
    assert found.error.condition == UNKNOWN_ID


def _ended(peer: Peer) -> AmqpError:
    found = peer.expect(End, Flow, Disposition)
    assert found.error is not None
    peer.send(End())
    return found.error


class TestDischarge:
    """4.3: there is no coordinator to discharge anything."""

    def test_discharge_unknown_transaction_id_when_source_supports_rejected_outcome(self, peer: Peer) -> None:
        assert_coordinator_is_refused(peer, 0, BOTH, _discharge(failed=False))
        peer.close()

    def test_discharge_unknown_transaction_id_when_source_does_not_support_rejected_outcome(self, peer: Peer) -> None:
        assert_coordinator_is_refused(peer, 0, BOTH[:1], _discharge(failed=False))
        peer.close()

    def test_discharge_settled_after_receiver_detach(self, dial: Dial, peer: Peer, topic: str) -> None:
        assert_coordinator_is_refused(peer)
        source = Source(address=topic, expiry_policy=TerminusExpiryPolicy.LINK_DETACH, timeout=60)
        peer.attach_receiver(topic, source=source)
        sender = published(dial, topic, b"message")
        peer.send_flow(0, 1)
        delivery = peer.delivery()
        peer.detach()
        peer.dispose(delivery.id, state=transactional(DONE))
        assert _ended(peer).condition == UNKNOWN_ID
        peer.begin(1)
        peer.attach_receiver(topic, source=source)
        peer.send_flow(0, 1)
        assert heard(peer) == b"message", "an outcome behind the detach has not counted"
        assert sender.outcome(0).settled

    def test_discharge_settled_after_sender_detach(self, dial: Dial, peer: Peer, witness: Peer, topic: str) -> None:
        assert_coordinator_is_refused(peer)
        assert_posting_is_refused(dial, peer, witness, topic, settled=True, detached=True)

    def test_discharge_unsettled_after_sender_close(self, dial: Dial, peer: Peer, witness: Peer, topic: str) -> None:
        assert_coordinator_is_refused(peer)
        assert_posting_is_refused(dial, peer, witness, topic, mode=SECOND, closed=True)


class TestTransactionalTransfer:
    """4.4: posting, retirement and acquisition under a transaction that does not exist."""

    def test_send_transactional_posting_receiver_settles_first(
        self, dial: Dial, peer: Peer, witness: Peer, topic: str
    ) -> None:
        assert_coordinator_is_refused(peer)
        assert_posting_is_refused(dial, peer, witness, topic)

    def test_send_transactional_posting_discharge_fail(self, dial: Dial, peer: Peer, witness: Peer, topic: str) -> None:
        assert_posting_is_refused(dial, peer, witness, topic)
        assert_coordinator_is_refused(peer, message=_discharge(failed=True))

    def test_send_transactional_posting_receiver_settles_second(
        self, dial: Dial, peer: Peer, witness: Peer, topic: str
    ) -> None:
        assert_coordinator_is_refused(peer)
        assert_posting_is_refused(dial, peer, witness, topic, mode=SECOND)

    def test_send_transactional_posting_transfer_fails_due_to_unknown_transaction_id(
        self, dial: Dial, peer: Peer, witness: Peer, topic: str
    ) -> None:
        assert_posting_is_refused(dial, peer, witness, topic)

    def test_receive_transactional_retirement_receiver_settle_first(self, dial: Dial, peer: Peer, topic: str) -> None:
        assert_coordinator_is_refused(peer)
        assert_retirement_is_refused(dial, peer, topic)

    def test_receive_transactional_retirement_discharge_fail(self, dial: Dial, peer: Peer, topic: str) -> None:
        assert_retirement_is_refused(dial, peer, topic)
        assert_coordinator_is_refused(peer, message=_discharge(failed=True))

    def test_receive_transactional_retirement_disposition_fails_due_to_unknown_transaction_id(
        self, dial: Dial, peer: Peer, topic: str
    ) -> None:
        assert_retirement_is_refused(dial, peer, topic)

    def test_receive_transactional_retirement_receiver_settle_second(self, dial: Dial, peer: Peer, topic: str) -> None:
        assert_coordinator_is_refused(peer)
        assert_retirement_is_refused(dial, peer, topic, mode=SECOND, settled=False)

    def test_receive_transactional_acquisition_receiver_settle_first(self, dial: Dial, peer: Peer, topic: str) -> None:
        assert_coordinator_is_refused(peer)
        assert_acquisition_is_refused(dial, peer, topic)

    def test_receive_transactional_acquisition_discharge_fail(self, dial: Dial, peer: Peer, topic: str) -> None:
        assert_acquisition_is_refused(dial, peer, topic)
        assert_coordinator_is_refused(peer, message=_discharge(failed=True))

    def test_receive_transactional_acquisition_flow_fails_due_to_unknown_transaction_id(
        self, dial: Dial, peer: Peer, topic: str
    ) -> None:
        assert_acquisition_is_refused(dial, peer, topic)


class TestTransactionTimeout:
    """What cannot begin cannot take too long."""

    def test_transactional_posting_timeout(self, dial: Dial, peer: Peer, witness: Peer, topic: str) -> None:
        assert_coordinator_is_refused(peer)
        assert_posting_is_refused(dial, peer, witness, topic)
        peer.close()

    def test_transactional_retirement_timeout(self, dial: Dial, peer: Peer, topic: str) -> None:
        assert_coordinator_is_refused(peer)
        assert_retirement_is_refused(dial, peer, topic)
        peer.close()


class TestQueueDeletion:
    """Work under a transaction is refused before anything could be deleted under it."""

    def test_transacted_sender_detached_on_queue_deletion_when_transaction_in_progress(
        self, dial: Dial, peer: Peer, witness: Peer, topic: str
    ) -> None:
        assert_coordinator_is_refused(peer)
        assert_posting_is_refused(dial, peer, witness, topic)

    def test_transacted_receiver_detached_on_queue_deletion_when_transaction_in_progress(
        self, dial: Dial, peer: Peer, topic: str
    ) -> None:
        assert_coordinator_is_refused(peer)
        assert_retirement_is_refused(dial, peer, topic)


class TestTransfer:
    """Deliveries with and without a transaction on one link."""

    def test_transfer_mixture_of_transactional_and_non_transactional_deliveries(
        self, dial: Dial, peer: Peer, witness: Peer, topic: str
    ) -> None:
        assert_coordinator_is_refused(peer)
        peer.attach_sender(topic)
        peer.transfer(b"A")
        peer.transfer(b"B")
        assert [heard(witness), heard(witness)] == [b"A", b"B"]
        peer.transfer(b"C", state=transactional())
        found = peer.expect(Detach, Flow, Disposition)
        assert found.error is not None
        assert found.error.condition == UNKNOWN_ID
        published(dial, topic, b"control")
        assert heard(witness) == b"control"

    def test_receive_mixture_of_transactional_and_non_transactional_deliveries(
        self, dial: Dial, peer: Peer, topic: str
    ) -> None:
        assert_coordinator_is_refused(peer)
        source = Source(address=topic, expiry_policy=TerminusExpiryPolicy.LINK_DETACH, timeout=60)
        peer.attach_receiver(topic, source=source)
        sender = published(dial, topic, b"1", b"2", b"3", b"4")
        peer.send_flow(0, 4)
        ids = [peer.delivery().id for _ in range(4)]
        peer.dispose(ids[0], ids[1])
        peer.dispose(ids[2], ids[3], state=transactional(DONE))
        assert _ended(peer).condition == UNKNOWN_ID
        assert sender.outcome(0).state == ACCEPTED
        peer.begin(1)
        peer.attach_receiver(topic, source=source)
        peer.send_flow(0, 4)
        assert [heard(peer), heard(peer)] == [b"3", b"4"], "those that named the transaction, and no others"
