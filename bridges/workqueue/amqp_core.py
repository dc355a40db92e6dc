"""What the bridge does on one AMQP link of a queue: events of the link and results of the store come in.

`PushCore` of the store serves a client that sends to ``queue://NAME``, `TakeCore` one that receives from it. It knows
no store, clock or connection; what it decides is returned as effects.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TypeAlias

from bridges.store import amqp_errors
from bridges.store.push_core import Detach, PushCore
from bridges.workqueue.amqp_messages import handle_of, item_of, message_of, tag_of
from bridges.workqueue.errors import AlreadyReassigned, QueueError, UnknownQueue
from bridges.workqueue.items import Commit, Handle, Rollback, Taken
from oncewire.wire import (
    RELEASED,
    RESOURCE_LOCKED,
    Accepted,
    AmqpError,
    DeliveryState,
    DispositionReceived,
    Modified,
    Rejected,
    Symbol,
)

TAKE_COUNT = 64
"""Items reserved in one transaction for one link."""


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


TakeEffect: TypeAlias = Take | Wait | Send | Drained | Settle | Answer | GiveBack | Detach


def error_of(error: QueueError) -> AmqpError:
    """The AMQP error that says the same."""
    if isinstance(error, AlreadyReassigned):
        return AmqpError(Symbol(RESOURCE_LOCKED), str(error))
    return amqp_errors.error_of(error)


def push_core(*, is_exactly_once: bool) -> PushCore:
    """The end of a link that pushes items."""
    return PushCore(is_exactly_once, lambda event: item_of(event.payload))


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
