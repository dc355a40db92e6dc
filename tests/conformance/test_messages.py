"""Messages in several frames, their format and their outcomes (2.6.14, 2.7.5, 3.2, 3.4): scenarios of the protocol
test suite, by its names."""

from __future__ import annotations

import pytest

from oncewire.wire import (
    Attach,
    Described,
    Detach,
    Fields,
    Flow,
    Header,
    Message,
    Modified,
    Source,
    Symbol,
    Target,
    UInt,
    ULong,
    encode_data_message,
    encode_message,
)
from oncewire.wire.encoding import encode
from oncewire.wire.errors import DECODE_ERROR, INVALID_FIELD
from tests.conformance.peer import Dial, Peer, assert_accepted, heard, published, subscribed, symbols


@pytest.fixture
def witness(dial: Dial, topic: str) -> Peer:
    """Another connection's subscription of the topic."""
    return subscribed(dial, topic)


@pytest.fixture
def peer(dial: Dial, topic: str, witness: Peer) -> Peer:
    """A publisher of the topic, which is subscribed to."""
    found = dial().ready()
    found.attach_sender(topic)
    return found


def _parts(body: bytes, count: int) -> list[bytes]:
    """The encoded message in so many parts."""
    message = encode_data_message(body)
    size = -(-len(message) // count)
    return [message[start : start + size] for start in range(0, len(message), size)]


class TestMultiTransfer:
    """2.6.14."""

    def test_multi_transfer_message(self, peer: Peer, witness: Peer) -> None:
        first, second = _parts(b"in two", 2)
        number = peer.transfer(payload=first, more=True)
        peer.more(second, delivery_id=number)
        assert heard(witness) == b"in two"
        assert_accepted(peer, number)

    def test_multi_transfer_message_having_transfers_without_payload(self, peer: Peer, witness: Peer) -> None:
        number = peer.transfer(b"in one", more=True)
        peer.more(b"", more=True)
        peer.more(b"")
        assert heard(witness) == b"in one"
        assert_accepted(peer, number)

    def test_multi_transfer_message_omitting_optional_tag_and_id(self, peer: Peer, witness: Peer) -> None:
        parts = _parts(b"in four parts", 4)
        number = peer.transfer(payload=parts[0], delivery_tag=b"testTransfer", more=True)
        peer.more(parts[1], delivery_id=number, more=True)
        peer.more(parts[2], delivery_tag=b"testTransfer", more=True)
        peer.more(parts[3])
        assert heard(witness) == b"in four parts"
        assert_accepted(peer, number)

    def test_abort_multi_transfer_message(self, peer: Peer, witness: Peer) -> None:
        first, _ = _parts(b"aborted", 2)
        peer.transfer(payload=first, settled=True, more=True)
        peer.more(b"", settled=True, aborted=True)
        peer.transfer(b"second")
        assert heard(witness) == b"second", "what came before the abort is discarded"

    def test_multi_transfer_interleaved(self, dial: Dial, witness: Peer, topic: str) -> None:
        peer = dial().ready()
        peer.attach_sender(topic, "testLink1", 0)
        peer.attach_sender(topic, "testLink2", 1)
        (a1, a2), (b1, b2) = _parts(b"message a", 2), _parts(b"message b", 2)
        first = peer.transfer(payload=a1, handle=0, more=True)
        second = peer.transfer(payload=b1, handle=1, more=True)
        peer.more(a2, 0, delivery_id=first)
        peer.more(b2, 1, delivery_id=second)
        assert {heard(witness), heard(witness)} == {b"message a", b"message b"}
        assert_accepted(peer, first, second)

    def test_illegally_interleaved_multi_transfer_on_single_link(
        self, dial: Dial, peer: Peer, witness: Peer, topic: str
    ) -> None:
        (a1, a2), (b1, b2) = _parts(b"message a", 2), _parts(b"message b", 2)
        first = peer.transfer(payload=a1, delivery_tag=b"1", settled=True, more=True)
        second = peer.transfer(payload=b1, delivery_tag=b"2", settled=True, more=True)
        peer.more(a2, delivery_id=first, delivery_tag=b"1", settled=True)
        peer.more(b2, delivery_id=second, delivery_tag=b"2", settled=True)
        what, error = peer.expect_error(Flow)
        assert (what, error.condition) == (Detach, INVALID_FIELD)
        published(dial, topic, b"control")
        assert heard(witness) == b"control", "neither of the two went anywhere"


class TestMessageFormat:
    """2.7.5."""

    def test_different_message_format_on_same_delivery_fails(
        self, dial: Dial, peer: Peer, witness: Peer, topic: str
    ) -> None:
        first, second = _parts(b"in two", 2)
        peer.transfer(payload=first, settled=True, more=True, message_format=0)
        peer.more(second, settled=True, message_format=1)
        what, error = peer.expect_error(Flow)
        assert (what, error.condition) == (Detach, INVALID_FIELD)
        published(dial, topic, b"control")
        assert heard(witness) == b"control"


class TestOutcome:
    """3.4.5 and 3.5.3."""

    def test_modified_outcome_with_undeliverable_here(self, dial: Dial, topic: str) -> None:
        peer = dial().ready()
        reply = peer.attach_receiver(topic)
        assert reply.source is not None
        assert Symbol("amqp:modified:list") in reply.source.outcomes
        sender = published(dial, topic, b"1", b"2")
        peer.send_flow(0, 1, incoming_window=1)
        first = peer.delivery()
        assert first.body == b"1"
        peer.dispose(first.id, state=Modified(undeliverable_here=True))
        peer.send_flow(0, 2, delivery_count=1)
        assert heard(peer) == b"2", "the first does not come again"
        # Nobody else can take what one subscription may not have, so it is done (E-4a).
        assert_accepted(sender, 1)
        peer.close()

    def test_transfer_message_with_attach_source_having_explicitly_set_outcomes_to_accepted(
        self, dial: Dial, witness: Peer, topic: str
    ) -> None:
        peer = dial().ready()
        peer.attach_sender(topic, source=Source(outcomes=symbols("amqp:accepted:list")))
        number = peer.transfer(b"message")
        assert heard(witness) == b"message"
        assert_accepted(peer, number)


class TestDecodeError:
    """3.2 and 3.5.9."""

    def test_illegal_message(self, dial: Dial, peer: Peer, witness: Peer, topic: str) -> None:
        header = encode_message(Message(header=Header(ttl=10_000), body=b""))[: -len(encode_data_message(b""))]
        annotations = encode(Described(ULong(0x71), {Symbol("foo"): "bar"}))
        between = encode("string in between message sections")
        body = encode_data_message(b"body")
        peer.transfer(payload=header + between + annotations + body, settled=True)
        peer.sync()
        published(dial, topic, b"control")
        assert heard(witness) == b"control", "what is no message went nowhere"

    def test_node_properties_lifetime_policy(self, dial: Dial) -> None:
        peer = dial().ready()
        properties: Fields = {Symbol("lifetime-policy"): UInt(0xFFFFFFFF)}
        source = Source(dynamic=True, dynamic_node_properties=properties)
        peer.send_attach(True, "in", 0, source=source, target=Target())
        assert _attach_error(peer) in (DECODE_ERROR, INVALID_FIELD)

    def test_node_properties_supported_distribution_modes(self, dial: Dial) -> None:
        peer = dial().ready()
        properties: Fields = {Symbol("supported-dist-modes"): UInt(0)}
        target = Target(dynamic=True, dynamic_node_properties=properties)
        peer.send_attach(False, "out", 0, source=Source(), target=target)
        assert _attach_error(peer) in (DECODE_ERROR, INVALID_FIELD)


def _attach_error(peer: Peer) -> Symbol:
    """The condition with which an attach fails, whatever it ends."""
    return peer.expect_error(Attach)[1].condition


class TestMalformedMessage:
    """Routers read a message as far as they must (I-1b), and copy the rest."""

    def test_malformed_message(self, peer: Peer, witness: Peer, topic: str) -> None:
        # The bare message is the receiver's to decode: no router reads it, and the link goes on.
        properties = encode(Described(ULong(0x73), [None, None, topic]))
        cut_off = encode(Described(ULong(0x77), "Test"))[:-1]
        number = peer.transfer(payload=properties + cut_off)
        delivery = witness.delivery()
        assert delivery.payload.endswith(properties + cut_off)
        witness.dispose(delivery.id)
        assert_accepted(peer, number)


class TestTransferLimit:
    """How many frames a delivery has is bounded by its size here, not by their number."""

    def test_transfers_at_exact_limit_succeed(self, peer: Peer, witness: Peer) -> None:
        number = peer.transfer(b"in three frames", delivery_tag=b"", more=True)
        peer.more(b"", more=True)
        peer.more(b"")
        assert heard(witness) == b"in three frames"
        assert_accepted(peer, number)
