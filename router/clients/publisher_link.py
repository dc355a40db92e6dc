"""A publisher's link: AMQP's attach, flow, transfer and disposition in the record core's words, and back.

AMQP is on one side and the record core on the other, and neither knows the other's types. Methods that end in `_input`
make an input for the core of what the client sent. `carry_out` does what the core wants, by a table from the type of
the effect to a method. Nothing is decided here about deliveries.

The attach is checked before the core hears of it. What cannot be offered is a `LinkRefusal`: an address that is no
topic, an expiry policy, a user without the right. What is granted may be less than what was asked for: exactly-once
needs the capability, a map, and rcv-settle-mode second. A dynamic target gets an address of its own, which ends with
its link (X-2).

A reply waits for the core, which may have to write the attachment first. Then `_reply` answers with the entries that
may be resumed, null for null (A-3a, A-3b), and what was really granted. The session is stated with the first credit.

Credit is a total for the core and a remainder in AMQP, so `_grant` subtracts what has come. Properties of flows carry
what AMQP has no frame for: the echo (A-4), who owes a delivery, who ended, who processed it. If names do not fit the
client's frame they are left out, and their number is not. An effect for a link that the client has detached in the
same read is dropped, since the core hears of that in the same turn.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from delivery_records.model import effects
from delivery_records.model.inputs import (
    ClientFlow,
    Input,
    LargeTransfer,
    PublisherAttach,
    PublisherSettle,
    PublisherTransfer,
)
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.parts import Part
from oncewire.wire import (
    Attach,
    DeliveryAborted,
    DeliveryBegun,
    DeliveryEnded,
    DeliveryPart,
    DeliveryReceived,
    DeliveryState,
    DispositionReceived,
    Fields,
    LimitError,
    LinkFlow,
    ReceiverLink,
    ReceiverSettleMode,
    Rejected,
    SenderSettleMode,
    StateError,
    Symbol,
    Target,
    TerminusExpiryPolicy,
    UInt,
    ULong,
    vocabulary,
)
from router.amqp.addresses import plain
from router.amqp.errors import amqp_error
from router.clients import delivery_states
from router.clients.link_owner import LinkOwner
from router.clients.link_refusal import (
    LinkRefusal,
    address_of,
    refuse_to_resume,
    refuse_unless_policy,
    refuse_unless_publishable,
    refuse_unless_topic,
)

SERIAL_MASK = 0xFFFFFFFF
_STORED_SETTLED = "it is sent settled; send it unsettled"
MAX_REQUIRE = 0xFFFFFFFF
"""Of a uint."""


LargeEvent = DeliveryBegun | DeliveryPart | DeliveryEnded | DeliveryAborted


class PublisherLink:
    """The receiving end of one publisher's link."""

    __slots__ = (
        "_initial_count",
        "_large_tag",
        "_require",
        "_require_processed",
        "connection",
        "link",
        "made",
        "number",
    )

    def __init__(self, connection: LinkOwner, link: ReceiverLink) -> None:
        self.connection = connection
        self.link = link
        link.answers_detach = True  # A-9a: behind the outcomes of what was read
        self.number = connection.driver.add_link(self)
        remote = link.remote_attach
        assert remote is not None
        self._initial_count = remote.initial_delivery_count or 0
        self._large_tag = b""
        """Of the delivery that comes part by part."""
        self._require: int | None = None
        """As asked for (I-3c); the attach itself is not kept whole."""
        self._require_processed: int | None = None
        """As asked for (I-3g)."""
        self.made: str | None = None
        """The address that was made for its dynamic target (X-2)."""

    @property
    def address(self) -> str | None:
        """The topic."""
        return self.made or address_of(self.link)

    def attach_input(self) -> PublisherAttach:
        """What the client's attach asks for (A-2).

        Raises:
            LinkRefusal: it asks for something this router does not offer.
        """
        remote = self.link.remote_attach
        assert remote is not None
        topic = _topic_of(remote)
        target = remote.target
        assert isinstance(target, Target)
        connection = self.connection
        if topic is None:
            refuse_to_resume(remote)
            key = connection.policy.key_of(self.link.name, connection.container_id)
            topic = self.made = connection.policy.make_address(key)
        refuse_unless_topic(topic, target.capabilities)
        refuse_unless_policy(target.expiry_policy)
        connection.refuse_unless_allowed(self.link, topic)
        presents_map = remote.unsettled is not None and self.made is None
        settles_first = remote.rcv_settle_mode == ReceiverSettleMode.FIRST
        exactly_once = vocabulary.EXACTLY_ONCE in remote.desired_capabilities
        granted = exactly_once and presents_map and not settles_first
        self._require = _require_of(remote, vocabulary.REQUIRE, settles_first=settles_first)
        processed = _require_of(remote, vocabulary.REQUIRE_PROCESSED, settles_first=settles_first)
        self._require_processed = None if self._require is None else processed
        return PublisherAttach(
            link=self.number,
            container_id=connection.container_id,
            link_name=self.link.name,
            topic=connection.policy.inside(topic),
            unsettled=delivery_states.outcomes_of_map(remote.unsettled if presents_map else None),
            exactly_once=granted,
            settles_first=settles_first,
            # an address that was made ends with its link, whatever was asked for.
            timeout_s=0.0 if self.made is not None else float(target.timeout) if target.timeout else None,
            map_bound=delivery_states.map_bound(connection.frame_size) if presents_map else 0,
            incomplete=remote.incomplete_unsettled,
            peer=connection.peer,
            starts=_starts_of(remote) if presents_map else (),
            expiry_policy=str(target.expiry_policy if self.made is None else TerminusExpiryPolicy.LINK_DETACH),
            place=connection.place_of(self.link),
            owner=connection.policy.owner,
            require=self._require,
            require_processed=self._require_processed,
            sends_again=exactly_once and presents_map,
            waits=granted and (remote.properties or {}).get(vocabulary.WAIT) is True,
        )

    # --- from the client ----------------------------------------------------------------------------------------------

    def transfer_input(self, event: DeliveryReceived) -> PublisherTransfer:
        """A whole delivery of the publisher (I-1)."""
        return PublisherTransfer(
            self.number,
            event.delivery_id,
            event.tag,
            event.payload,
            event.settled,
            event.resume,
            event.aborted,
            event.message_format,
            event.receiver_settles,
        )

    def large_input(self, event: LargeEvent) -> LargeTransfer:
        """A part of a large delivery, or its end (L-1)."""
        number, delivery_id = self.number, event.delivery_id
        if isinstance(event, DeliveryBegun):
            self._large_tag = event.tag
            self.connection.driver.watch_stream(number)
            return LargeTransfer(
                number,
                delivery_id,
                event.tag,
                event.payload,
                Part.FIRST,
                event.message_format,
                event.receiver_settles,
                event.resume,
            )
        tag = self._large_tag
        if isinstance(event, DeliveryPart):
            return LargeTransfer(number, delivery_id, tag, event.payload, Part.MIDDLE)
        if isinstance(event, DeliveryEnded):
            return LargeTransfer(number, delivery_id, tag, event.payload, Part.LAST, settled=event.settled)
        return LargeTransfer(number, delivery_id, tag, b"", Part.ABORT)

    @property
    def is_streaming(self) -> bool:
        """Whether a delivery has come in part."""
        return self.link.incoming is not None

    def disposition_input(self, event: DispositionReceived) -> Input | None:
        """The publisher settled deliveries (I-4); what it says without settling changes nothing here."""
        if not event.settled:
            return None
        return PublisherSettle(self.number, event.tags)

    def flow_input(self, event: LinkFlow) -> Input | None:
        """The answer to our echo (A-4), or the question who still owes a delivery."""
        properties = event.properties
        if not properties:
            return None
        echoed, asked = properties.get(vocabulary.ECHO), properties.get(vocabulary.ASK)
        if event.echo:
            with contextlib.suppress(StateError):  # detached in the same read
                self.link.flow()
        return ClientFlow(
            self.number,
            echoed_epoch=int(echoed) if isinstance(echoed, int) else None,
            asked_tag=asked if isinstance(asked, bytes) else None,
        )

    # --- from the record core -----------------------------------------------------------------------------------------

    def fail(self) -> None:
        """See records_driver.ClientLink."""
        self.connection.fail()

    def carry_out(self, effect: Any) -> None:
        """Carry out an effect (see records_driver.ClientLink)."""
        try:
            _HANDLERS[type(effect)](self, effect)
        except StateError:
            return  # detached in the same read
        except LimitError as error:
            self.connection.close("amqp:frame-size-too-small", str(error))
        if not self.connection.is_dirty:
            self.connection.mark_dirty()

    def _dispose(self, effect: effects.Dispose) -> None:
        """Report the outcome of deliveries (I-3)."""
        self.link.dispose(effect.delivery_ids, reported_state(effect), effect.settled)

    def _grant(self, effect: effects.GrantPublisherCredit) -> None:
        """Let the publisher send up to a total (C-1); the first grant states the session (F24)."""
        moved = (self.link.delivery_count - self._initial_count) & SERIAL_MASK
        credit = (effect.limit - moved) & SERIAL_MASK
        properties: Fields | None = None
        if effect.session is not None:
            properties = {vocabulary.SESSION: ULong(effect.session)}
        # More than half the serial range: the publisher is ahead of what is granted.
        self.link.grant(credit if credit <= SERIAL_MASK >> 1 else 0, properties=properties)

    def _ask_echo(self, effect: effects.AskEcho) -> None:
        """A-4: no credit, and a number that only this attach can answer with."""
        self.link.grant(0, echo=True, properties={vocabulary.ECHO: ULong(effect.epoch)})

    def _notify_owing(self, effect: effects.NotifyOwing) -> None:
        """Name those that owe a delivery; names that do not fit the client's frame are left out, the count is not."""
        reported: Fields = {vocabulary.ASKED: effect.tag, vocabulary.OWING_COUNT: UInt(effect.count)}
        self._flow_with_names(reported, {vocabulary.OWING: effect.names})

    def _notify_ended(self, effect: effects.NotifyEnded) -> None:
        """I-3b: subscriptions that ended while they owed the publisher's deliveries."""
        reported: Fields = {vocabulary.ENDED_COUNT: UInt(effect.count), vocabulary.ENDED_TAG: effect.tag}
        self._flow_with_names(reported, {vocabulary.ENDED: effect.names})

    def _notify_accepted_by(self, effect: effects.NotifyAcceptedBy) -> None:
        """I-3c, I-3g: subscriptions that are done with what is accepted from that delivery on."""
        reported: Fields = {vocabulary.ACCEPTED_COUNT: UInt(effect.count), vocabulary.ACCEPTED_TAG: effect.tag}
        named: dict[Symbol, Sequence[str]] = {vocabulary.ACCEPTED_BY: effect.names}
        if self._require_processed is not None:
            reported[vocabulary.PROCESSED_COUNT] = UInt(effect.processed.total)
            reported[vocabulary.STORED_COUNT] = UInt(effect.stored.total)
            named |= {vocabulary.PROCESSED_BY: effect.processed.names, vocabulary.STORED_BY: effect.stored.names}
        self._flow_with_names(reported, named)

    def _flow_with_names(self, reported: Fields, named: Mapping[Symbol, Sequence[str]]) -> None:
        try:
            self.link.flow({**reported, **{key: list(names) for key, names in named.items()}})
        except LimitError:
            self.link.flow({**reported, **{key: [] for key in named}})

    def _notify_start(self, effect: effects.NotifyStart) -> None:
        """I-6a: what the publisher states to its next router."""
        self.link.flow({vocabulary.START: ULong(effect.created), vocabulary.START_TAG: effect.tag})

    def _detach(self, effect: effects.DetachLink) -> None:
        self.connection.detach(self.number, self.link, effect)

    def _close(self, effect: effects.CloseConnection) -> None:
        self.connection.close(effect.condition, effect.description)

    def _reply(self, effect: effects.PublisherReply) -> None:
        """A-3a, A-3b: the map with what may be resumed, null for null, and what was really granted."""
        remote = self.link.remote_attach
        assert remote is not None
        asked = remote.target
        assert isinstance(asked, Target)
        properties: Fields = {vocabulary.RESUME: "resumed" if effect.resumed else "new"}
        if self._require is not None:  # I-3c: a router that does not know it leaves it out
            properties[vocabulary.REQUIRE] = UInt(self._require)
        if self._require_processed is not None:  # I-3g: likewise
            properties[vocabulary.REQUIRE_PROCESSED] = UInt(self._require_processed)
        link, kept = self.link, self.connection.kept_message_size
        link.stream_above, link.most_kept = effect.stream_above, kept
        link.why_kept = _STORED_SETTLED
        is_stored = remote.snd_settle_mode == SenderSettleMode.SETTLED
        link.reply(
            source=remote.source,
            target=Target(
                address=self.made or asked.address,
                durable=asked.durable,
                expiry_policy=Symbol(effect.expiry_policy),
                timeout=int(effect.timeout_s),
                dynamic=self.made is not None,
                dynamic_node_properties=None if self.made is None else vocabulary.DELETE_ON_CLOSE,
                capabilities=(vocabulary.EXACTLY_ONCE,) if effect.exactly_once else (),
            ),
            unsettled=None if effect.unsettled is None else delivery_states.map_of(effect.unsettled),
            rcv_settle_mode=ReceiverSettleMode.FIRST if effect.settles_first else ReceiverSettleMode.SECOND,
            max_message_size=kept if is_stored else self.connection.max_message_size,
            offered_capabilities=(vocabulary.EXACTLY_ONCE,) if effect.exactly_once else (),
            properties=properties,
        )


_HANDLERS: dict[type, Callable[[PublisherLink, Any], None]] = {
    effects.Dispose: PublisherLink._dispose,
    effects.GrantPublisherCredit: PublisherLink._grant,
    effects.PublisherReply: PublisherLink._reply,
    effects.AskEcho: PublisherLink._ask_echo,
    effects.NotifyOwing: PublisherLink._notify_owing,
    effects.NotifyEnded: PublisherLink._notify_ended,
    effects.NotifyAcceptedBy: PublisherLink._notify_accepted_by,
    effects.NotifyStart: PublisherLink._notify_start,
    effects.DetachLink: PublisherLink._detach,
    effects.CloseConnection: PublisherLink._close,
}
"""Behind the class: a compiled one cannot hold its own methods."""


def reported_state(effect: effects.Dispose) -> DeliveryState:
    """An outcome as the publisher gets it."""
    if effect.outcome is DeliveryOutcome.REJECTED and effect.condition:
        return Rejected(amqp_error(effect.condition, effect.description, effect.info))
    return delivery_states.state_of(effect.outcome)


def _starts_of(attach: Attach) -> list[tuple[bytes, int]]:
    """The pairs (tag, revision) of a publisher's attach (I-6a), at most one for each entry of its map.

    Raises:
        LinkRefusal: they are something else.
    """
    pairs = (attach.properties or {}).get(vocabulary.STARTS)
    if pairs is None:
        return []
    found: list[tuple[bytes, int]] = []
    for pair in pairs if isinstance(pairs, list) and len(pairs) <= len(attach.unsettled or ()) else [None]:
        tag, revision = pair if isinstance(pair, list) and len(pair) == 2 else (None, None)
        if not isinstance(tag, bytes) or not isinstance(revision, int) or revision < 0:
            text = f"{vocabulary.STARTS} is a list of [tag of the unsettled map, revision], one for each entry at most"
            raise LinkRefusal("amqp:invalid-field", text)
        found.append((tag, revision))
    return found


def _require_of(attach: Attach, name: Symbol, *, settles_first: bool) -> int | None:
    """How many subscriptions a publisher requires (I-3c, I-3g); None when it does not ask.

    Raises:
        LinkRefusal: it is no uint, or the link cannot have it.
    """
    properties = attach.properties or {}
    if name not in properties:
        return None
    require = vocabulary.number_in(properties, name)
    if require is None or require > MAX_REQUIRE:
        raise LinkRefusal("amqp:invalid-field", f"{name} is a uint: how many subscriptions there must be")
    if settles_first:
        raise LinkRefusal("amqp:invalid-field", f"{name} needs rcv-settle-mode second")
    return require


def _topic_of(attach: Attach) -> str | None:
    """The topic a publisher attaches to; None: it wants an address made.

    Raises:
        LinkRefusal: no such target here.
    """
    refuse_unless_publishable(attach)
    target = attach.target
    assert isinstance(target, Target)
    return None if target.dynamic or target.address is None else plain(target.address)
