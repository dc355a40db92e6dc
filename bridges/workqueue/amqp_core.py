"""What the bridge does on one AMQP link of a queue: events of the link and results of the store come in.

`PushCore` serves a client that sends to ``queue://NAME``, `TakeCore` one that receives from it. Neither knows a store,
a clock or a connection; what they decide is returned as effects.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias

from bridges.workqueue.amqp_messages import handle_of, item_of, message_of, tag_of
from bridges.workqueue.errors import (
    AlreadyReassigned,
    InvalidRequest,
    LinkStolen,
    PayloadTooLarge,
    QueueError,
    StoreBusy,
    StoreFull,
    UnknownQueue,
)
from bridges.workqueue.items import Commit, Handle, LinkState, NewItem, Pushed, Rollback, Taken
from oncewire.wire import (
    ACCEPTED,
    INTERNAL_ERROR,
    NOT_FOUND,
    RELEASED,
    RESOURCE_LOCKED,
    STOLEN,
    Accepted,
    AmqpError,
    DeliveryReceived,
    DeliveryState,
    DispositionReceived,
    Modified,
    Rejected,
    Symbol,
)

PUSH_CREDIT = 256
"""Deliveries a sender may have under way to the store: two groups of one durable write."""
TAKE_COUNT = 64
"""Items reserved in one transaction for one link."""
DECODE_ERROR = Symbol("amqp:decode-error")
PRECONDITION_FAILED = Symbol("amqp:precondition-failed")
MESSAGE_TOO_LARGE = Symbol("amqp:link:message-size-exceeded")


@dataclass(frozen=True, slots=True)
class ToPush:
    """One delivery on its way into the store."""

    number: int
    tag: bytes
    item: NewItem


@dataclass(frozen=True, slots=True)
class Push:
    """Push these; `PushCore.on_pushed` takes what became of each, in order.

    Attributes:
        left: tags to forget before, in the same transaction (W-17).
    """

    items: list[ToPush]
    left: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class Settled:
    """Have the store forget the tags: their sender has settled."""

    tags: list[bytes]


@dataclass(frozen=True, slots=True)
class Dispose:
    """State the outcome of deliveries that came."""

    numbers: list[int]
    state: DeliveryState
    settled: bool


@dataclass(frozen=True, slots=True)
class Grant:
    """Set the sender's credit."""

    credit: int


@dataclass(frozen=True, slots=True)
class Detach:
    """End the link; with `closed` False its sender attaches again and presents what is unsettled."""

    closed: bool
    error: AmqpError


@dataclass(frozen=True, slots=True)
class Take:
    """Reserve or pop up to so many items; `TakeCore.on_taken` takes them."""

    count: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is ready: call `TakeCore.on_ready` when the queue has changed (W-13)."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send an item; `TakeCore.sent` takes the delivery-id."""

    item: Taken
    tag: bytes
    payload: bytes
    settled: bool


@dataclass(frozen=True, slots=True)
class Drained:
    """Give the receiver's credit back: nothing more is ready."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a worker stated of one item."""

    number: int
    operation: Commit | Rollback
    state: DeliveryState
    is_settled: bool
    """By the worker: it waits for no answer."""


@dataclass(frozen=True, slots=True)
class Settle:
    """Carry out outcomes in the store; `TakeCore.on_settled` takes what became of each, in order."""

    outcomes: list[Outcome]


@dataclass(frozen=True, slots=True)
class Answer:
    """Settle a delivery that went out, after its outcome is durable."""

    number: int
    state: DeliveryState


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Items that the receiver has no credit for any more."""

    handles: list[Handle]


PushEffect: TypeAlias = Push | Settled | Dispose | Grant | Detach
TakeEffect: TypeAlias = Take | Wait | Send | Drained | Settle | Answer | GiveBack | Detach


def error_of(error: QueueError) -> AmqpError:
    """The AMQP error that says the same."""
    if isinstance(error, UnknownQueue):
        condition: str = NOT_FOUND
    elif isinstance(error, PayloadTooLarge):
        condition = MESSAGE_TOO_LARGE
    elif isinstance(error, AlreadyReassigned):
        condition = RESOURCE_LOCKED
    elif isinstance(error, LinkStolen):
        condition = STOLEN
    elif isinstance(error, InvalidRequest):
        condition = PRECONDITION_FAILED
    else:
        condition = INTERNAL_ERROR
    return AmqpError(Symbol(condition), str(error))


@dataclass(slots=True)
class PushCore:
    """A link that pushes (W-17).

    Attributes:
        is_exactly_once: rcv-settle-mode second: the sender settles, and the store knows each delivery until then.
        generation: of this attach in the store; 0 where the store knows nothing of the link.
    """

    is_exactly_once: bool
    generation: int = 0
    _known: frozenset[bytes] = frozenset()
    _left: frozenset[bytes] = frozenset()
    _waiting: list[ToPush] = field(default_factory=list)
    _is_pushing: bool = False
    _under_way: int = 0
    _is_over: bool = False

    def on_resumed(self, found: LinkState) -> dict[bytes, DeliveryState | None]:
        """The store has begun a generation; returns the map to reply with: what was pushed is accepted."""
        self.generation, self._known, self._left = found.generation, found.known, found.left
        return dict.fromkeys(sorted(found.known), ACCEPTED)

    def begin(self) -> list[PushEffect]:
        """Our attach is sent."""
        return [Grant(PUSH_CREDIT)]

    def on_delivery(self, event: DeliveryReceived) -> list[PushEffect]:
        """A delivery came."""
        if self._is_over:
            return []
        self._under_way += 1
        if event.aborted:
            return self._done(1)
        if event.resume and event.tag in self._known:  # only its state was left to say
            if event.settled:
                return [Settled([event.tag]), *self._done(1)]
            return [Dispose([event.delivery_id], ACCEPTED, False), *self._done(1)]
        try:
            item = item_of(event.payload)
        except InvalidRequest as error:
            return [*self._dispose([(event.delivery_id, Rejected(error_of(error)))], event.settled), *self._done(1)]
        number = -1 if event.settled else event.delivery_id
        self._waiting.append(ToPush(number, event.tag, item))
        return self._push()

    def _push(self) -> list[PushEffect]:
        if self._is_pushing or not self._waiting:
            return []
        items, self._waiting = self._waiting, []
        self._is_pushing = True
        # W-17: it has our reply, so this attach is its newest, and what it did not present it has settled.
        return [Push(items, self._left)]

    def on_pushed(self, items: list[ToPush], results: list[Pushed | QueueError]) -> list[PushEffect]:
        """What became of a `Push`: only what is durable is accepted (W-1)."""
        self._is_pushing = False
        if self._is_over:
            return []
        states: list[tuple[int, DeliveryState]] = []
        lost: QueueError | None = None
        for each, result in zip(items, results, strict=True):
            if isinstance(result, Pushed):
                state: DeliveryState = ACCEPTED
                self._left = frozenset()
            elif isinstance(result, InvalidRequest | UnknownQueue | PayloadTooLarge):
                state = Rejected(error_of(result))
            elif isinstance(result, StoreFull | StoreBusy) or not self.is_exactly_once:
                state = RELEASED  # nothing has happened, or the sender has chosen at-least-once
            else:  # W-17: whether it was pushed is not known; the next attach shows it
                lost = result
                continue
            if each.number >= 0:
                states.append((each.number, state))
        effects = [*self._dispose(states, False), *self._done(len(items))]
        if lost is not None:
            self._is_over = True
            return [*effects, Detach(False, error_of(lost))]
        return [*effects, *self._push()]

    def _dispose(self, states: list[tuple[int, DeliveryState]], is_settled: bool) -> list[PushEffect]:
        if is_settled:
            return []
        effects: list[PushEffect] = []
        accepted = [number for number, state in states if state is ACCEPTED]
        if accepted:
            effects.append(Dispose(accepted, ACCEPTED, not self.is_exactly_once))
        for number, state in states:
            if state is not ACCEPTED:
                effects.append(Dispose([number], state, not self.is_exactly_once))
        return effects

    def _done(self, count: int) -> list[PushEffect]:
        before = self._under_way // (PUSH_CREDIT // 2)
        self._under_way -= count
        is_due = self._under_way // (PUSH_CREDIT // 2) < before or not self._under_way
        return [Grant(PUSH_CREDIT - self._under_way)] if is_due else []

    def on_disposition(self, event: DispositionReceived) -> list[PushEffect]:
        """The sender has settled deliveries: they will not come again."""
        if not event.settled or not self.is_exactly_once:
            return []
        return [Settled(list(event.tags))]

    def on_detached(self) -> None:
        """The link is over; what is in the store's hands is pushed or not, and the next attach shows it."""
        self._is_over = True
        self._waiting.clear()


@dataclass(slots=True)
class TakeCore:
    """A link that receives items.

    Attributes:
        is_pop: snd-settle-mode settled: items are taken for good and sent settled.
    """

    is_pop: bool
    _limit: int = 0
    _sent: int = 0
    _is_draining: bool = False
    _is_taking: bool = False
    _held: deque[Taken] = field(default_factory=deque)
    _handles: dict[int, Handle] = field(default_factory=dict)
    _is_over: bool = False

    def on_flow(self, limit: int, drain: bool) -> list[TakeEffect]:
        """The receiver allows so many deliveries in all since the attach."""
        self._limit, self._is_draining = limit, drain
        return self._step()

    def on_ready(self) -> list[TakeEffect]:
        """The queue may have a ready item, or the store answers again."""
        return self._step()

    def _step(self) -> list[TakeEffect]:
        if self._is_over:
            return []
        effects: list[TakeEffect] = []
        while self._held and self._sent < self._limit:
            effects.append(self._send(self._held.popleft()))
        wanted = min(self._limit - self._sent, TAKE_COUNT)
        if wanted > 0 and not self._is_taking:
            self._is_taking = True
            effects.append(Take(wanted))
        return effects

    def _send(self, item: Taken) -> Send:
        self._sent += 1
        return Send(item, tag_of(item.handle), message_of(item), self.is_pop)

    def sent(self, item: Taken, number: int) -> None:
        """An item went out."""
        if not self.is_pop:
            self._handles[number] = item.handle

    def on_taken(self, asked: int, found: list[Taken] | QueueError) -> list[TakeEffect]:
        """What a `Take` found."""
        self._is_taking = False
        if isinstance(found, UnknownQueue) and not self._is_over:
            self._is_over = True
            return [Detach(True, error_of(found))]
        items = [] if isinstance(found, QueueError) else found
        if self._is_over:
            return self._give_back(items)
        effects: list[TakeEffect] = []
        for item in items:
            if self._sent < self._limit:
                effects.append(self._send(item))
            elif self.is_pop:  # it was taken for good: it waits for credit
                self._held.append(item)
            else:
                effects += self._give_back([item])
        if len(items) < asked:
            if self._is_draining and not isinstance(found, QueueError):
                self._is_draining, self._sent = False, max(self._sent, self._limit)
                return [*effects, Drained()]
            return [*effects, Wait()] if self._sent < self._limit else effects
        return [*effects, *self._step()]

    def _give_back(self, items: list[Taken]) -> list[TakeEffect]:
        return [] if self.is_pop or not items else [GiveBack([item.handle for item in items])]

    def on_disposition(self, event: DispositionReceived) -> list[TakeEffect]:
        """The worker states outcomes."""
        outcomes = []
        for number in event.ids:
            handle = self._handles.get(number)
            if handle is None:
                continue
            state = RELEASED if event.state is None else event.state
            outcomes.append(Outcome(number, operation_of(handle, state), state, event.settled))
            del self._handles[number]
        return [Settle(outcomes)] if outcomes else []

    def on_settled(self, outcomes: list[Outcome], results: list[QueueError | None]) -> list[TakeEffect]:
        """What became of a `Settle`: the worker is answered when it is durable (W-1)."""
        if self._is_over:
            return []
        effects: list[TakeEffect] = []
        for each, error in zip(outcomes, results, strict=True):
            if not each.is_settled:
                effects.append(Answer(each.number, each.state if error is None else Rejected(error_of(error))))
        return effects

    def on_detached(self) -> list[TakeEffect]:
        """The link is over: what the worker has stays reserved until its time is over (W-6)."""
        if self._is_over:
            return []
        self._is_over = True
        held = list(self._held)
        self._held.clear()
        return self._give_back(held)


def operation_of(handle: Handle, state: DeliveryState) -> Commit | Rollback:
    """What an outcome of a worker does with its item."""
    if isinstance(state, Accepted):
        return Commit(handle)
    if isinstance(state, Rejected):
        error = state.error
        reason = "" if error is None else f"{error.condition}: {error.description or ''}".rstrip(": ")
        return Rollback(handle, None, reason, is_final=True)
    if isinstance(state, Modified) and (state.delivery_failed or state.undeliverable_here):
        reason = "the worker could not process it" if state.delivery_failed else "undeliverable at a worker"
        return Rollback(handle, None, reason)
    return Rollback(handle, 0.0, is_failure=False)


def presented(unsettled: dict[bytes, DeliveryState | None] | None) -> list[Commit | Rollback]:
    """The outcomes in the map of a worker that attaches again: those that its last link did not bring here."""
    found: list[Commit | Rollback] = []
    for tag, state in (unsettled or {}).items():
        handle = handle_of(tag)
        if handle is not None and isinstance(state, Accepted | Rejected | Modified):
            found.append(operation_of(handle, state))
    return found
