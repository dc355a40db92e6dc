"""Attaches that are for no topic of the record core, and links that end for what a connection or the rules say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from delivery_records.model.effects import DetachLink
from delivery_records.model.inputs import Input, LinkDetach, LinkLost, LossCause
from oncewire.wire import (
    AmqpError,
    LimitError,
    Link,
    LinkDetached,
    LinkFlow,
    LinkState,
    ReceiverLink,
    SenderLink,
    Symbol,
)
from router.clients.anonymous_link import AnonymousLink
from router.clients.anonymous_links import AnonymousClient, AnonymousLinks
from router.clients.inner_links import InnerPublisher, InnerRoute
from router.clients.link_refusal import LinkRefusal, address_of, detach_link
from router.clients.local_node import NodeLink, NodeLinks
from router.clients.publisher_link import PublisherLink
from router.clients.subscriber_link import SubscriberLink
from router.routed.half import Half
from router.routed.links import RoutedRefusal
from router.routed.relay_core import Side
from router.routed.terms import Origin


class AttachClient(AnonymousClient, Protocol):
    """The connection of the client that attaches."""

    anonymous: AnonymousLinks | None

    def count_refusal(self, link: Link, refusal: LinkRefusal) -> None:
        """A link is refused, or ended for what the rules say."""

    def refuse(self, link: Link, refusal: LinkRefusal) -> None:
        """Refuse the attach (A-8)."""

    @property
    def link_numbers(self) -> list[int]:
        """The links it has now, by number."""
        ...


def open_node(client: AttachClient, nodes: NodeLinks, link: ReceiverLink | SenderLink) -> None:
    """Answer an attach to the local node, or refuse it."""
    try:
        nodes.open(link)
    except LinkRefusal as refusal:
        client.refuse(link, refusal)
    except LimitError as error:  # its frames are too small even for the answer
        client.close("amqp:frame-size-too-small", str(error))


def open_routed(client: AttachClient, link: ReceiverLink | SenderLink) -> bool:
    """Whether the attach is for a service: then it is forwarded, or refused (R-3)."""
    attach, routed = link.remote_attach, client.listener.routed
    if routed is None or attach is None or not routed.serves(attach):
        return False
    if link.state is LinkState.ATTACH_RECEIVED:  # else it was detached in the same read
        try:
            client.refuse_unless_allowed(link, address_of(link))
            client.quota.take_link()
            routed.open_from_client(
                client, link, Origin(client.container_id, client.user, link.name, client.policy.vhost)
            )
        except LinkRefusal as refusal:
            client.refuse(link, refusal)
        except RoutedRefusal as not_routed:
            client.refuse(link, LinkRefusal(not_routed.condition, str(not_routed)))
    return True


def open_anonymous(client: AttachClient, link: ReceiverLink | SenderLink) -> None:
    """Answer an attach to the anonymous terminus, or refuse it (X-1)."""
    if link.state is not LinkState.ATTACH_RECEIVED:
        return  # it was detached in the same read
    if client.anonymous is None:
        client.anonymous = AnonymousLinks(client)
    try:
        client.anonymous.open(link)
    except LinkRefusal as refusal:
        client.refuse(link, refusal)
    except LimitError as error:  # its frames are too small even for the answer
        client.close("amqp:frame-size-too-small", str(error))


def take_early_flow(link: ReceiverLink | SenderLink) -> None:
    """A subscriber whose attach was postponed has granted credit in the same read, when nobody took the flow."""
    if isinstance(link.context, SubscriberLink) and isinstance(link, SenderLink) and link.credit:
        link.context.flow_input(LinkFlow(link, link.credit_limit, 0, None, link.is_draining, False, None))


def end_receivers(client: AttachClient, receivers: list[SubscriberLink], address: str, inputs: list[Input]) -> None:
    """X-2: the link that an address was made for is closed, so its receivers on this connection end, too."""
    why = "the address was made for a link that is closed"
    for shell in receivers:
        if shell.address == address:
            client.detach(shell.number, shell.link, DetachLink(shell.number, True, "amqp:resource-deleted", why))
            inputs.append(LinkDetach(shell.number, True))


def end_not_allowed(client: AttachClient, shells: Sequence[PublisherLink | SubscriberLink | InnerPublisher]) -> None:
    """The rules have changed: links that they do not allow any more are detached; their state stays (A-9)."""
    for shell in shells:
        number = shell.number
        try:
            client.refuse_unless_allowed(shell.link, shell.address)
        except LinkRefusal as refusal:
            client.count_refusal(shell.link, refusal)
            if not isinstance(shell, InnerPublisher):
                client.detach(number, shell.link, DetachLink(number, False, refusal.condition, refusal.description))
                client.driver.submit([LinkLost(number, LossCause.DETACH)])
            elif number in client.link_numbers and shell.outer.end_unless_allowed(shell, refusal):
                client.driver.submit([LinkDetach(number, True)])
    end_routes_not_allowed(client)


def end_routes_not_allowed(client: AttachClient) -> None:
    """R-7: links to services that the rules do not allow any more are detached at both ends; their state stays."""
    for half in [each for each in client.routed.halves if each.side is Side.NEAR]:
        if isinstance(half.link, InnerRoute):
            link: Link = half.link.link
            address: str | None = half.link.address
        else:
            assert isinstance(half.link, ReceiverLink | SenderLink)
            link, address = half.link, address_of(half.link)
        try:
            client.refuse_unless_allowed(link, address)
        except LinkRefusal as refusal:
            client.count_refusal(link, refusal)
            half.routed.do(half.routed.core.on_failed(AmqpError(Symbol(refusal.condition), refusal.description)))


def on_other_detached(client: AttachClient, nodes: NodeLinks, event: LinkDetached, inputs: list[Input]) -> None:
    """A link is detached that is no publisher's or subscriber's of a topic."""
    link, shell = event.link, event.link.context
    if isinstance(shell, Half):
        shell.on_detached(event)
        return
    if isinstance(shell, NodeLink):
        nodes.forget(shell)
    elif isinstance(shell, AnonymousLink):
        if shell.leave(LossCause.DETACH, inputs, answers=event.needs_answer, closed=event.closed):
            return  # it answers when what was read has its outcomes
    elif shell is not None:
        return
    elif not event.needs_answer and event.error is not None and link.remote_attach is not None:
        # By the engine, which notified the client.
        client.count_refusal(link, LinkRefusal(event.error.condition, event.error.description or ""))
    if event.needs_answer:  # 2.6.3: without a shell its attach was not answered yet; now both are
        detach_link(link, event.closed, None)
