"""Attach, detach, stealing, termini (parts 2.6.1 to 2.6.6 and 3.5): scenarios of the protocol test suite, by its names.

Every address here is a topic: a queue of the suite becomes a topic with a subscription that is attached first.
"""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any
from urllib.parse import quote

from oncewire.wire import (
    Attach,
    Described,
    Detach,
    Fields,
    Flow,
    Message,
    Source,
    Symbol,
    Target,
    ULong,
    encode_message,
)
from oncewire.wire.errors import (
    DECODE_ERROR,
    INVALID_FIELD,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    RESOURCE_DELETED,
    RESOURCE_LOCKED,
    STOLEN,
    UNATTACHED_HANDLE,
)
from oncewire.wire.performatives import End, TerminusDurability, TerminusExpiryPolicy
from tests.conformance.peer import ATTACH, DEADLINE_S, Dial, Peer, composite, heard, published, symbols
from tests.conformance.routers import Router

DELETE_ON_CLOSE: Fields = {Symbol("lifetime-policy"): Described(ULong(0x2B), [])}
SENDER, RECEIVER = False, True


class TestAttach:
    """2.6.3."""

    def test_empty_attach(self, dial: Dial) -> None:
        peer = dial().ready()
        peer.send(composite(ATTACH))
        assert peer.expect_error()[1].condition in (DECODE_ERROR, INVALID_FIELD)

    def test_successful_attach_as_sender(self, dial: Dial, topic: str) -> None:
        peer = dial().ready()
        reply = peer.attach(SENDER, "out", 0, source=Source(), target=Target(address=topic))
        assert reply.name == "out"
        assert reply.role is RECEIVER
        assert isinstance(reply.target, Target)
        assert reply.target.address == topic
        assert reply.source is not None

    def test_successful_attach_as_receiver(self, dial: Dial, topic: str) -> None:
        peer = dial().ready()
        reply = peer.attach(RECEIVER, "in", 0, source=Source(address=topic), target=Target())
        assert reply.name == "in"
        assert reply.role is SENDER
        assert reply.source is not None
        assert reply.source.address == topic
        assert reply.initial_delivery_count is not None, "2.7.3: a sender's attach says where it counts from"

    def test_attach_receiver_with_null_target(self, dial: Dial, topic: str) -> None:
        peer = dial().ready()
        peer.send_attach(RECEIVER, "in", 0, source=Source(address=topic))
        assert peer.refused(initial_delivery_count=0).condition == INVALID_FIELD
        _assert_handle_is_free(peer)

    def test_attach_sender_with_null_source(self, dial: Dial, topic: str) -> None:
        peer = dial().ready()
        peer.send_attach(SENDER, "out", 0, target=Target(address=topic))
        assert peer.refused().condition == INVALID_FIELD
        _assert_handle_is_free(peer)


def _assert_handle_is_free(peer: Peer) -> None:
    """Nothing is attached to handle 0: a flow that names it ends the session."""
    peer.send_flow(0, 1, echo=True)
    what, error = peer.expect_error()
    assert (what, error.condition) == (End, UNATTACHED_HANDLE)


class TestLinkStealing:
    """2.6.1: a link that is attached again is stolen from the place where it was."""

    def test_subsequent_attach_on_the_same_session(self, dial: Dial, topic: str) -> None:
        peer = dial().ready()
        first = peer.attach_sender(topic, "test")
        peer.send_attach(SENDER, "test", 1, source=Source(), target=Target(address=topic))
        _assert_stolen(peer, first)

    def test_subsequent_attach_on_different_sessions(self, dial: Dial, topic: str) -> None:
        peer = dial().ready()
        first = peer.attach_sender(topic, "test")
        peer.begin(2)
        peer.send_attach(SENDER, "test", 0, source=Source(), target=Target(address=topic))
        _assert_stolen(peer, first)


def _assert_stolen(peer: Peer, first: Attach) -> None:
    """The first link is detached as stolen, the second attach succeeds; in whatever order."""
    found = [peer.expect_one_of(Attach, Detach, skipped=(Flow,)) for _ in range(2)]
    (stolen,) = [each for each in found if isinstance(each, Detach)]
    (second,) = [each for each in found if isinstance(each, Attach)]
    assert stolen.error is not None
    assert (stolen.handle, stolen.error.condition) == (first.handle, STOLEN)
    assert second.target is not None


class TestTopicDestination:
    """Subscriptions of topics as JMS clients attach them."""

    def test_non_shared_volatile_subscription_link_attach_detach(self, dial: Dial, topic: str) -> None:
        source = Source(address=topic, expiry_policy=TerminusExpiryPolicy.LINK_DETACH, capabilities=symbols("topic"))
        _attach_and_close(dial().ready(), source)

    def test_non_shared_durable_subscription_link_attach_detach(self, dial: Dial, topic: str) -> None:
        source = Source(
            address=topic,
            durable=TerminusDurability.UNSETTLED_STATE,
            expiry_policy=TerminusExpiryPolicy.NEVER,
            capabilities=symbols("topic"),
        )
        _attach_and_close(dial().ready(), source)

    def test_shared_global_volatile_subscription_link_attach_detach(self, dial: Dial, topic: str) -> None:
        peer = dial().ready()
        _share(peer, "foo", _shared_source(topic, TerminusDurability.NONE))
        peer.detach(1)
        assert peer.detach(0, closed=True).closed
        # Nothing is left of it: its time-out is 0, and the next one may have another topic.
        reply = peer.attach(RECEIVER, "foo|global", 0, source=_shared_source(f"{topic}/other"), target=Target())
        assert reply.source is not None

    def test_shared_global_durable_subscription_link_attach_detach(self, dial: Dial, topic: str) -> None:
        peer = dial().ready()
        _share(peer, "kept", _shared_source(topic, TerminusDurability.CONFIGURATION))
        for handle in (1, 0):
            assert not peer.detach(handle).closed
        looked_up = peer.attach(RECEIVER, "kept|global", 2, target=Target())
        assert looked_up.source is not None
        assert looked_up.source.address == topic
        assert set(SHARED) <= set(looked_up.source.capabilities)
        assert peer.detach(2, closed=True).closed
        peer.send_attach(RECEIVER, "kept|global", 3, target=Target())
        assert peer.refused(3).condition == NOT_FOUND, "it has ended"
        peer.close()

    def test_shared_global_durable_subscription_close_with_active_link(self, dial: Dial, topic: str) -> None:
        # SH-1: a member that closes ends itself alone. It is a link that has looked the subscription up that ends it.
        peer = dial().ready()
        _share(peer, "active", _shared_source(topic, TerminusDurability.CONFIGURATION))
        assert peer.detach(0, closed=True).closed
        looked_up = peer.attach(RECEIVER, "active|global", 2, target=Target())
        assert looked_up.source is not None
        peer.send(Detach(2, True))
        found = peer.expect(Detach, Flow)
        assert found.error is not None
        assert (found.closed, found.error.condition) == (True, RESOURCE_LOCKED)
        peer.send_flow(1, 1)
        sender = published(dial, topic, b"goes on")
        assert heard(peer) == b"goes on", "the link beside the refused one is as it was"
        assert sender.outcome(0).settled


SHARED = symbols("shared", "global")


def _shared_source(topic: str, durable: TerminusDurability = TerminusDurability.UNSETTLED_STATE) -> Source:
    is_volatile = durable is TerminusDurability.NONE
    policy = TerminusExpiryPolicy.LINK_DETACH if is_volatile else TerminusExpiryPolicy.NEVER
    return Source(address=topic, durable=durable, expiry_policy=policy, capabilities=(*symbols("topic"), *SHARED))


def _share(peer: Peer, name: str, source: Source) -> None:
    """Two members of one subscription, as a JMS client makes them: handles 0 and 1."""
    for handle, link_name in enumerate((f"{name}|global", f"{name}|global2")):
        reply = peer.attach(RECEIVER, link_name, handle, source=source, target=Target())
        assert reply.source is not None
        assert set(SHARED) <= set(reply.source.capabilities)


def _attach_and_close(peer: Peer, source: Source) -> None:
    reply = peer.attach(RECEIVER, "subscription", 0, source=source, target=Target())
    assert reply.role is SENDER
    assert reply.source is not None
    assert peer.detach(closed=True).closed
    peer.close()


class TestDeleteOnClose:
    """3.5.9 and 3.5.10: an address that is made for a link ends with the link."""

    def test_delete_on_close_on_source(self, dial: Dial) -> None:
        peer = dial().ready()
        address = _made(peer, RECEIVER)
        assert _is_there(dial, address)
        peer.detach(7, closed=True)
        _assert_gone(dial, address)

    def test_delete_on_close_on_target(self, dial: Dial) -> None:
        peer = dial().ready()
        address = _made(peer, SENDER)
        assert _is_there(dial, address)
        peer.detach(7, closed=True)
        _assert_gone(dial, address)

    def test_does_not_delete_on_detach(self, dial: Dial) -> None:
        # Whatever the lifetime policy: it ends with a detach, too, for no other link could resume it elsewhere.
        peer = dial().ready()
        address = _made(peer, RECEIVER)
        peer.detach(7)
        _assert_gone(dial, address)
        assert _made(peer, RECEIVER) != address

    def test_dynamic_node_is_persisted(self, dial: Dial) -> None:
        # It is not: the reply says what is granted.
        peer = dial().ready()
        source = Source(
            dynamic=True,
            dynamic_node_properties=DELETE_ON_CLOSE,
            expiry_policy=TerminusExpiryPolicy.NEVER,
            durable=TerminusDurability.UNSETTLED_STATE,
        )
        granted = peer.attach(RECEIVER, "dynamic", 7, source=source, target=Target()).source
        assert granted is not None
        assert granted.dynamic
        assert granted.durable == TerminusDurability.NONE
        assert (granted.expiry_policy, granted.timeout) == (TerminusExpiryPolicy.LINK_DETACH, 0)


def _node(kind: str, **fields: Any) -> dict[str, Any]:
    """A source or target that is a temporary queue or topic."""
    policy = TerminusExpiryPolicy.LINK_DETACH
    return {
        "expiry_policy": policy,
        "dynamic_node_properties": DELETE_ON_CLOSE,
        "capabilities": symbols(kind),
        **fields,
    }


def _made(peer: Peer, role: bool, kind: str = "temporary-topic") -> str:
    """The address that a router makes for a dynamic source (role receiver) or target."""
    node = _node(kind, dynamic=True)
    source = Source(**node) if role is RECEIVER else Source()
    target = Target() if role is RECEIVER else Target(**node)
    reply = peer.attach(role, "dynamic", 7, source=source, target=target)
    made = reply.source if role is RECEIVER else reply.target
    assert isinstance(made, Source | Target)
    assert made.dynamic
    assert made.dynamic_node_properties == DELETE_ON_CLOSE
    assert made.address
    if role is SENDER:
        peer.credit(7)  # before anybody receives from it
    return made.address


def _is_there(dial: Dial, address: str) -> bool:
    """Whether somebody else can publish to it."""
    peer = dial().ready()
    peer.send_attach(SENDER, "out", 0, source=Source(), target=Target(address=address))
    found = peer.attached(0).target is not None
    peer.drop()
    return found


def _assert_gone(dial: Dial, address: str) -> None:
    """Nobody can publish to it any more; routers learn of it a little later."""
    ends_at = time.monotonic() + DEADLINE_S
    while _is_there(dial, address):
        assert time.monotonic() < ends_at


def _assert_locked(dial: Dial, address: str) -> None:
    """No other connection receives from it."""
    peer = dial().ready()
    peer.send_attach(RECEIVER, "in", 3, source=Source(address=address), target=Target())
    assert peer.refused(3).condition == RESOURCE_LOCKED
    peer.close()


class TestTemporaryDestination:
    """Temporary queues and topics of JMS are dynamic nodes: everybody sends to them, their connection receives."""

    def test_delete_on_close_with_connection_close_for_queue(self, dial: Dial) -> None:
        peer = dial().ready()
        address = _made(peer, SENDER, "temporary-queue")
        peer.close()
        _assert_gone(dial, address)

    def test_delete_on_close_with_connection_close_for_topic(self, dial: Dial) -> None:
        peer = dial().ready()
        address = _made(peer, SENDER, "temporary-topic")
        peer.close()
        _assert_gone(dial, address)

    def test_create_temporary_queue_receiving_link(self, dial: Dial) -> None:
        peer = dial().ready()
        address = _made(peer, SENDER, "temporary-queue")
        source = Source(**_node("temporary-queue", address=address))
        reply = peer.attach(RECEIVER, "in", 3, source=source, target=Target())
        assert reply.source is not None
        assert reply.source.address == address
        peer.close()

    def test_create_temporary_queue_receiving_link_from_other_connection_disallowed(self, dial: Dial) -> None:
        peer = dial().ready()
        _assert_locked(dial, _made(peer, SENDER, "temporary-queue"))
        peer.close()

    def test_create_temporary_queue_sending_link_from_other_connection_allowed(self, dial: Dial) -> None:
        peer = dial().ready()
        address = _made(peer, SENDER, "temporary-queue")
        sender = published(dial, address)  # it has credit before there is a receiver
        peer.attach_receiver(address)
        peer.send_flow(0, 10)
        sender.transfer(b"hello")
        assert heard(peer) == b"hello"

    def test_create_temporary_topic_subscription_receiving_link(self, dial: Dial) -> None:
        peer = dial().ready()
        address = _made(peer, RECEIVER, "temporary-topic")
        target = Target(**_node("temporary-topic", address=address))
        assert peer.attach_sender(address, target=target).target is not None
        peer.close()

    def test_create_temporary_topic_subscription_receiving_link_from_other_connection_disallowed(
        self, dial: Dial
    ) -> None:
        peer = dial().ready()
        _assert_locked(dial, _made(peer, RECEIVER, "temporary-topic"))
        peer.close()

    def test_create_temporary_topic_sending_link_from_other_connection_allowed(self, dial: Dial) -> None:
        peer = dial().ready()
        address = _made(peer, RECEIVER, "temporary-topic")
        peer.send_flow(7, 10)
        published(dial, address, b"hello")
        assert heard(peer) == b"hello"


class TestFilter:
    """3.5.8: an application must not get what its filter excludes."""

    def test_selector_filter(self, dial: Dial, topic: str) -> None:
        peer = dial().ready()
        filters: Fields = {Symbol("selector-filter"): Described(Symbol("apache.org:selector-filter:string"), "index=1")}
        reply = peer.attach_receiver(topic, source=Source(address=topic, filter=filters))
        assert isinstance(reply.source, Source)
        assert reply.source.filter == filters
        peer.send_flow(0, 1)
        sender = published(dial, topic)
        for index in range(2):
            message = Message(application_properties={"index": index}, body=b"%d" % index)
            sender.transfer(payload=encode_message(message), settled=True)
        assert heard(peer) == b"1", "the first is not for it, and has used no credit"
        peer.close()

    def test_unsupported_filter(self, dial: Dial, topic: str) -> None:
        peer = dial().ready()
        filters: Fields = {
            Symbol("selector-filter"): Described(Symbol("apache.org:selector-filter:string"), "index=1"),
            Symbol("test-filter"): Described(Symbol("example:test-filter:string"), "foo"),
        }
        peer.send_attach(RECEIVER, "in", 0, source=Source(address=topic, filter=filters), target=Target())
        assert peer.refused().condition == NOT_IMPLEMENTED
        peer.close()


class TestQueueDeletion:
    """A topic cannot be deleted; a subscription can, by an operator."""

    def test_receiver_detached_on_queue_delete(self, dial: Dial, router: Router, topic: str) -> None:
        peer = dial()
        peer.open(container_id="deleted-subscriber")
        peer.begin()
        peer.attach_receiver(topic, "in")
        _delete(router, "subscription", "deleted-subscriber/in")
        found = peer.expect(Detach, Flow)
        assert found.error is not None
        assert found.error.condition == RESOURCE_DELETED


def _delete(router: Router, kind: str, name: str) -> None:
    url = f"{router.http}/api/v1/management/{kind}/{quote(name, safe='')}"
    with urllib.request.urlopen(url) as answer:
        epoch = json.loads(answer.read())["epoch"]
    body = json.dumps({"epoch": epoch}).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"}, method="DELETE")
    with urllib.request.urlopen(request) as answer:
        assert answer.status in (200, 204)
