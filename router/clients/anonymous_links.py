"""The links of one connection to the anonymous terminus (rule X-1); most connections have none."""

from __future__ import annotations

from typing import Protocol

from delivery_records.model.inputs import Input, LossCause, PublisherAttach
from delivery_records.model.outcomes import Decision
from oncewire.wire import NOT_FOUND, RESOURCE_LIMIT_EXCEEDED, Link, ReceiverLink, SenderLink, SessionEndpoint, Target
from router.clients.anonymous_link import AnonymousLink
from router.clients.anonymous_owner import AnonymousOwner
from router.clients.attach_pace import AttachPace
from router.clients.client_quota import ClientQuota
from router.clients.inner_links import InnerPublisher, InnerRoute
from router.clients.link_owner import LinkOwner
from router.clients.link_refusal import LinkRefusal, lighten
from router.process.logs import RouterEvent
from router.routed.choice_core import prefix_of
from router.routed.half import Carrier
from router.routed.links import RoutedLinks, RoutedRefusal
from router.routed.terms import Origin
from router.settings.config import RouterConfig


class Served(Protocol):
    """Those who have all connections."""

    @property
    def config(self) -> RouterConfig:
        """The settings of now."""
        ...

    @property
    def routed(self) -> RoutedLinks | None:
        """Links to services; None = no incarnation serves."""
        ...


class AnonymousClient(LinkOwner, Carrier, Protocol):
    """The connection."""

    is_dirty: bool

    quota: ClientQuota
    attaches: AttachPace

    @property
    def link_count(self) -> int:
        """How many links it has now."""
        ...

    @property
    def user(self) -> str | None:
        """Who has logged in; None without a login."""
        ...

    def mark_dirty(self) -> None:
        """Write at the end of this turn."""

    @property
    def listener(self) -> Served:
        """Those who have all connections."""
        ...

    def add_inner(self, inner: InnerPublisher) -> None:
        """One more link, which is suspended when the connection ends (A-9)."""

    def forget_inner(self, inner: InnerPublisher) -> None:
        """It has ended."""


class AnonymousLinks(AnonymousOwner):
    """Those that are attached."""

    __slots__ = ("client", "links")

    def __init__(self, client: AnonymousClient) -> None:
        """There are none yet."""
        self.client = client
        self.links: dict[ReceiverLink, AnonymousLink] = {}

    def __len__(self) -> int:
        return len(self.links)

    def open(self, link: ReceiverLink | SenderLink) -> None:
        """Answer an attach: the link has no topic, so the record core learns of its inner publishers only.

        Raises:
            LinkRefusal: the client may not have it.
            LimitError: its frames are too small for the answer.
        """
        assert isinstance(link, ReceiverLink)
        self.client.quota.take_link()
        anonymous = AnonymousLink(self, self.client, link)
        anonymous.open()
        link.context = anonymous
        self.links[link] = anonymous
        lighten(link)

    def leave_all(self, inputs: list[Input], *, answers: bool) -> list[Link]:
        """The connection ends. Returns the links of which something that was read is still to go on (X-1)."""
        cause = LossCause.CONNECTION_LOSS
        return [
            link
            for link, anonymous in list(self.links.items())
            if anonymous.leave(cause, inputs, answers=answers, closed=False)
        ]

    def offers(self, session: SessionEndpoint) -> bool:
        """C-6: whether a session may be offered frames: not one whose messages wait here."""
        return not any(each.is_full and each.link.session is session for each in self.links.values())

    # --- see `AnonymousOwner` -----------------------------------------------------------------------------------------

    def admit(self, inner: InnerPublisher, attach: PublisherAttach) -> PublisherAttach:
        """See `AnonymousOwner`."""
        client = self.client
        client.attaches.take()
        if client.link_count >= (most := client.listener.config.max_links):
            raise LinkRefusal(RESOURCE_LIMIT_EXCEEDED, f"a connection may have {most} links")
        admitted = client.quota.admit(attach, client.driver)
        assert isinstance(admitted, PublisherAttach)
        client.add_inner(inner)
        return admitted

    def is_of_service(self, address: str) -> bool:
        """See `AnonymousOwner`."""
        return prefix_of(address, self.client.listener.config.services_prefixes) is not None

    def open_route(self, route: InnerRoute) -> None:
        """See `AnonymousOwner`."""
        client = self.client
        routed = client.listener.routed
        if routed is None:
            raise LinkRefusal(NOT_FOUND, "this router has no valid lease in etcd just now; connect to another router")
        client.attaches.take()
        client.quota.take_link()
        origin = Origin(client.container_id, client.user, route.name, client.policy.vhost)
        try:
            routed.open_from_client(client, route, origin)
        except RoutedRefusal as refusal:
            raise LinkRefusal(refusal.condition, str(refusal)) from None

    def forget_inner(self, inner: InnerPublisher) -> None:
        """See `AnonymousOwner`."""
        self.client.forget_inner(inner)

    def forget(self, link: ReceiverLink) -> None:
        """See `AnonymousOwner`."""
        self.links.pop(link, None)

    def log_refused(self, link: Link, refusal: LinkRefusal) -> None:
        """See `AnonymousOwner`."""
        client = self.client
        client.log.event(
            RouterEvent.MESSAGE_REFUSED,
            container_id=client.container_id,
            peer=client.peer,
            link_name=link.name,
            condition=refusal.condition,
            why=str(refusal),
        )

    def log_unfinished(self, link: ReceiverLink, released: int, modified: int, dropped: int) -> None:
        """See `AnonymousOwner`."""
        client = self.client
        client.driver.records.counts[Decision.PUBLISHER_UNFINISHED] += 1
        client.driver.records.counts[Decision.DELIVERY_UNFINISHED] += released + modified + dropped
        fields: dict[str, object] = {"released": released, "modified": modified, "dropped": dropped}
        name = f"{client.container_id}/{link.name}"
        client.log.decision(Decision.PUBLISHER_UNFINISHED, {"publisher": name, "peer": client.peer, **fields})


def is_anonymous(link: Link) -> bool:
    """Whether a client attaches to the anonymous terminus: a target without an address."""
    target = None if link.remote_attach is None else link.remote_attach.target
    is_publisher = isinstance(link, ReceiverLink) and isinstance(target, Target)
    return is_publisher and isinstance(target, Target) and target.address is None and not target.dynamic
