"""Resuming links with unsettled deliveries (2.6.13, 2.7.3): scenarios of the protocol test suite, by its names.

Seven of the eight are disabled there. A publisher without the capability gets the true map (A-3b).
"""

from __future__ import annotations

import pytest

from oncewire.wire import (
    ACCEPTED,
    Attach,
    Detach,
    Disposition,
    Flow,
    ReceiverSettleMode,
    SenderSettleMode,
    Source,
    Target,
    Transfer,
    UnsettledMap,
    encode_data_message,
)
from oncewire.wire.errors import RESOURCE_LIMIT_EXCEEDED
from oncewire.wire.frames import MIN_MAX_FRAME_SIZE
from oncewire.wire.performatives import TerminusDurability, TerminusExpiryPolicy
from tests.conformance.peer import Delivery, Dial, Peer, heard, published, subscribed

FIRST, SECOND = ReceiverSettleMode.FIRST, ReceiverSettleMode.SECOND
MANY = 60
"""Deliveries whose map does not fit into a frame of 512 bytes."""


def _source(topic: str) -> Source:
    return Source(
        address=topic,
        durable=TerminusDurability.UNSETTLED_STATE,
        expiry_policy=TerminusExpiryPolicy.LINK_DETACH,
        timeout=60,
    )


def _attach_publisher(peer: Peer, topic: str, handle: int, unsettled: UnsettledMap) -> Attach:
    target = Target(
        address=topic,
        durable=TerminusDurability.UNSETTLED_STATE,
        expiry_policy=TerminusExpiryPolicy.LINK_DETACH,
        timeout=60,
    )
    return peer.attach_sender(topic, "resumed", handle, target=target, rcv_settle_mode=SECOND, unsettled=unsettled)


def _attach_subscriber(
    peer: Peer,
    topic: str,
    handle: int,
    unsettled: UnsettledMap | None,
    rcv_settle_mode: ReceiverSettleMode = FIRST,
    **fields: object,
) -> Attach:
    return peer.attach_receiver(
        topic,
        "resumed",
        handle,
        source=_source(topic),
        unsettled=unsettled,
        snd_settle_mode=SenderSettleMode.UNSETTLED,
        rcv_settle_mode=rcv_settle_mode,
        **fields,
    )


def _received(peer: Peer) -> Delivery:
    """One delivery on the link with handle 0, which has credit for it, left unsettled."""
    peer.send_flow(0, 1)
    found = peer.delivery()
    assert not found.settled
    return found


class TestResumeDeliveries:
    """2.6.13."""

    def test_resume_sending_link_single_unsettled_delivery(self, dial: Dial, topic: str) -> None:
        witness = subscribed(dial, topic)
        peer = dial().ready()
        _attach_publisher(peer, topic, 0, {})
        number = peer.transfer(b"message", delivery_tag=b"testDeliveryTag")
        assert heard(witness) == b"message"
        answer = peer.outcome(number)
        assert not answer.settled, "rcv-settle-mode second"
        peer.detach()
        reply = _attach_publisher(peer, topic, 1, {b"testDeliveryTag": None})
        assert reply.unsettled == {b"testDeliveryTag": answer.state}
        assert not reply.incomplete_unsettled
        peer.transfer(b"next", 1)
        assert heard(witness) == b"next", "nothing has come again"

    def test_resume_sending_link_with_incomplete_unsettled(self, dial: Dial, topic: str) -> None:
        # Credit is never more than a map of the frame size holds (C-4), so no publisher has a map that does not fit.
        peer = dial().ready(max_frame_size=MIN_MAX_FRAME_SIZE)
        _attach_publisher(peer, topic, 0, {})
        peer.transfer(b"message", delivery_tag=b"testDeliveryTag")
        peer.detach()
        _send_incomplete(peer, topic)
        assert peer.refused(1).condition == RESOURCE_LIMIT_EXCEEDED

    def test_reject_new_delivery_whilst_unsettled_incomplete(self, dial: Dial, topic: str) -> None:
        witness = subscribed(dial, topic)
        peer = dial().ready(max_frame_size=MIN_MAX_FRAME_SIZE)
        _attach_publisher(peer, topic, 0, {})
        peer.detach()
        with peer.pipelined():
            _send_incomplete(peer, topic)
            peer.transfer(b"new", 1)
        assert peer.attached(1).target is None
        assert peer.expect(Detach, Flow).error is not None
        published(dial, topic, b"control")
        assert heard(witness) == b"control", "a new delivery behind an incomplete map goes nowhere"

    def test_incomplete_unsettled_receiving(self, dial: Dial, topic: str) -> None:
        peer = dial().ready(max_frame_size=MIN_MAX_FRAME_SIZE)
        _attach_subscriber(peer, topic, 0, None, SECOND)
        bodies = [b"%d" % number for number in range(MANY)]
        published(dial, topic, *bodies)
        peer.send_flow(0, MANY)
        tags = [peer.delivery().tag for _ in range(MANY)]
        peer.detach()
        reply = _attach_subscriber(peer, topic, 1, {tags[0]: None}, SECOND, incomplete_unsettled=True)
        assert reply.incomplete_unsettled
        assert reply.unsettled is not None
        assert set(reply.unsettled) <= set(tags)
        peer.send_flow(1, MANY)
        found = peer.expect(Transfer, Flow, Disposition)
        assert found.resume, "2.7.3: nothing new goes out behind an incomplete map"
        assert found.delivery_tag == tags[0], "2.6.13: what is in both maps is resumed"

    def test_resume_receiving_link_empty_unsettled(self, dial: Dial, topic: str) -> None:
        peer = dial().ready()
        _attach_subscriber(peer, topic, 0, None)
        sender = published(dial, topic, b"message")
        peer.dispose(_received(peer).id)
        assert sender.outcome(0).settled
        assert not peer.detach().closed
        reply = _attach_subscriber(peer, topic, 0, {})
        assert reply.unsettled == {}

    def test_resume_receiving_link_with_single_unsettled_accepted(self, dial: Dial, topic: str) -> None:
        peer = dial().ready()
        _attach_subscriber(peer, topic, 0, {})
        sender = published(dial, topic, b"message")
        tag = _received(peer).tag
        peer.detach()
        reply = _attach_subscriber(peer, topic, 1, {tag: ACCEPTED})
        assert reply.unsettled == {tag: None}, "A-6: the source has reached no terminal state yet"
        peer.send_flow(1, 1)
        resumed = peer.delivery()
        assert resumed.tag == tag
        assert resumed.frames[0].resume
        assert resumed.settled, "A-7: accepted by the subscriber, then settled"
        assert resumed.body == b"", "A-7: a transfer without a payload would end the connection of some clients"
        assert sender.outcome(0).state == ACCEPTED
        sender.transfer(b"next")
        peer.send_flow(1, 1, delivery_count=1)
        assert heard(peer) == b"next"

    def test_resume_receiving_link_one_unsettled_with_no_outcome(self, dial: Dial, topic: str) -> None:
        peer = dial().ready()
        _attach_subscriber(peer, topic, 0, {})
        sender = published(dial, topic, b"message")
        tag = _received(peer).tag
        peer.detach()
        reply = _attach_subscriber(peer, topic, 1, {tag: None})
        assert reply.unsettled == {tag: None}
        peer.send_flow(1, 1)
        resumed = peer.delivery()
        assert resumed.tag == tag
        assert resumed.frames[0].resume
        assert resumed.body == b"message"
        peer.dispose(resumed.id)
        assert sender.outcome(0).state == ACCEPTED
        sender.transfer(b"next")
        peer.send_flow(1, 1, delivery_count=1)
        assert heard(peer) == b"next"

    @pytest.mark.parametrize("resume", [False, True])
    def test_resume_sending_link_single_partial_delivery(self, dial: Dial, topic: str, resume: bool) -> None:
        # A part belongs to its link (I-1a): the reply map has no entry, so the delivery is sent again from its start.
        witness = subscribed(dial, topic)
        peer = dial().ready()
        _attach_publisher(peer, topic, 0, {})
        message = encode_data_message(b"partial")
        peer.transfer(payload=message[:4], delivery_tag=b"testDeliveryTag", more=True)
        peer.detach()
        reply = _attach_publisher(peer, topic, 1, {b"testDeliveryTag": None})
        assert reply.unsettled == {}
        if resume:  # 2.6.13: for what the receiver's map does not name, resume is ignored
            peer.transfer(payload=message[4:], handle=1, delivery_tag=b"testDeliveryTag", resume=True)
        again = peer.transfer(payload=message, handle=1, delivery_tag=b"testDeliveryTag")
        assert heard(witness) == b"partial"
        assert peer.outcome(again).state == ACCEPTED
        peer.send(Disposition(False, again, again, True, ACCEPTED))
        peer.sync()


def _send_incomplete(peer: Peer, topic: str) -> None:
    """Attach the publisher again with a part of its map."""
    peer.send_attach(
        False,
        "resumed",
        1,
        source=Source(),
        target=Target(address=topic),
        rcv_settle_mode=SECOND,
        unsettled={b"testDeliveryTag": None},
        incomplete_unsettled=True,
    )


def test_a_sender_that_resumes_as_long_as_there_is_no_outcome_delivers_each_message_once(
    dial: Dial, topic: str
) -> None:
    # What fe2o3-amqp does: it sends under new tags what the reply leaves out, then detaches and resumes again.
    reader = dial().ready()
    _attach_subscriber(reader, topic, 0, {}, SECOND)
    reader.send_flow(0, 100)
    peer = dial().ready()
    _attach_publisher(peer, topic, 0, {})
    bodies = [b"two", b"three", b"four"]
    tags = [b"2", b"3", b"4"]
    for tag, body in zip(tags, bodies, strict=True):
        peer.transfer(body, delivery_tag=tag)
    found = [reader.delivery() for _ in bodies]
    assert [each.body for each in found] == bodies
    unsettled: dict[bytes, bytes] = dict(zip(tags, bodies, strict=True))
    for handle in range(1, 9):
        peer.detach(handle - 1)
        reply = _attach_publisher(peer, topic, handle, dict.fromkeys(reversed(unsettled)))
        assert reply.unsettled == dict.fromkeys(tags)
        for tag, body in unsettled.items():
            peer.transfer(body, handle, delivery_tag=tag, resume=True)
    for each in found:
        reader.dispose(each.id, settled=False)
    reader.sync()
    peer.detach(8)
    reply = _attach_publisher(peer, topic, 9, dict.fromkeys(tags))
    assert reply.unsettled == dict.fromkeys(tags, ACCEPTED), "so it stops"
    peer.transfer(b"last", 9, delivery_tag=b"5")
    assert reader.delivery(Disposition).body == b"last", "nothing has come twice"
