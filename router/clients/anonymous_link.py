"""A link to the anonymous terminus: each message goes to the address in its `to` (rule X-1).

For each address there is an inner link: a publisher, which the record core takes for a stock publisher of that topic,
or a routed link to a service. It is attached when the first message for the address comes. Messages wait here until it
has credit; its outcomes are the client's, and the client's settlements are its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from delivery_records.model import effects
from delivery_records.model.inputs import Input, LinkDetach, LinkLost, LossCause, PublisherSettle
from delivery_records.model.limits import ENTRY_BYTES
from oncewire.wire import (
    INVALID_FIELD,
    NOT_ALLOWED,
    NOT_FOUND,
    NOT_IMPLEMENTED,
    PRECONDITION_FAILED,
    RELEASED,
    RESOURCE_LIMIT_EXCEEDED,
    UNAUTHORIZED_ACCESS,
    AmqpError,
    DeliveryReceived,
    DeliveryState,
    DispositionReceived,
    Fields,
    LimitError,
    LinkFlow,
    Modified,
    ReceiverLink,
    ReceiverSettleMode,
    Rejected,
    StateError,
    Symbol,
    Target,
    TerminusExpiryPolicy,
    vocabulary,
)
from router.clients.anonymous_owner import AnonymousOwner
from router.clients.inner_links import Inner, InnerPublisher, InnerRoute
from router.clients.inner_opening import InnerOpening, destination_of
from router.clients.link_owner import LinkOwner
from router.clients.link_refusal import (
    LinkRefusal,
    refuse_to_resume,
    refuse_unless_policy,
    refuse_unless_publishable,
    refuse_unless_topic,
)
from router.clients.publisher_link import reported_state

WINDOW = 256
"""Deliveries that a client may have unsettled on one link. They hide a round trip and an attach to etcd."""
ADDRESSES = 64
"""Inner publishers of one link: each is a key in etcd. One at rest is closed when another address needs its place."""
HELD_BYTES = 256 * 1024
"""Bodies that may wait here before the session is offered no more frames, as for routed links (R-8)."""
REJECTED_OUTCOME = Symbol("amqp:rejected:list")
DELIVERY_TAG = Symbol("delivery-tag")
"""In the info of an error: which message could not go to its address."""
_FINAL = frozenset(
    {
        INVALID_FIELD,
        NOT_ALLOWED,
        NOT_FOUND,
        NOT_IMPLEMENTED,
        PRECONDITION_FAILED,
        RESOURCE_LIMIT_EXCEEDED,
        UNAUTHORIZED_ACCESS,
    }
)
"""Why an address has no inner publisher, and why sending again does not help: its messages are rejected with it."""


@dataclass(slots=True)
class _Leaving:
    """The client has ended the link, and what was read goes on first."""

    cause: LossCause
    answers: bool
    """The client waits for our answer, so it gets outcomes."""
    closed: bool
    until: float
    """On the monotonic clock: what has no outcome then gets one."""
    timer: asyncio.TimerHandle


class AnonymousLink:
    """The receiving end of a link to the anonymous terminus."""

    __slots__ = (
        "_budget",
        "_held_bytes",
        "_inner",
        "_inner_of",
        "_leaving",
        "_opening",
        "_owner",
        "_refused",
        "_reported",
        "_settles_first",
        "_takes_rejected",
        "_waiting",
        "connection",
        "is_over",
        "link",
    )

    def __init__(self, owner: AnonymousOwner, connection: LinkOwner, link: ReceiverLink) -> None:
        """An attach came."""
        self._owner = owner
        self.connection = connection
        self.link = link
        self.is_over = False
        self._leaving: _Leaving | None = None
        self._opening = InnerOpening(self, owner)
        self._budget = connection.driver.records.budget
        self._inner: dict[str, Inner] = {}
        """By address; the one that was used last is the last."""
        self._inner_of: dict[int, Inner | None] = {}
        """Whose each unsettled delivery is, by delivery-id; None: it waits for a place."""
        self._refused: set[int] = set()
        """Deliveries that were rejected here and that the client has not settled."""
        self._reported: set[int] = set()
        """Those of inner links that have an outcome and that the client has not settled."""
        self._waiting: deque[DeliveryReceived] = deque()
        """Deliveries that came when all inner publishers were busy, and all behind them."""
        self._held_bytes = 0
        self._settles_first = False
        self._takes_rejected = True
        """Whether the client's source knows the outcome rejected; else its link is detached in its place."""

    @property
    def is_full(self) -> bool:
        """C-6: whether so much waits here that its session is offered no frames."""
        return self._held_bytes > HELD_BYTES

    def open(self) -> None:
        """Answer the attach, and grant credit.

        Raises:
            LinkRefusal: it asks for something this router does not offer.
            LimitError: the client's frames are too small for the answer.
        """
        link, remote = self.link, self.link.remote_attach
        assert remote is not None
        refuse_unless_publishable(remote)
        target = remote.target
        assert isinstance(target, Target)
        refuse_unless_topic(None, target.capabilities)
        refuse_unless_policy(target.expiry_policy)
        refuse_to_resume(remote)
        self._settles_first = remote.rcv_settle_mode == ReceiverSettleMode.FIRST
        outcomes = () if remote.source is None else remote.source.outcomes
        self._takes_rejected = not outcomes or REJECTED_OUTCOME in outcomes
        properties: Fields = {vocabulary.RESUME: "new"}
        link.reply(
            source=remote.source,
            target=Target(expiry_policy=TerminusExpiryPolicy.LINK_DETACH),
            unsettled=None if remote.unsettled is None else {},
            rcv_settle_mode=ReceiverSettleMode.FIRST if self._settles_first else ReceiverSettleMode.SECOND,
            max_message_size=self.connection.kept_message_size,
            properties=properties,
        )
        link.answers_detach = True  # behind what was read
        link.grant(WINDOW)

    # --- from the client ----------------------------------------------------------------------------------------------

    def on_delivery(self, event: DeliveryReceived, inputs: list[Input]) -> None:
        """A message has come: to its inner publisher, behind those that wait."""
        if self.is_over or event.aborted:
            self._top_up()
            return
        if not event.settled:
            self._inner_of[event.delivery_id] = None
        if self._waiting:
            self._wait(event)
            return
        self._route(event, inputs)

    def _route(self, event: DeliveryReceived, inputs: list[Input]) -> bool:
        """Give a message to its inner publisher, or reject it; False: there is no place for one."""
        try:
            address = destination_of(event)
            inner = self._inner.get(address)
            if inner is None:
                inner = self._opened(address, inputs)
            if event.receiver_settles and isinstance(inner, InnerRoute):
                raise LinkRefusal(NOT_IMPLEMENTED, "the rcv-settle-mode of a message to a service is that of its link")
        except LinkRefusal as refusal:
            self._reject(event, refusal, inputs)
            return True
        if inner is None:
            self._wait(event)
            return False
        self._inner[address] = self._inner.pop(address)
        if not event.settled:
            self._inner_of[event.delivery_id] = inner
            inner.open += 1
        if inner.held or inner.sent >= inner.limit:
            inner.held.append(event)
            self._hold(_size(event))
        else:
            inner.pass_on(event, inputs)
        return True

    def _opened(self, address: str, inputs: list[Input]) -> Inner | None:
        """A new inner link; None: all places are taken.

        Raises:
            LinkRefusal: there may be none for this address.
        """
        self._opening.refuse_unless_allowed(address)
        if len(self._inner) >= ADDRESSES and not self._make_place(inputs):
            return None
        inner = self._inner[address] = self._opening.open(address, self._settles_first, inputs)
        return inner

    def _make_place(self, inputs: list[Input]) -> bool:
        """Close the inner publisher that was not used for longest and is at rest."""
        for inner in self._inner.values():
            if inner.is_at_rest:
                self._forget(inner)
                inner.close_at_rest(inputs)
                return True
        return False

    def _reject(self, event: DeliveryReceived, refusal: LinkRefusal, inputs: list[Input]) -> None:
        """X-1: the message is refused, and the link stays where the outcome alone can state that to the client."""
        self._owner.log_refused(self.link, refusal)
        if self._leaving is not None and event.settled:
            return  # the link ends anyway, and others may wait behind this one
        if event.settled or not self._takes_rejected:
            info = {str(DELIVERY_TAG): event.tag}
            self._end_link(effects.DetachLink(0, True, refusal.condition, refusal.description, info), inputs)
            return
        self._inner_of.pop(event.delivery_id, None)
        settled = self._settles_first or event.receiver_settles
        if not settled:
            self._refused.add(event.delivery_id)
        with contextlib.suppress(StateError):  # detached in the same read, or its client is gone
            self._state_rejected(event, refusal, settled)
        self._top_up()

    def _state_rejected(self, event: DeliveryReceived, refusal: LinkRefusal, settled: bool) -> None:
        condition = Symbol(refusal.condition)
        info: Fields = {DELIVERY_TAG: event.tag}
        try:
            self.link.dispose([event.delivery_id], Rejected(AmqpError(condition, refusal.description, info)), settled)
        except LimitError:  # the client's frames are too small for the explanation
            self.link.dispose([event.delivery_id], Rejected(AmqpError(condition, None, info)), settled)

    def on_disposition(self, event: DispositionReceived, inputs: list[Input]) -> None:
        """The client settled deliveries: so do their inner publishers (I-4)."""
        if self.is_over or not event.settled:
            return
        settled: dict[Inner, list[tuple[int, bytes]]] = {}
        for delivery_id, tag in event.deliveries:
            self._refused.discard(delivery_id)
            self._reported.discard(delivery_id)
            inner = self._inner_of.pop(delivery_id, None)
            waiting = self._waiting if inner is None else inner.held
            if inner is not None:
                inner.open -= 1
            held = next((each for each in waiting if each.delivery_id == delivery_id), None)
            if held is not None:
                held.settled = True  # I-4a: it is sent once, and nobody waits for an outcome
            elif inner is not None:
                settled.setdefault(inner, []).append((delivery_id, tag))
        for inner, found in settled.items():
            tags = [tag for _, tag in found]
            if isinstance(inner, InnerPublisher):
                inputs.append(PublisherSettle(inner.number, tags))
            elif isinstance(inner, InnerRoute):
                inner.settle([delivery_id for delivery_id, _ in found], tags)
        self._next(inputs)

    def on_flow(self, event: LinkFlow) -> None:
        """The client asks for the state of the link; the engine has answered what has no properties."""
        if event.echo and event.properties:
            with contextlib.suppress(StateError):  # detached in the same read
                self.link.flow()

    # --- from the record core -----------------------------------------------------------------------------------------

    def carry_out(self, inner: InnerPublisher, effect: Any) -> None:
        """See `Outer`."""
        if isinstance(effect, effects.Dispose):
            self.on_outcome(inner, list(effect.delivery_ids), reported_state(effect), effect.settled)
        elif isinstance(effect, effects.GrantPublisherCredit):
            inner.limit = effect.limit
            self.on_credit(inner)
        elif isinstance(effect, effects.DetachLink):
            self.on_ended(inner, effect)
        elif isinstance(effect, effects.CloseConnection):
            self.connection.close(effect.condition, effect.description)

    # --- of inner links -----------------------------------------------------------------------------------------------

    def on_outcome(self, inner: Inner, delivery_ids: list[int], state: DeliveryState | None, settled: bool) -> None:
        """X-1: the outcome of an inner link's delivery is the outcome of the client's."""
        if settled:
            for delivery_id in delivery_ids:
                if self._inner_of.pop(delivery_id, None) is not None:
                    inner.open -= 1
        else:
            self._reported.update(delivery_ids)
        if self._leaving is None or self._leaving.answers:
            self.link.dispose(delivery_ids, state, settled)
        inputs: list[Input] = []
        self._next(inputs)
        self._submit(inputs)

    def on_credit(self, inner: Inner) -> None:
        """There is credit: what waits goes on, in order."""
        inputs: list[Input] = []
        while inner.held and inner.sent < inner.limit:
            event = inner.held.popleft()
            self._hold(-_size(event))
            inner.pass_on(event, inputs)
        self._next(inputs)
        self._submit(inputs)

    def on_ended(self, inner: Inner, effect: effects.DetachLink) -> None:
        """An inner link was refused or has ended: what waits for it is rejected, or the link is detached."""
        if self._inner.get(inner.address) is not inner:
            return  # the answer to our close
        if inner.is_at_rest or self._leaving is not None:
            self._end_without(inner, effect)
            return
        is_new = not inner.sent and inner.open == sum(not each.settled for each in inner.held)
        if not is_new or effect.condition not in _FINAL:
            self._detach(inner, effect)
            return
        self._forget(inner)
        held, inner.held = inner.held, deque()
        inputs: list[Input] = []
        for event in held:
            self._hold(-_size(event))
        for event in held:
            if not self.is_over:
                self._reject(event, LinkRefusal(effect.condition, effect.description), inputs)
        self._next(inputs)
        self._submit(inputs)

    def _end_without(self, inner: Inner, effect: effects.DetachLink) -> None:
        """An inner link is gone, and the client's link goes on, or ends behind the others."""
        inputs: list[Input] = []
        self._forget(inner)
        if self._leaving is not None and not inner.is_at_rest:
            held, inner.held = inner.held, deque()
            for event in held:
                self._hold(-_size(event))
            if effect.condition in _FINAL and not inner.sent:
                for event in held:
                    self._reject(event, LinkRefusal(effect.condition, effect.description), inputs)
                held.clear()
            self._state_unfinished(list(held), [inner])
        self._next(inputs)
        self._submit(inputs)

    def _detach(self, ended: Inner, effect: effects.DetachLink) -> None:
        """Detach the client's link; it attaches again, and sends again what has no outcome."""
        self._forget(ended)
        inputs: list[Input] = []
        self._end_link(effect, inputs)
        self._submit(inputs)

    def _end_link(self, effect: effects.DetachLink, inputs: list[Input]) -> None:
        self.end(LossCause.DETACH, inputs)
        self._owner.forget(self.link)
        self.connection.detach(0, self.link, effect)  # no link has this number
        self.connection.mark_dirty()

    # --- ends ---------------------------------------------------------------------------------------------------------

    def leave(self, cause: LossCause, inputs: list[Input], *, answers: bool, closed: bool) -> bool:
        """X-1: the client has ended the link. What was read goes on first; False: there is nothing of it.

        Args:
            cause: how.
            inputs: for the record core.
            answers: the client waits for an answer: it gets outcomes, and `connection.detach` is called behind them.
            closed: the link is to be detached for good.
        """
        if self._leaving is None:
            wait_s = self.connection.driver.records.limits.end_wait_s
            timer = asyncio.get_running_loop().call_later(wait_s, self._on_time_over)
            self._leaving = _Leaving(cause, answers, closed, time.monotonic() + wait_s, timer)
        else:  # the session or the connection ends behind a detach
            self._leaving.cause, self._leaving.answers = cause, answers
        return not self._is_finished(self._leaving, inputs)

    def _is_finished(self, leaving: _Leaving, inputs: list[Input]) -> bool:
        """Let inner links end that have passed on everything; whether there are none left."""
        for inner in [] if self._waiting else list(self._inner.values()):
            if not inner.held and isinstance(inner, InnerRoute):
                if self._reported.issuperset(number for number, found in self._inner_of.items() if found is inner):
                    self._forget(inner)
                    inner.close()
            elif not inner.held and isinstance(inner, InnerPublisher):
                if not leaving.answers:
                    self._forget(inner)
                    inputs.append(LinkLost(inner.number, leaving.cause))
                elif not inner.is_ending:
                    inner.is_ending = True
                    inputs.append(LinkDetach(inner.number, False))
        if not self._inner and not self._waiting:
            self._finish(leaving)
        return self.is_over

    def _finish(self, leaving: _Leaving) -> None:
        leaving.timer.cancel()
        self.is_over = True
        self._owner.forget(self.link)
        self.drop()

    def _on_time_over(self) -> None:
        """A-9a: T_end is over."""
        leaving = self._leaving
        if self.is_over or leaving is None or self.connection.driver.is_stopped:
            return
        inputs: list[Input] = []
        unsent = list(self._waiting)
        self._waiting.clear()
        for inner in self._inner.values():
            unsent += inner.held
            inner.held.clear()
        for event in unsent:
            self._hold(-_size(event))
        self._state_unfinished(unsent, [inner for inner in self._inner.values() if isinstance(inner, InnerRoute)])
        self._next(inputs)
        self._submit(inputs)

    def _state_unfinished(self, unsent: list[DeliveryReceived], ended: list[Inner]) -> None:
        """A-9a: *released* is what was sent to nobody, *modified* what may have been; `ended` say nothing more."""
        leaving = self._leaving
        assert leaving is not None
        released = [event.delivery_id for event in unsent if not event.settled]
        for number in released:
            inner = self._inner_of.pop(number, None)
            if inner is not None:
                inner.open -= 1
        modified = [
            number for number, inner in self._inner_of.items() if inner in ended and number not in self._reported
        ]
        for number in modified:
            del self._inner_of[number]
        if released or modified or unsent:
            self._owner.log_unfinished(self.link, len(released), len(modified), len(unsent) - len(released))
        if leaving.answers:
            with contextlib.suppress(StateError):
                self.link.dispose(released, RELEASED, True)
                self.link.dispose(modified, Modified(delivery_failed=True), True)

    def end(self, cause: LossCause, inputs: list[Input]) -> None:
        """We end the link: its inner links are lost (A-9)."""
        if self._leaving is not None:
            self._leaving.timer.cancel()
        self.is_over = True
        for inner in list(self._inner.values()):
            self._forget(inner)
            if isinstance(inner, InnerPublisher):
                inputs.append(LinkLost(inner.number, cause))
            elif isinstance(inner, InnerRoute):
                inner.lose()
        self.drop()

    def drop(self) -> None:
        """Forget everything that waits."""
        self._hold(-self._held_bytes)
        self._waiting.clear()
        self._inner.clear()
        self._inner_of.clear()
        self._refused.clear()
        self._reported.clear()

    def end_unless_allowed(self, inner: InnerPublisher, refusal: LinkRefusal) -> bool:
        """The rules do not allow this address any more. False: it has deliveries without an outcome, so the link ends.

        An outcome that is not known must not be reported: some subscription may have processed the delivery.
        """
        if not inner.is_at_rest:
            self._detach(inner, effects.DetachLink(inner.number, False, refusal.condition, refusal.description))
            return False
        self._forget(inner)
        return True

    # --- what waits ---------------------------------------------------------------------------------------------------

    def _wait(self, event: DeliveryReceived) -> None:
        self._waiting.append(event)
        self._hold(_size(event))

    def _next(self, inputs: list[Input]) -> None:
        """Something was settled or sent: whoever waits for a place may have one, and the client credit."""
        while self._waiting:
            event = self._waiting.popleft()
            self._hold(-_size(event))
            waiting, self._waiting = self._waiting, deque()
            has_place = self._route(event, inputs)
            if self.is_over:
                return  # the message could only be refused by a detach
            self._waiting = deque([*self._waiting, *waiting])
            if not has_place:
                break
        self._top_up()
        leaving = self._leaving
        if leaving is not None and not self.is_over and self._is_finished(leaving, inputs) and leaving.answers:
            self.connection.detach(0, self.link, effects.DetachLink(0, leaving.closed))  # no link has this number
            self.connection.mark_dirty()

    def _top_up(self) -> None:
        """Grant credit for what was settled; none while deliveries wait for a place."""
        room = WINDOW - len(self._inner_of) - len(self._refused)
        takes_more = self._leaving is None and not (self.is_over or self._waiting or self.is_full)
        if takes_more and room - self.link.credit >= WINDOW // 4:
            with contextlib.suppress(StateError):  # detached in the same read
                self.link.grant(room)
        self.connection.mark_dirty()

    def _hold(self, size: int) -> None:
        """C-6: what waits here is part of what the router holds."""
        self._held_bytes += size
        self._budget.add_partial(size)

    def _forget(self, inner: Inner) -> None:
        self._inner.pop(inner.address, None)
        if isinstance(inner, InnerPublisher):
            self._owner.forget_inner(inner)

    def _submit(self, inputs: list[Input]) -> None:
        if inputs:
            self.connection.driver.submit(inputs)


def _size(event: DeliveryReceived) -> int:
    return len(event.payload) + ENTRY_BYTES
