"""Client links of a net, as a test holds them: what the client sends, and the effects that name the link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, TypeVar

from delivery_records.model import effects, inputs
from delivery_records.model.inputs import LossCause
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.patience import Patience
from delivery_records.model.view import SubscriptionMode
from tests.delivery_records.nodes import Node

TOPIC = "orders"
E = TypeVar("E")


class LinkNet(Protocol):
    """What a link needs of its net."""

    def new_link(self) -> int:
        """A link number that was not used before."""
        ...

    def feed(self, node: Node, *batch: inputs.Input) -> None:
        """One turn of a router, and everything that follows from it."""


class Link:
    """One client link, and the effects that name it."""

    def __init__(self, net: LinkNet, node: Node) -> None:
        """A link that is not attached yet."""
        self.net = net
        self.node = node
        self.number = net.new_link()

    def feed(self, *batch: inputs.Input) -> None:
        """Frames of the client."""
        self.net.feed(self.node, *batch)

    @property
    def got(self) -> list[effects.Effect]:
        """Everything the router did on this link, oldest first."""
        return [effect for effect in self.node.done if getattr(effect, "link", None) == self.number]

    def all(self, kind: type[E]) -> list[E]:
        """Everything of one kind."""
        return [effect for effect in self.got if isinstance(effect, kind)]

    def last(self, kind: type[E]) -> E:
        """The newest of one kind; there must be one."""
        found = self.all(kind)
        assert found, f"no {kind.__name__} on this link: {self.got}"
        return found[-1]

    def answered(self) -> bool:
        """True when the attach was answered, other than by a refusal."""
        return bool(self.all(effects.SubscriberReply) or self.all(effects.PublisherReply))

    def detached(self) -> effects.DetachLink | None:
        """How the router detached the link, if it did."""
        found = self.all(effects.DetachLink)
        return found[-1] if found else None

    def end(self) -> effects.DetachLink:
        """How the router detached the link; it must have."""
        found = self.detached()
        assert found is not None, "the link is still attached"
        return found

    def is_refused_by_store(self) -> bool:
        """True when the router ended this link, for etcd refuses or does not answer; its connection goes on (A-1)."""
        assert not self.all(effects.CloseConnection)
        return any(end.by_store and end.closed for end in self.all(effects.DetachLink))

    def drop(self, cause: LossCause = LossCause.CONNECTION_LOSS) -> None:
        """The link is lost."""
        self.feed(inputs.LinkLost(self.number, cause))

    def detach(self, *, closed: bool) -> None:
        """The client detaches."""
        self.feed(inputs.LinkDetach(self.number, closed))


class PublisherLink(Link):
    """A publisher's link."""

    def __init__(self, net: LinkNet, node: Node) -> None:
        """Nothing was sent yet."""
        super().__init__(net, node)
        self._deliveries = 0

    def attach(
        self,
        name: str = "p",
        *,
        topic: str = TOPIC,
        unsettled: inputs.UnsettledMap | None = None,
        exactly_once: bool = True,
        settles_first: bool = False,
        timeout_s: float | None = None,
        map_bound: int = 0,
        incomplete: bool = False,
        peer: str = "",
        starts: Sequence[tuple[bytes, int]] = (),
        expiry_policy: str = "session-end",
        place: inputs.LinkPlace = inputs.NO_PLACE,
        owner: inputs.Owner = inputs.NOBODY,
        require: int | None = None,
        waits: bool = False,
        require_processed: int | None = None,
    ) -> None:
        """Send the attach."""
        self.feed(
            inputs.PublisherAttach(
                self.number,
                name,
                "link",
                topic,
                unsettled,
                exactly_once,
                settles_first,
                timeout_s,
                map_bound,
                incomplete,
                peer or f"{name}@{self.number}",
                starts,
                expiry_policy,
                place,
                owner,
                require,
                waits=waits,
                require_processed=require_processed,
            )
        )

    def echo(self) -> None:
        """Answer the challenge of A-4."""
        self.feed(inputs.ClientFlow(self.number, echoed_epoch=self.last(effects.AskEcho).epoch))

    def send(
        self,
        tag: bytes,
        body: bytes | None = None,
        *,
        settled: bool = False,
        resume: bool = False,
        aborted: bool = False,
        message_format: int = 0,
        receiver_settles: bool = False,
    ) -> int:
        """Send one delivery, its tag as its body unless said otherwise; returns the delivery-id."""
        self._deliveries += 1
        self.feed(
            inputs.PublisherTransfer(
                self.number,
                self._deliveries,
                tag,
                tag if body is None else body,
                settled,
                resume,
                aborted,
                message_format,
                receiver_settles,
            )
        )
        return self._deliveries

    def settle(self, *tags: bytes) -> None:
        """Settle deliveries."""
        self.feed(inputs.PublisherSettle(self.number, tags))

    def ask(self, tag: bytes) -> effects.NotifyOwing:
        """Who still owes this delivery?"""
        self.feed(inputs.ClientFlow(self.number, asked_tag=tag))
        return self.last(effects.NotifyOwing)

    @property
    def credit(self) -> int:
        """Deliveries it may send now."""
        grants = self.all(effects.GrantPublisherCredit)
        return grants[-1].limit - self._deliveries if grants else 0

    @property
    def outcomes(self) -> list[tuple[int, DeliveryOutcome]]:
        """What was reported to it, in order: (delivery-id, outcome)."""
        return [
            (number, reported.outcome) for reported in self.all(effects.Dispose) for number in reported.delivery_ids
        ]

    @property
    def accepted(self) -> list[int]:
        """Delivery-ids that were reported as accepted, in order."""
        return [number for number, outcome in self.outcomes if outcome is DeliveryOutcome.ACCEPTED]


class SubscriberLink(Link):
    """A subscriber's link."""

    def attach(
        self,
        name: str = "s",
        *,
        topic: str | None = TOPIC,
        unsettled: inputs.UnsettledMap | None = None,
        exactly_once: bool = False,
        mode: SubscriptionMode = SubscriptionMode.AT_LEAST_ONCE,
        policy: str = "link-detach",
        timeout_s: float | None = 60.0,
        map_bound: int = 0,
        incomplete: bool = False,
        peer: str = "",
        place: inputs.LinkPlace = inputs.NO_PLACE,
        patience: Patience | None = None,
        owner: inputs.Owner = inputs.NOBODY,
        share: inputs.Share | None = None,
        filter_text: str = "",
        entries: int = 0,
        stores: bool = False,
    ) -> None:
        """Send the attach."""
        self.feed(
            inputs.SubscriberAttach(
                self.number,
                name,
                "link",
                topic,
                unsettled,
                exactly_once,
                mode,
                policy,
                timeout_s,
                map_bound,
                incomplete,
                peer or f"{name}@{self.number}",
                place,
                patience,
                owner,
                share,
                filter_text,
                entries,
                stores,
            )
        )

    def echo(self) -> None:
        """Answer the challenge of A-10, without credit."""
        self.feed(inputs.ClientFlow(self.number, echoed_epoch=self.last(effects.AskEcho).epoch))

    def flow(self, limit: int, *, delivery_count: int = 0, drain: bool = False) -> None:
        """Give credit for `limit` deliveries in all."""
        self.feed(inputs.ClientFlow(self.number, limit=limit, delivery_count=delivery_count, drain=drain))

    def answer(
        self,
        outcome: DeliveryOutcome | None,
        *tags: bytes,
        settled: bool = False,
        annotations: Mapping[bytes, bytes] | None = None,
        delay_ms: int | None = None,
        error: str = "",
    ) -> None:
        """State an outcome for deliveries, named by the publisher's tags."""
        names = [self.network_tag(tag) for tag in tags]
        self.feed(inputs.SubscriberDisposition(self.number, names, outcome, settled, annotations, delay_ms, error))

    def accept(self, *tags: bytes) -> None:
        """Accept deliveries without settling them."""
        self.answer(DeliveryOutcome.ACCEPTED, *tags)

    def network_tag(self, tag: bytes) -> bytes:
        """The network tag under which a publisher's tag came here last."""
        return next(delivery.tag for delivery in reversed(self.all(effects.Deliver)) if delivery.tag[11:] == tag)

    @property
    def deliveries(self) -> list[bytes]:
        """Publishers' tags of everything that was transferred with a message, in order."""
        return [d.tag[11:] for d in self.all(effects.Deliver) if not (d.resume and d.settled)]

    @property
    def settled(self) -> list[bytes]:
        """Publishers' tags of everything that was settled, by disposition or by a settled resume, in order."""
        tags: list[bytes] = []
        for effect in self.got:
            if isinstance(effect, effects.SettleAtSubscriber):
                tags += [tag[11:] for tag in effect.tags]
            elif isinstance(effect, effects.Deliver) and effect.settled and effect.resume:
                tags.append(effect.tag[11:])
        return tags

    def confirmed(self) -> bool:
        """True once it was notified that its subscription counts (A-6)."""
        return bool(self.all(effects.Confirm))
