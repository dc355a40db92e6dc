"""What an edge does on one AMQP link of a client that sends to an address: events and results in, effects out (W-17).

It knows no store, clock or connection, and not what is pushed: `decode` makes of a message what the store takes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from bridges.store.amqp_errors import error_of
from bridges.store.links import LinkState
from oncewire.store.errors import EdgeError, InvalidRequest, PayloadTooLarge, StoreBusy, StoreFull, UnknownName
from oncewire.wire import ACCEPTED, RELEASED, AmqpError, DeliveryReceived, DeliveryState, DispositionReceived, Rejected

PUSH_CREDIT = 256
"""Deliveries a sender may have under way to the store: two groups of one durable write."""


@dataclass(frozen=True, slots=True)
class ToPush:
    """One delivery on its way into the store."""

    number: int
    tag: bytes
    item: Any


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
    """End the link; with `closed` False its client attaches again and presents what is unsettled."""

    closed: bool
    error: AmqpError


PushEffect: TypeAlias = Push | Settled | Dispose | Grant | Detach


@dataclass(slots=True)
class PushCore:
    """A link that pushes (W-17).

    Attributes:
        is_exactly_once: rcv-settle-mode second: the sender settles, and the store knows each delivery until then.
        decode: makes of a message what is pushed, or raises InvalidRequest or PayloadTooLarge.
        generation: of this attach in the store; 0 where the store knows nothing of the link.
    """

    is_exactly_once: bool
    decode: Callable[[DeliveryReceived], Any]
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
            item = self.decode(event)
        except (InvalidRequest, PayloadTooLarge) as error:
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

    def on_pushed(self, items: list[ToPush], results: list[Any]) -> list[PushEffect]:
        """What became of a `Push`, an EdgeError for each that failed: only what is durable is accepted (W-1)."""
        self._is_pushing = False
        if self._is_over:
            return []
        states: list[tuple[int, DeliveryState]] = []
        lost: EdgeError | None = None
        for each, result in zip(items, results, strict=True):
            if not isinstance(result, EdgeError):
                state: DeliveryState = ACCEPTED
                self._left = frozenset()
            elif isinstance(result, InvalidRequest | UnknownName | PayloadTooLarge):
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
