"""Transfers and their outcomes (parts 2.6.12 and 2.7.5): scenarios of the protocol test suite, by its names.

A queue of the suite is a topic here, with the subscription of a second connection, `witness`, attached first.
"""

from __future__ import annotations

import pytest

from oncewire.wire import (
    ACCEPTED,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Header,
    Message,
    Open,
    Received,
    ReceiverSettleMode,
    Rejected,
    SenderSettleMode,
    Source,
    Target,
    Transfer,
    encode_message,
)
from oncewire.wire.errors import (
    DECODE_ERROR,
    INVALID_FIELD,
    MESSAGE_SIZE_EXCEEDED,
    NOT_ALLOWED,
    TRANSFER_LIMIT_EXCEEDED,
    UNATTACHED_HANDLE,
)
from oncewire.wire.frames import AMQP_HEADER
from oncewire.wire.performatives import Attach, Begin, TerminusExpiryPolicy
from tests.conformance.peer import (
    TRANSFER,
    Dial,
    Peer,
    assert_accepted,
    composite,
    heard,
    published,
    subscribed,
    symbols,
)
from tests.conformance.routers import LARGEST_MESSAGE

FIRST, SECOND = ReceiverSettleMode.FIRST, ReceiverSettleMode.SECOND
DURABLE = encode_message(Message(header=Header(durable=True), body=b"durable"))


@pytest.fixture
def peer(dial: Dial) -> Peer:
    """A connection with a session."""
    return dial().ready()


@pytest.fixture
def witness(dial: Dial, topic: str) -> Peer:
    """Another connection's subscription of the topic."""
    return subscribed(dial, topic)


class TestTransfer:
    """What goes out in a transfer, and what comes back."""

    def test_transfer_handle_unspecified(self, peer: Peer, topic: str) -> None:
        peer.attach_sender(topic)
        peer.send(composite(TRANSFER, None, None, b"tag"), b"\x00\x53\x75\xa0\x01x")
        what, error = peer.expect_error(Flow)
        assert error.condition in (DECODE_ERROR, INVALID_FIELD), f"{what}: 2.7.5: the handle is mandatory"

    def test_transfer_delivery_id_unspecified(self, peer: Peer, topic: str) -> None:
        peer.attach_sender(topic)
        peer.transfer(b"message", delivery_id=None)
        what, error = peer.expect_error(Flow)
        assert (what, error.condition) == (Detach, INVALID_FIELD)

    def test_transfer_delivery_tag_unspecified(self, peer: Peer, topic: str) -> None:
        peer.attach_sender(topic)
        peer.transfer(b"message", delivery_tag=None)
        what, error = peer.expect_error(Flow)
        assert (what, error.condition) == (Detach, INVALID_FIELD)

    def test_transfer_unsettled(self, peer: Peer, witness: Peer, topic: str) -> None:
        peer.attach_sender(topic, handle=1)
        number = peer.transfer(b"message", 1)
        assert heard(witness) == b"message"
        assert_accepted(peer, number)

    def test_transfer_without_payload(self, peer: Peer, witness: Peer, topic: str) -> None:
        peer.attach_sender(topic)
        empty = peer.transfer()
        found = peer.outcome(empty)
        assert found.settled
        assert isinstance(found.state, Rejected), "3.2: a message has sections"
        assert found.state.error is not None
        assert found.state.error.condition == DECODE_ERROR
        peer.transfer(b"next")
        assert heard(witness) == b"next", "the message without a section went nowhere"

    def test_transfer_messages_with_the_same_delivery_tag_on_separate_links_belonging_to_the_same_session(
        self, peer: Peer, witness: Peer, topic: str
    ) -> None:
        peer.attach_sender(topic, "test1", 1)
        peer.attach_sender(topic, "test2", 2)
        first = peer.transfer(b"1", 1, delivery_tag=b"deliveryTag")
        second = peer.transfer(b"2", 2, delivery_tag=b"deliveryTag")
        assert {heard(witness), heard(witness)} == {b"1", b"2"}
        assert_accepted(peer, first, second)

    @pytest.mark.parametrize("link_mode", [FIRST, SECOND])
    def test_transfer_receiver_settle_mode_first(
        self, peer: Peer, witness: Peer, topic: str, link_mode: ReceiverSettleMode
    ) -> None:
        peer.attach_sender(topic, rcv_settle_mode=link_mode)
        number = peer.transfer(b"message", rcv_settle_mode=FIRST)
        assert heard(witness) == b"message"
        assert_accepted(peer, number)

    def test_transfer_receiver_settle_mode_cannot_be_second_when_link_mode_is_first(
        self, peer: Peer, topic: str
    ) -> None:
        peer.attach_sender(topic, rcv_settle_mode=FIRST)
        peer.transfer(b"message", rcv_settle_mode=SECOND)
        what, error = peer.expect_error(Flow)
        assert (what, error.condition) == (Detach, INVALID_FIELD)

    def test_presettled_pipelined(self, dial: Dial, topic: str) -> None:
        # 2.6.7: a sender starts without credit, and credit is granted when the attach is done, so what is pipelined
        # behind the attach may not be sent: the link is detached, and all the rest goes on.
        witness = subscribed(dial, topic)
        peer = dial()
        with peer.pipelined():
            peer.header()
            peer.send_open()
            peer.send_begin()
            peer.send_attach(False, "out", 0, source=Source(), target=Target(address=topic))
            peer.transfer(b"too early", settled=True)
            peer.send(Close())
        assert peer.expect_header() == AMQP_HEADER
        peer.expect(Open)
        peer.expect(Begin)
        peer.expect(Attach)
        error = peer.expect(Detach, Flow).error
        assert error is not None
        assert error.condition == TRANSFER_LIMIT_EXCEEDED
        assert peer.expect(Close).error is None
        published(dial, topic, b"in time")
        assert heard(witness) == b"in time"

    def test_durable_transfer_with_rejected_outcome(self, peer: Peer, witness: Peer, topic: str) -> None:
        # 3.2.1: its publisher holds the message until every subscription has it, so a stopped router loses nothing.
        source = Source(outcomes=symbols("amqp:accepted:list", "amqp:rejected:list"))
        peer.attach_sender(topic, source=source)
        number = peer.transfer(payload=DURABLE, rcv_settle_mode=FIRST)
        assert heard(witness) == b"durable"
        assert_accepted(peer, number)

    def test_durable_transfer_without_rejected_outcome(self, peer: Peer, witness: Peer, topic: str) -> None:
        peer.attach_sender(topic, source=Source(outcomes=symbols("amqp:accepted:list")))
        number = peer.transfer(payload=DURABLE, rcv_settle_mode=FIRST)
        assert heard(witness) == b"durable"
        assert_accepted(peer, number)

    def test_receive_transfer_unsettled(self, dial: Dial, topic: str) -> None:
        peer = dial()
        peer.open(container_id="unsettled")
        peer.begin()
        peer.attach_receiver(topic, source=_kept(topic))
        published(dial, topic, b"message")
        peer.send_flow(0, 1, incoming_window=1)
        assert peer.delivery().body == b"message"
        peer.drop()
        again = dial()
        again.open(container_id="unsettled")
        again.begin()
        again.attach_receiver(topic, source=_kept(topic))
        again.send_flow(0, 1)
        assert heard(again) == b"message", "what was not settled comes again"

    def test_receive_transfer_receiver_settle_first(self, peer: Peer, dial: Dial, topic: str) -> None:
        peer.attach_receiver(topic, rcv_settle_mode=FIRST)
        sender = published(dial, topic, b"message")
        peer.send_flow(0, 1, incoming_window=1)
        assert heard(peer) == b"message"
        assert_accepted(sender, 0)
        peer.end()

    def test_receive_transfer_receiver_settle_second(self, peer: Peer, dial: Dial, topic: str) -> None:
        assert peer.attach_receiver(topic, rcv_settle_mode=SECOND).rcv_settle_mode == SECOND
        peer.send_flow(0, 1, incoming_window=1)
        published(dial, topic, b"message")
        delivery = peer.delivery()
        assert delivery.body == b"message"
        peer.dispose(delivery.id, state=ACCEPTED, settled=False)
        answer = peer.expect(Disposition, Flow)
        assert not answer.role
        assert answer.settled, "the sender settles first"
        peer.dispose(delivery.id)
        peer.sync()

    def test_receive_transfer_receiver_settle_second_with_rejected_outcome(
        self, peer: Peer, dial: Dial, topic: str
    ) -> None:
        source = Source(address=topic, outcomes=symbols("amqp:accepted:list", "amqp:rejected:list"))
        assert peer.attach_receiver(topic, source=source, rcv_settle_mode=SECOND).rcv_settle_mode == SECOND
        peer.send_flow(0, 1, incoming_window=1)
        sender = published(dial, topic, b"message")
        delivery = peer.delivery()
        peer.dispose(delivery.id, state=Rejected(), settled=False)
        assert peer.expect(Disposition, Flow).settled
        # A subscription that rejects a message has processed it (E-4a): the others decide nothing else here.
        assert sender.outcome(0).settled

    def test_receive_transfer_receiver_settle_second_with_implicit_disposition_state(
        self, peer: Peer, dial: Dial, topic: str
    ) -> None:
        peer.attach_receiver(topic, source=Source(address=topic), rcv_settle_mode=SECOND)
        published(dial, topic, b"message")
        peer.send_flow(0, 2)
        delivery = peer.delivery()
        peer.dispose(delivery.id, state=None, settled=False)
        peer.send_flow(echo=True)
        assert peer.expect(Flow).handle is None, "no state and not settled: nothing has changed"
        peer.dispose(delivery.id, state=None, settled=True)
        # 3.5.3: without an outcome the default-outcome counts; without one of these it is released, and comes again.
        assert heard(peer) == b"message"

    def test_receive_transfer_receiver_indicates_non_terminal_delivery_state(self, dial: Dial, topic: str) -> None:
        peer = dial().ready(max_frame_size=4096)
        peer.attach_receiver(topic, rcv_settle_mode=SECOND)
        peer.send_flow(0, 1, incoming_window=1)
        body = b"*" * 4096
        sender = published(dial, topic, body)
        first = peer.expect(Transfer, Flow)
        assert first.more
        assert first.delivery_id is not None
        payload = peer.payload
        peer.dispose(first.delivery_id, state=Received(0, len(payload) + 1), settled=False)
        peer.send_flow(incoming_window=1)
        assert not peer.expect(Transfer, Flow).more
        assert (payload + peer.payload).endswith(body)
        peer.dispose(first.delivery_id)
        assert_accepted(sender, 0)

    def test_receive_transfer_sender_settle_mode_settled(self, peer: Peer, dial: Dial, topic: str) -> None:
        reply = peer.attach_receiver(topic, snd_settle_mode=SenderSettleMode.SETTLED)
        assert reply.snd_settle_mode == SenderSettleMode.SETTLED
        peer.send_flow(0, 1)
        peer.sync()  # what comes without credit is not kept for an at-most-once subscriber (I-1c)
        published(dial, topic, b"message")
        delivery = peer.delivery()
        assert delivery.settled
        assert delivery.body == b"message"

    def test_transfers_with_duplicate_unsettled_delivery_tag(self, peer: Peer, witness: Peer, topic: str) -> None:
        assert peer.attach_sender(topic, rcv_settle_mode=SECOND).rcv_settle_mode == SECOND
        first = peer.transfer(b"1", delivery_tag=b"testDeliveryTag")
        second = peer.transfer(b"2", delivery_tag=b"testDeliveryTag")
        assert second == first + 1
        what, error = peer.expect_error(Flow)
        assert (what, error.condition) == (Detach, NOT_ALLOWED)
        assert heard(witness) == b"1"

    def test_delivery_tag_can_be_reused_after_delivery_is_settled(self, peer: Peer, witness: Peer, topic: str) -> None:
        peer.attach_sender(topic)
        peer.transfer(b"1", delivery_tag=b"testDeliveryTag", settled=True)
        again = peer.transfer(b"2", delivery_tag=b"testDeliveryTag")
        assert [heard(witness), heard(witness)] == [b"1", b"2"]
        assert_accepted(peer, again)

    def test_exceed_max_message_size_limit(self, peer: Peer, topic: str) -> None:
        reply = peer.attach_sender(topic)
        assert reply.max_message_size == LARGEST_MESSAGE
        chunk = bytes(LARGEST_MESSAGE // 4)
        peer.transfer(payload=chunk, settled=True, more=True)
        for _ in range(4):
            peer.more(chunk, settled=True, more=True)
        what, error = peer.expect_error(Flow)
        assert (what, error.condition) == (Detach, MESSAGE_SIZE_EXCEEDED)

    def test_transfer_multiple_deliveries(self, peer: Peer, witness: Peer, topic: str) -> None:
        peer.attach_sender(topic)
        numbers = [peer.transfer(body, delivery_tag=body) for body in (b"A", b"B", b"C")]
        assert [heard(witness) for _ in range(3)] == [b"A", b"B", b"C"]
        assert_accepted(peer, *numbers)
        peer.close()

    def test_receive_multiple_deliveries(self, peer: Peer, dial: Dial, topic: str) -> None:
        peer.attach_receiver(topic, rcv_settle_mode=FIRST)
        sender = published(dial, topic, b"1", b"2", b"3", b"4")
        peer.send_flow(0, 4, incoming_window=4)
        deliveries = [peer.delivery() for _ in range(4)]
        assert [each.body for each in deliveries] == [b"1", b"2", b"3", b"4"]
        peer.dispose(deliveries[0].id, deliveries[-1].id)
        assert_accepted(sender, 0, 1, 2, 3)
        peer.send_flow(0, 1, delivery_count=4)
        sender.transfer(b"5")
        assert heard(peer) == b"5", "none of those that were settled comes again"

    def test_transfer_on_unattached_handle(self, peer: Peer) -> None:
        peer.transfer(b"test", 999)
        what, error = peer.expect_error()
        assert (what, error.condition) == (End, UNATTACHED_HANDLE)


def _kept(topic: str) -> Source:
    return Source(address=topic, expiry_policy=TerminusExpiryPolicy.LINK_DETACH, timeout=60)
