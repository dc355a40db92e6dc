"""Test messages of operators: a publisher of the router's own, for one message each, as a client would publish it.

The record core treats it as any publisher: the message is accepted when all subscriptions have processed it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

from delivery_records.model import effects
from delivery_records.model.inputs import LinkDetach, LinkLost, LossCause, Owner, PublisherAttach, PublisherTransfer
from delivery_records.model.tags import network_tag
from delivery_records.model.topics import TopicError, check_topic, split_vhost
from oncewire.wire import BodyKind, Message, Properties, encode_message
from router.amqp.addresses import MADE_PREFIX
from router.clients.link_refusal import RESERVED_PREFIX
from router.incarnations.incarnation import Incarnation
from router.operator.access import AccessDenied, Caller
from router.operator.arguments import ManagementError
from router.settings.access_rules import adopts, may_publish
from router.settings.config import RouterConfig
from router.settings.groups import groups_of
from router.settings.virtual_hosts import VhostRefused, vhost_of
from topology.inspector.topic_names_core import topic_named

CONTAINER_ID = "oncewire-inspector"
"""Of these publishers; with the router's name, for two routers may publish at once."""
MAX_OPEN = 8
"""Test messages that wait for their outcome. More are a load, and no test."""
MAX_BYTES = 4_096
"""Of one in UTF-8: a test needs no more, and a form has no room for more."""
ANSWER_S = 1.0
"""An answer waits so long for the outcome; where it takes longer, the delivery's record shows how it goes on."""
WAIT_S = 600.0
"""After that the message is abandoned, as that of a publisher that has left: nobody watches it any more."""
_TAG = b"test"


def trial_of(config: RouterConfig, name: str, body: str, caller: Caller) -> tuple[str, Owner]:
    """The topic as routers know it, and whose message it is, once it is known that the caller may publish it.

    Args:
        config: the settings in force.
        name: of the topic, as operators name it.
        body: the text.
        caller: an operator.

    Raises:
        ManagementError: that is no topic, or the text is too long.
        AccessDenied: the rules do not let this user publish there.
    """
    named = topic_named(name)
    vhost, topic = split_vhost(named)
    if topic.startswith((RESERVED_PREFIX, MADE_PREFIX, *config.services_prefixes)):
        raise ManagementError(400, f"{topic} is no topic: that address is served otherwise", "give a topic")
    try:
        check_topic(topic)
    except TopicError as error:
        raise ManagementError(400, str(error), "give a topic, no pattern") from None
    if len(body.encode("utf-8", "surrogatepass")) > MAX_BYTES or not _is_text(body):
        raise ManagementError(400, f"the body is no text of at most {MAX_BYTES} bytes in UTF-8", "give a shorter one")
    groups = groups_of(config.groups, caller.user)
    is_admitted = not caller.misnamed
    try:
        is_admitted = is_admitted and vhost_of(config.vhosts, caller.user, f"vhost:{vhost}", groups) == vhost
    except VhostRefused:
        is_admitted = False
    if not is_admitted or not may_publish(config.access_rules, caller.user, topic, groups, vhost):
        fix = "ask an administrator of this router: see the settings access.rules and vhosts"
        raise AccessDenied(403, f"the rules do not let you publish to {name}", fix)
    return named, Owner(vhost, caller.user, adopts=adopts(config.adopts_links, caller.user, groups))


def _is_text(body: str) -> bool:
    try:
        body.encode()
    except UnicodeEncodeError:
        return False
    return True


class TrialMessages:
    """Those of one incarnation."""

    def __init__(self, incarnation: Incarnation) -> None:
        """None was published yet."""
        self._incarnation = incarnation
        self._open: set[_TrialPublisher] = set()
        self._number = 0

    def next_name(self) -> str:
        """The name of the publisher of the next message."""
        return f"{self._container_id}/{self._link_name}"

    @property
    def _container_id(self) -> str:
        return f"{CONTAINER_ID}-{self._incarnation.records.node_id}"

    @property
    def _link_name(self) -> str:
        return f"test-{self._incarnation.records.rid:x}-{self._number + 1}"

    async def publish(self, topic: str, body: str, owner: Owner) -> dict[str, object]:
        """Publish one message.

        Args:
            topic: as routers know it.
            body: the text.
            owner: whose message it is.

        Returns:
            Its network tag, its publisher, and the outcome with the seconds it took where it came soon.

        Raises:
            ManagementError: it cannot be published.
        """
        if len(self._open) >= MAX_OPEN:
            why = f"{MAX_OPEN} test messages of this router wait for their outcome"
            raise ManagementError(409, why, "`oncewire inspect waits` shows for whom; try again later")
        message = Message(body.encode(), BodyKind.DATA, properties=Properties(content_type="text/plain; charset=utf-8"))
        publisher = _TrialPublisher(self._incarnation, encode_message(message))
        attach = PublisherAttach(
            publisher.number,
            self._container_id,
            self._link_name,
            topic,
            None,
            settles_first=True,
            timeout_s=0.0,
            owner=owner,
        )
        name = self.next_name()
        self._number += 1
        self._open.add(publisher)
        publisher.ended.add_done_callback(lambda _: self._open.discard(publisher))
        publisher.attach(attach)
        try:
            async with asyncio.timeout(ANSWER_S):
                await publisher.sent
                await asyncio.shield(publisher.ended)
        except TimeoutError:
            if not publisher.sent.done() or publisher.sent.cancelled():
                publisher.leave()
                why = "the publisher of the test message was not attached in time"
                raise ManagementError(503, why, "see the router's log, and try again") from None
        return {
            "tag": publisher.sent.result().hex(),
            "publisher": name,
            "outcome": publisher.outcome,
            "seconds": publisher.seconds,
        }

    def stop(self) -> None:
        """The incarnation is over, and its links with it."""
        for each in list(self._open):
            each.lose("the router lost its lease in etcd")


class _TrialPublisher:
    """The shell of one publisher's link (see `records_driver.ClientLink`)."""

    def __init__(self, incarnation: Incarnation, message: bytes) -> None:
        loop = asyncio.get_running_loop()
        self._incarnation = incarnation
        self._driver = incarnation.driver
        self._message = message
        self.number = self._driver.add_link(self)
        self.sent: asyncio.Future[bytes] = loop.create_future()
        """Its network tag."""
        self.ended: asyncio.Future[None] = loop.create_future()
        self.outcome: str | None = None
        self.seconds: float | None = None
        """From when it was published to its outcome."""
        self._sent_at = 0.0
        self._timer = loop.call_later(WAIT_S, self.leave)

    def attach(self, attach: PublisherAttach) -> None:
        """As a client would."""
        self._driver.submit([attach])

    def leave(self) -> None:
        """As a client that is gone: the link is lost, and its terminus ends at once."""
        if not self.ended.done():
            self._driver.submit([LinkLost(self.number, LossCause.DETACH)])
            self.lose("the publisher of the test message has left")

    def lose(self, why: str) -> None:
        """There is no link any more."""
        self._timer.cancel()
        self._driver.links.pop(self.number, None)
        if not self.sent.done():
            self.sent.set_exception(ManagementError(503, f"the test message was not published: {why}", "try again"))
        if not self.ended.done():
            self.ended.set_result(None)

    # --- see `ClientLink` ---------------------------------------------------------------------------------------------

    def carry_out(self, effect: Any) -> None:
        """Carry out an effect."""
        if isinstance(effect, effects.GrantPublisherCredit) and not self.sent.done():
            self._send()
        elif isinstance(effect, effects.Dispose):
            self.outcome = effect.outcome.value
            self.seconds = round(time.monotonic() - self._sent_at, 4)
            self._driver.submit([LinkDetach(self.number, closed=True)])
        elif isinstance(effect, effects.DetachLink | effects.CloseConnection):
            self.lose(effect.description or effect.condition)

    def fail(self) -> None:
        """See `ClientLink`."""
        self.lose("of a fault of the router's own; see its log")

    def _send(self) -> None:
        records = self._incarnation.records
        publisher = records.figures.publisher_on(self.number)
        assert publisher is not None
        with contextlib.suppress(asyncio.InvalidStateError):  # whoever asked has gone
            self.sent.set_result(network_tag(records.nonce, publisher.session, _TAG))
        self._sent_at = time.monotonic()
        self._driver.submit([PublisherTransfer(self.number, 0, _TAG, self._message)])
