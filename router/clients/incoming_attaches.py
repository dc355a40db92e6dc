"""What an attach of a client is for: a node of the router, a service, the anonymous terminus, or a topic."""

from __future__ import annotations

from delivery_records.model.inputs import Input
from oncewire.wire import RESOURCE_LIMIT_EXCEEDED, Link, LinkState, ReceiverLink, SenderLink
from router.clients import attach_kinds
from router.clients.anonymous_links import is_anonymous
from router.clients.inner_links import NAME_SEPARATOR
from router.clients.link_ends import EndingClient
from router.clients.link_refusal import LinkRefusal, lighten
from router.clients.publisher_link import PublisherLink
from router.clients.subscriber_link import SubscriberLink
from router.routed.half import Half


def on_attached(client: EndingClient, link: Link, inputs: list[Input]) -> None:
    """An attach came, or the answer to one of ours."""
    if isinstance(link.context, Half):
        link.context.on_attached()
        return
    client.attaches.take()
    if client.link_count >= (most := client.listener.config.max_links):
        client.refuse(link, LinkRefusal(RESOURCE_LIMIT_EXCEEDED, f"a connection may have {most} links"))
        return
    assert isinstance(link, ReceiverLink | SenderLink)
    if client.nodes.serves(link):
        if not client.nodes.postpones(link) and link.state is LinkState.ATTACH_RECEIVED:
            attach_kinds.open_node(client, client.nodes, link)  # else it was detached in the same read
        return
    if attach_kinds.open_routed(client, link):
        return
    if NAME_SEPARATOR in link.name:  # it would be an inner publisher of another link
        client.refuse(link, LinkRefusal("amqp:invalid-field", "the name of a link has no U+001F"))
    elif is_anonymous(link):
        attach_kinds.open_anonymous(client, link)
    else:
        _attach(client, link, inputs)


def on_postponed(client: EndingClient, link: ReceiverLink | SenderLink, inputs: list[Input]) -> None:
    """Behind all other attaches of its read, which say whether it is for a node of the router."""
    if client.nodes.takes(link):
        attach_kinds.open_node(client, client.nodes, link)
    else:
        _attach(client, link, inputs)
        attach_kinds.take_early_flow(link)


def _attach(client: EndingClient, link: ReceiverLink | SenderLink, inputs: list[Input]) -> None:
    """A publisher or subscriber of a topic."""
    shell: PublisherLink | SubscriberLink = (
        PublisherLink(client, link) if isinstance(link, ReceiverLink) else SubscriberLink(client, link)
    )
    try:
        attach = client.quota.admit(shell.attach_input(), client.driver)
    except LinkRefusal as refusal:
        client.forget(shell)
        client.refuse(link, refusal)
        return
    link.context = shell
    client.links[shell.number] = shell
    inputs.append(attach)
    lighten(link)
