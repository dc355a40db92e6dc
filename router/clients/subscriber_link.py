"""A subscriber's link: AMQP's attach, flow, transfer and disposition in the record core's words, and back.

The attach says which of three modes the subscription has: at-most-once if it is to be sent settled, exactly-once with
a map and rcv-settle-mode second, at-least-once else. Beyond the mode a client may promise what AMQP does not ask for;
only who names the capability is granted exactly-once. A map that does not fit the attach comes in parts behind it, and
so does the rest of the reply's (C-4).

The core names deliveries by their tags, and AMQP settles by delivery-ids: `_ids` leads from one to the other for what
the client has not settled. A usual delivery is sent as it is. One that is repeated, counted or annotated has its
annotations changed on the bytes; one of a foreign format never has (I-1b). A large one is sent part by part by a
`Sending`, which is made when the first one comes.

The core may have decided to send when the client takes back credit in the same read. Such a delivery waits in
`_waiting`, in order, until there is credit again, and leaves it if it is settled before. One that is larger than what
the client takes is answered in its place, as rejected: nobody will ever process it here.

The client's last flow is kept. It is submitted when the attach is answered, and not before. While the client does not
read, the core is given no credit beyond what was sent, so new deliveries wait there and not in the socket
(C-2); when it reads again, its own word holds. The proof of life that an echo asks for (A-10) does not wait for the
socket.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from delivery_records.model import effects
from delivery_records.model.inputs import ClientFlow, Input, MapPart, Share, SubscriberAttach, SubscriberDisposition
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.parts import Part
from delivery_records.model.topics import split_vhost
from delivery_records.model.view import SubscriptionMode
from oncewire.wire import (
    CreditError,
    DeliveryState,
    DispositionReceived,
    LimitError,
    LinkFlow,
    LocalProtocolError,
    Modified,
    ReceiverSettleMode,
    Rejected,
    SenderLink,
    SenderSettleMode,
    Source,
    StateError,
    Symbol,
    TerminusDurability,
    TerminusExpiryPolicy,
    UInt,
    ULong,
    vocabulary,
)
from oncewire.wire.map_parts import entries_stated, parts_of, read_part, stated_entries
from router.amqp.addresses import plain
from router.clients import delivery_states
from router.clients.large_sending import Sending
from router.clients.link_owner import LinkOwner
from router.clients.link_refusal import (
    LinkRefusal,
    address_of,
    applied_filter,
    asked_filter,
    refuse_unless_policy,
    refuse_unless_topic,
)
from router.clients.message_edits import EMPTY_DATA_SECTION, edit_for_attempt
from router.clients.shared_subscriptions import granted, share_of
from router.process.logs import RouterEvent

_TOO_LARGE = "amqp:link:message-size-exceeded: the message is larger than the subscriber's max-message-size"


class SubscriberLink:
    """The sending end of one subscriber's link."""

    __slots__ = (
        "_default_state",
        "_flow",
        "_ids",
        "_in_parts",
        "_is_held",
        "_is_replied",
        "_may_get_again",
        "_needs_payload",
        "_sending",
        "_sends_unsettled",
        "_sent",
        "_share",
        "_waiting",
        "connection",
        "link",
        "made",
        "number",
    )

    def __init__(self, connection: LinkOwner, link: SenderLink) -> None:
        self.connection = connection
        self.link = link
        self.number = connection.driver.add_link(self)
        self._ids: dict[bytes, int] = {}
        """Delivery-ids of what the client has not settled, by network tag."""
        self._sent = 0
        self._sending: Sending | None = None
        """What is sent part by part; None: nothing was."""
        self._waiting: deque[effects.Deliver | effects.DeliverPart] = deque()
        """Decided in a turn in which the client took back credit: only then can the engine be out of credit."""
        self._flow: ClientFlow | None = None
        """The client's last word on credit."""
        self._in_parts = False
        """The rest of the client's map follows its attach, and the rest of the reply's follows that (C-4)."""
        self._is_replied = False
        self._is_held = False
        self._needs_payload = True
        self._may_get_again = False
        self._sends_unsettled = False
        """The client asked for snd-settle-mode unsettled: also what its publisher pre-settled goes out so (2.8.2)."""
        self._share: Share | None = None
        """The shared subscription that it is a member of (SH-1)."""
        self._default_state: DeliveryState | None = None
        """What the client's source says of deliveries that are settled without an outcome (3.5.3)."""
        self.made: str | None = None
        """The address that was made for its dynamic source (X-2)."""

    @property
    def sent(self) -> int:
        """Transfers on this link."""
        return self._sent

    @property
    def address(self) -> str | None:
        """The topic or pattern; None where an existing subscription is looked up."""
        return self.made or address_of(self.link)

    def attach_input(self) -> SubscriberAttach:
        """What the client's attach asks for (A-2).

        Raises:
            LinkRefusal: it asks for something this router does not offer.
        """
        remote = self.link.remote_attach
        assert remote is not None
        source = remote.source
        if remote.target is None:  # 2.6.3: such an endpoint "MUST immediately" be detached
            raise LinkRefusal("amqp:invalid-field", "a subscriber's attach needs a target; its fields may be empty")
        if source is not None and source.dynamic:
            self.made = self.connection.policy.make_address()
        filter_text = asked_filter(source)
        if source is not None and self.address is None:
            raise LinkRefusal("amqp:invalid-field", "the source needs an address: a topic or a pattern")
        if source is not None:
            refuse_unless_topic(self.address, source.capabilities)
            refuse_unless_policy(source.expiry_policy)
            if delivery_states.outcome_of(source.default_outcome) is not None:
                self._default_state = source.default_outcome
        connection = self.connection
        topic = self.address
        connection.refuse_unless_allowed(self.link, topic)
        presents_map = remote.unsettled is not None and self.made is None
        second = remote.rcv_settle_mode == ReceiverSettleMode.SECOND
        mode = SubscriptionMode.AT_LEAST_ONCE
        if remote.snd_settle_mode == SenderSettleMode.SETTLED:
            mode = SubscriptionMode.AT_MOST_ONCE
        elif presents_map and second:
            mode = SubscriptionMode.EXACTLY_ONCE
        promises = vocabulary.EXACTLY_ONCE in remote.desired_capabilities
        exactly_once = promises and mode is SubscriptionMode.EXACTLY_ONCE
        self._needs_payload = not promises
        self._may_get_again = mode is SubscriptionMode.AT_LEAST_ONCE
        # Not where a map is presented: an entry for what names nothing (I-1c) would name another delivery in it.
        self._sends_unsettled = self._may_get_again and remote.snd_settle_mode == SenderSettleMode.UNSETTLED
        asked = source if source is not None else Source()
        # The capability's own convention: 0 asks for the default, else AMQP's 0 means at once.
        default_timeout = exactly_once and not asked.timeout
        self._share = self._asked_share(source)
        entries = stated_entries(remote) if presents_map else 0
        self._in_parts = entries > 0
        return SubscriberAttach(
            link=self.number,
            container_id=connection.container_id,
            link_name=self.link.name,
            topic=None if topic is None else connection.policy.inside(topic),
            unsettled=delivery_states.outcomes_of_map(remote.unsettled if presents_map else None),
            exactly_once=exactly_once,
            mode=mode,
            # an address that was made ends with its link, whatever was asked for.
            expiry_policy=str(asked.expiry_policy if self.made is None else TerminusExpiryPolicy.LINK_DETACH),
            timeout_s=None if default_timeout else 0.0 if self.made is not None else float(asked.timeout),
            map_bound=delivery_states.map_bound(connection.frame_size) if presents_map else 0,
            incomplete=remote.incomplete_unsettled and not self._in_parts,
            peer=connection.peer,
            place=connection.place_of(self.link),
            patience=connection.policy.patience_for(topic if topic is not None else self._looked_up()),
            owner=connection.policy.owner,
            share=self._share,
            filter=filter_text,
            entries=entries,
            stores=(remote.properties or {}).get(vocabulary.STORES) is True,
        )

    def _asked_share(self, source: Source | None) -> Share | None:
        connection = self.connection
        share = None if self.made is not None else share_of(self.link)
        if share is None and source is None:
            view = connection.driver.records.view
            return connection.policy.looked_up_share(self.link.name, connection.container_id, view)
        return share

    def _looked_up(self) -> str | None:
        connection = self.connection
        return connection.policy.subscribed_to(self.link.name, connection.container_id, connection.driver.records.view)

    # --- from the client ----------------------------------------------------------------------------------------------

    def disposition_input(self, event: DispositionReceived) -> Input | None:
        """The subscriber stated outcomes (E-4); settled without one counts as its default-outcome (E-4a)."""
        tags = event.tags
        state = event.state
        outcome = delivery_states.outcome_of(state)
        if event.settled:
            for tag in tags:
                self._ids.pop(tag, None)
            if outcome is None:
                state = self._default_state
                outcome = delivery_states.outcome_of(state)
        elif outcome is None:
            return None
        if not isinstance(state, Modified):
            error = delivery_states.error_text(state) if isinstance(state, Rejected) else ""
            return SubscriberDisposition(self.number, tags, outcome, event.settled, error=error)
        annotations, delay_ms = delivery_states.next_attempt(state, int(1000 * time.time()))
        return SubscriberDisposition(self.number, tags, outcome, event.settled, annotations, delay_ms)

    def flow_input(self, event: LinkFlow) -> Input | None:
        """The subscriber's credit; kept until the attach is answered, and while its socket is behind."""
        assert event.credit_limit is not None
        if self._in_parts and not self._is_replied and event.properties is not None:
            part = event.properties.get(vocabulary.MAP_PART)
            if part is not None:
                return MapPart(self.number, delivery_states.outcomes_of_map(read_part(part)))
        if self._waiting:
            self._send_waiting()
        if event.echo and event.properties is not None:
            with contextlib.suppress(StateError):  # detached in the same read
                self.link.flow()
        self._flow = ClientFlow(
            self.number, limit=event.credit_limit, drain=event.drain, delivery_count=event.delivery_count or 0
        )
        if not self._is_replied:
            return None
        echoed = None if event.properties is None else event.properties.get(vocabulary.ECHO)
        flow = ClientFlow(self.number, limit=self._sent) if self._is_held else self._flow
        if isinstance(echoed, int):
            return replace(flow, echoed_epoch=int(echoed))  # proof of life does not wait for the socket
        return None if self._is_held else flow

    def hold_input(self) -> Input | None:
        """The client does not read fast enough: new deliveries wait in the record core, not in the socket (C-2)."""
        self._is_held = True
        return ClientFlow(self.number, limit=self._sent) if self._is_replied else None

    def release_input(self) -> Input | None:
        """The client reads again: its own word on credit holds."""
        self._is_held = False
        return self._flow if self._is_replied else None

    # --- from the record core -----------------------------------------------------------------------------------------

    def deliver(self, effect: effects.Deliver) -> None:
        """Send a transfer (E-3), or the settled resume of A-7."""
        if self._waiting:
            self._waiting.append(effect)
            return
        if effect.redelivered or effect.attempt or effect.annotations or effect.settled or effect.message_format:
            self._send_special(effect)
            return
        tag = effect.tag
        try:
            self._ids[tag] = self.link.send(tag, effect.message, resume=effect.resume)
        except LocalProtocolError as error:
            self._not_sent(effect, error)
            return
        self._sent += 1
        if not self.connection.is_dirty:
            self.connection.mark_dirty()

    def _send_special(self, effect: effects.Deliver) -> None:
        """Repeated, pre-settled, or the settled resume of A-7, whose message may be empty."""
        message = effect.message
        if effect.message_format:
            pass  # I-1b: opaque, so nothing is spliced in
        elif effect.redelivered or effect.attempt or effect.annotations:
            message = edit_for_attempt(effect, message, counts_repeats=self._may_get_again)
        elif not message and self._needs_payload:
            message = EMPTY_DATA_SECTION
        state = None if effect.outcome is None else delivery_states.state_of(effect.outcome)
        settled = effect.settled and (effect.resume or not self._sends_unsettled)
        try:
            delivery_id = self.link.send(
                effect.tag,
                message,
                settled=settled,
                state=state,
                resume=effect.resume,
                message_format=effect.message_format,
            )
            if effect.settled and not settled:
                self.link.settle([delivery_id])  # I-1c: nobody waits for its outcome
        except LocalProtocolError as error:
            self._not_sent(effect, error)
            return
        self._sent += 1
        if not effect.settled:
            self._ids[effect.tag] = delivery_id
        self.connection.mark_dirty()

    def deliver_part(self, effect: effects.DeliverPart) -> None:
        """Send a part of a large delivery (L-3)."""
        if self._waiting and effect.part is not Part.ABORT:
            self._waiting.append(effect)
            return
        if self._waiting:  # it has not begun
            tag = effect.tag
            self._waiting = deque(each for each in self._waiting if type(each) is effects.Deliver or each.tag != tag)
            return
        if self._sending is None:
            self._sending = Sending(self.number, self.link, may_know_no_aborts=self._needs_payload)
        try:
            begun = self._sending.send(effect, counts_repeats=self._may_get_again)
        except LocalProtocolError as error:
            self._not_sent(effect, error)
            return
        if begun is not None:
            self._sent += 1
            if not effect.settled:
                self._ids[effect.tag] = begun
        elif effect.part is Part.ABORT:
            self._ids.pop(effect.tag, None)
        self.connection.sendings.add(self._sending)
        self.connection.mark_dirty()

    def _not_sent(self, effect: effects.Deliver | effects.DeliverPart, error: LocalProtocolError) -> None:
        if isinstance(error, CreditError):
            self._waiting.append(effect)
        elif isinstance(error, LimitError):
            self._reject_unsendable(effect)
        # Otherwise the link was detached in the same read; the record core hears of it in this turn.

    def _send_waiting(self) -> None:
        """New credit: what was decided before the client took credit back goes first."""
        waiting, self._waiting = self._waiting, deque()
        while waiting and not self._waiting:
            effect = waiting.popleft()
            if isinstance(effect, effects.Deliver):
                self.deliver(effect)
            else:
                self.deliver_part(effect)
        self._waiting += waiting

    def _settle(self, effect: effects.SettleAtSubscriber) -> None:
        """Settle deliveries at the subscriber (E-5)."""
        if self._waiting:
            settled = set(effect.tags)
            # A settled one only has the same tag (2.6.12).
            self._waiting = deque(each for each in self._waiting if each.settled or each.tag not in settled)
        ids = [found for tag in effect.tags if (found := self._ids.pop(tag, None)) is not None]
        if ids:
            ids.sort()
            self.link.settle(ids)

    def fail(self) -> None:
        """See records_driver.ClientLink."""
        self.connection.fail()

    def carry_out(self, effect: Any) -> None:
        """Carry out an effect other than `Deliver` (see records_driver.ClientLink)."""
        try:
            _HANDLERS[type(effect)](self, effect)
        except StateError:
            return  # detached in the same read
        except LimitError as error:
            # An attach of the client that is larger than the frames it takes itself.
            self.connection.close("amqp:frame-size-too-small", str(error))
        if not self.connection.is_dirty:
            self.connection.mark_dirty()

    def _ask_echo(self, effect: effects.AskEcho) -> None:
        """A-10: a number that only this attach can answer with."""
        self.link.flow({vocabulary.ECHO: ULong(effect.epoch)}, echo=True)

    def _confirm(self, effect: effects.Confirm) -> None:
        """The attach barrier is complete (A-6b); what the subscription has from now on."""
        self.link.flow(
            {
                vocabulary.CONFIRMED: ULong(effect.incarnation),
                vocabulary.TIMEOUT: UInt(int(effect.timeout_s)),
                vocabulary.EXPIRY_POLICY: Symbol(effect.expiry_policy),
            }
        )

    def _drained(self, _effect: effects.CompleteDrain) -> None:
        """Nothing more is here (C-5)."""
        self.link.drained()
        if self._flow is not None:
            self._sent = max(self._sent, self._flow.limit)

    def _detach(self, effect: effects.DetachLink) -> None:
        self.connection.detach(self.number, self.link, effect)

    def _close(self, effect: effects.CloseConnection) -> None:
        self.connection.close(effect.condition, effect.description)

    def _reply(self, effect: effects.SubscriberReply) -> None:
        """A-6: the granted source, and the entries that are kept."""
        remote = self.link.remote_attach
        assert remote is not None
        asked = remote.source if remote.source is not None else Source(durable=TerminusDurability.UNSETTLED_STATE)
        is_settled = effect.mode is SubscriptionMode.AT_MOST_ONCE
        properties: dict[Symbol, object] = {
            vocabulary.RESUME: "resumed" if effect.resumed else "new",
            vocabulary.INCARNATION: ULong(effect.incarnation),
        }
        if effect.patience is not None:  # K-5b
            properties[vocabulary.PATIENCE] = UInt(int(effect.patience.seconds))
            properties[vocabulary.WHEN_SLOW] = Symbol(effect.patience.action.value)
        kept = effect.kept
        bound = delivery_states.map_bound(self.connection.frame_size) if self._in_parts else len(kept or ())
        rest = (kept or ())[bound:]
        if kept is not None and self._in_parts:
            properties |= entries_stated(len(kept))
        self.link.reply(
            source=Source(
                address=_as_asked(asked.address, split_vhost(effect.topic)[1]),
                durable=asked.durable if self.made is None else TerminusDurability.NONE,
                expiry_policy=Symbol(effect.expiry_policy),
                timeout=int(effect.timeout_s),
                dynamic=self.made is not None,
                dynamic_node_properties=None if self.made is None else vocabulary.DELETE_ON_CLOSE,
                distribution_mode=vocabulary.COPY,
                filter=applied_filter(asked, effect.filter),
                default_outcome=self._default_state,
                outcomes=vocabulary.OUTCOMES,
                capabilities=(
                    *((vocabulary.EXACTLY_ONCE,) if effect.exactly_once else ()),
                    *granted(self._share, grouped=effect.grouped),
                ),
            ),
            target=remote.target,
            # Else a publisher's pre-settled transfers come settled (I-1c).
            snd_settle_mode=remote.snd_settle_mode if is_settled or self._sends_unsettled else SenderSettleMode.MIXED,
            unsettled=None if kept is None else dict.fromkeys(kept[:bound]),
            incomplete_unsettled=effect.incomplete or bool(rest),
            offered_capabilities=(vocabulary.EXACTLY_ONCE,) if effect.exactly_once else (),
            properties=properties,
        )
        for part in parts_of(dict.fromkeys(rest), bound):
            self.link.flow(part)
        self._is_replied = True
        if self._flow is not None and not self._is_held:
            self.connection.driver.submit([self._flow])

    def _reject_unsendable(self, effect: effects.Deliver | effects.DeliverPart) -> None:
        """The client takes only smaller messages: nobody will ever process this one here, as if it said rejected."""
        size = len(effect.message) if isinstance(effect, effects.Deliver) else self.link.begun_bytes + len(effect.data)
        if self._sending is not None and self.link.has_begun:
            self._sending.abort()
        self.connection.log.event(
            RouterEvent.DELIVERY_TOO_LARGE,
            link_name=self.link.name,
            container_id=self.connection.container_id,
            bytes=size,
        )
        self.connection.driver.submit(
            [SubscriberDisposition(self.number, [effect.tag], DeliveryOutcome.REJECTED, settled=True, error=_TOO_LARGE)]
        )


def _as_asked(asked: str | None, topic: str) -> str:
    """The address as the client wrote it, with or without `topic://`: stock clients compare (2.6.3)."""
    return asked if asked is not None and plain(asked) == topic else topic


_HANDLERS: dict[type, Callable[[SubscriberLink, Any], None]] = {
    effects.DeliverPart: SubscriberLink.deliver_part,
    effects.SettleAtSubscriber: SubscriberLink._settle,
    effects.SubscriberReply: SubscriberLink._reply,
    effects.AskEcho: SubscriberLink._ask_echo,
    effects.Confirm: SubscriberLink._confirm,
    effects.CompleteDrain: SubscriberLink._drained,
    effects.DetachLink: SubscriberLink._detach,
    effects.CloseConnection: SubscriberLink._close,
}
"""Behind the class: a compiled one cannot hold its own methods."""
