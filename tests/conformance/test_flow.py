"""Flows, credit and drain (parts 2.5.6, 2.6.7 to 2.6.10, 2.7.4): scenarios of the protocol test suite, by its names."""

from __future__ import annotations

from oncewire.wire import Described, Disposition, End, Flow, ReceiverSettleMode, Source, Symbol, Target, ULong
from oncewire.wire.errors import DECODE_ERROR, INVALID_FIELD, UNATTACHED_HANDLE
from oncewire.wire.performatives import TerminusExpiryPolicy
from tests.conformance.peer import FLOW, Dial, composite, heard, published, subscribed, symbols

UNKNOWN_HANDLE = 0x7FFFFFFF


def _kept(topic: str) -> Source:
    """A subscription that outlives its link."""
    return Source(address=topic, expiry_policy=TerminusExpiryPolicy.LINK_DETACH, timeout=60)


class TestFlow:
    """2.6.7 to 2.6.10 and 2.7.4."""

    def test_empty_flow(self, dial: Dial) -> None:
        peer = dial().ready()
        peer.send(composite(FLOW))
        assert peer.expect_error()[1].condition in (DECODE_ERROR, INVALID_FIELD)

    def test_session_echo_flow(self, dial: Dial) -> None:
        peer = dial().ready()
        peer.send_flow(incoming_window=1, outgoing_window=0, echo=True)
        answer = peer.expect(Flow)
        assert not answer.echo
        assert answer.handle is None

    def test_link_echo_flow(self, dial: Dial, topic: str) -> None:
        peer = dial().ready()
        reply = peer.attach_receiver(topic)
        peer.send_flow(0, 1, available=10, echo=True)
        answer = peer.expect(Flow)
        assert not answer.echo
        assert answer.handle == reply.handle

    def test_synchronous_get(self, dial: Dial, topic: str) -> None:
        peer = dial().ready()
        peer.attach_receiver(topic)
        sender = published(dial, topic, b"message")
        peer.send_flow(0, 1, incoming_window=1)
        assert heard(peer) == b"message"
        assert sender.outcome(0).settled

    def test_drain_empty_queue(self, dial: Dial, topic: str) -> None:
        peer = dial().ready()
        reply = peer.attach_receiver(topic)
        peer.send_flow(0, 1, drain=True)
        answer = peer.expect(Flow)
        assert (answer.handle, answer.drain) == (reply.handle, True)
        assert (answer.delivery_count, answer.link_credit) == (1, 0), "2.6.7: delivery-count advances over all credit"

    def test_flow_with_unknown_handle(self, dial: Dial) -> None:
        peer = dial().ready()
        peer.send_flow(UNKNOWN_HANDLE, 1, echo=True)
        what, error = peer.expect_error()
        assert (what, error.condition) == (End, UNATTACHED_HANDLE)

    def test_flow_with_rewound_next_outgoing_id_ends_session(self, dial: Dial, topic: str) -> None:
        # It does not end here. 2.5.6: on a flow the next-incoming-id is updated directly from the next-outgoing-id of
        # the frame, so the router follows its peer, back as well.
        witness = subscribed(dial, topic)
        peer = dial().ready()
        peer.attach_sender(topic)
        peer.transfer(b"1")
        peer.send_flow(next_outgoing_id=0, echo=True)
        # Before the answer the window may be topped up, behind the first frame.
        while (answer := peer.expect(Flow, Disposition)).handle is not None or answer.next_incoming_id == 1:
            pass
        assert answer.next_incoming_id == 0
        peer.transfer(b"2")
        assert [heard(witness), heard(witness)] == [b"1", b"2"], "delivery-ids and tags are not touched by it"

    def test_synchronous_get_with_timeout_empty_queue(self, dial: Dial, topic: str) -> None:
        peer = dial().ready()
        reply = peer.attach_receiver(topic)
        peer.send_flow(0, 1, incoming_window=1, echo=True)
        assert peer.expect(Flow).handle == reply.handle
        peer.send_flow(0, 1, incoming_window=1, drain=True)
        answer = peer.expect(Flow)
        assert (answer.handle, answer.drain, answer.link_credit) == (reply.handle, True, 0)

    def test_synchronous_get_with_timeout_non_empty_queue(self, dial: Dial, topic: str) -> None:
        peer = dial().ready()
        reply = peer.attach_receiver(topic)
        peer.send_flow(0, 1, incoming_window=1)
        sender = published(dial, topic, b"message")
        delivery = peer.delivery()
        assert delivery.body == b"message"
        peer.send_flow(0, 1, delivery_count=1, drain=True)
        answer = peer.expect(Flow)
        assert (answer.handle, answer.link_credit, answer.delivery_count) == (reply.handle, 0, 2)
        peer.dispose(delivery.id)
        assert sender.outcome(0).settled

    def test_asynchronous_notification(self, dial: Dial, topic: str) -> None:
        peer = dial().ready()
        peer.attach_receiver(topic, source=_kept(topic))
        published(dial, topic, b"1", b"2", b"3").sync()
        peer.send_flow(0, 1)
        first = peer.delivery()
        peer.send_flow(0, 1, delivery_count=1)
        second = peer.delivery()
        assert (first.body, second.body) == (b"1", b"2")
        peer.dispose(first.id, second.id)
        peer.detach()  # nothing but flows comes before the answer: a third delivery had no credit
        peer.attach_receiver(topic, source=_kept(topic))
        peer.send_flow(0, 1)
        assert heard(peer) == b"3"

    def test_stopping_a_link(self, dial: Dial, topic: str) -> None:
        peer = dial().ready()
        reply = peer.attach_receiver(topic)
        sender = published(dial, topic, b"1")
        peer.send_flow(0, 2)
        delivery = peer.delivery()
        assert delivery.body == b"1"
        peer.send_flow(0, 0, delivery_count=1, echo=True)
        answer = peer.expect(Flow)
        assert (answer.handle, answer.link_credit, answer.echo) == (reply.handle, 0, False)
        sender.transfer(b"2")
        sender.sync()
        peer.sync()  # only flows come: no credit, no message
        peer.dispose(delivery.id)
        peer.send_flow(0, 1, delivery_count=1)
        assert heard(peer) == b"2"

    def test_drain(self, dial: Dial, topic: str) -> None:
        peer = dial().ready()
        reply = peer.attach_receiver(topic)
        sender = published(dial, topic, b"message")
        sender.sync()
        peer.send_flow(0, 2, drain=True)
        delivery = peer.delivery()
        assert delivery.body == b"message"
        answer = peer.expect(Flow)
        assert (answer.handle, answer.delivery_count, answer.link_credit) == (reply.handle, 2, 0)
        peer.dispose(delivery.id)
        assert sender.outcome(0).settled


class TestManagement:
    """A temporary queue, in a virtual host of that name in the suite."""

    def test_drain_temporary_message_source(self, dial: Dial) -> None:
        peer = dial().ready(hostname="$management")
        target = Target(
            dynamic=True,
            expiry_policy=TerminusExpiryPolicy.LINK_DETACH,
            dynamic_node_properties={Symbol("lifetime-policy"): Described(ULong(0x2B), [])},
            capabilities=symbols("temporary-queue"),
        )
        made = peer.attach_sender("", "temporary", target=target).target
        assert isinstance(made, Target)
        assert made.address
        reply = peer.attach_receiver(made.address, "answers", 1, rcv_settle_mode=ReceiverSettleMode.FIRST)
        assert isinstance(reply.source, Source)
        assert reply.source.address == made.address
        peer.send_flow(1, 1, incoming_window=1)
        peer.send_flow(1, 1, incoming_window=1, drain=True)
        answer = peer.expect(Flow)
        assert (answer.handle, answer.link_credit) == (reply.handle, 0)
        assert answer.delivery_count == 1, "2.6.7: delivery-count advances over all credit"
        peer.close()
