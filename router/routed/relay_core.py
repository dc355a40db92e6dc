"""One routed link at one router: what comes from one half goes to the other (R-5 to R-8).

The near half is toward the client that attached, the far half toward the service. Deliveries come in at one of them and
go out at the other. Nothing is accepted, settled, granted or closed here that an end of the link has not accepted,
settled, granted or closed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from enum import Enum, auto
from typing import TypeAlias

from oncewire.wire import (
    DETACH_FORCED,
    NOT_IMPLEMENTED,
    RESOURCE_LIMIT_EXCEEDED,
    AmqpError,
    DeliveryReceived,
    DeliveryState,
    DispositionReceived,
    Fields,
    LinkDetached,
    LinkFlow,
)
from router.routed.terms import Terms

MAX_UNSETTLED = 65_536
"""Deliveries of one routed link whose ids a router maps: some 200 bytes each. A receiver settles long before."""


class Side(Enum):
    """One of the two halves."""

    NEAR = auto()
    FAR = auto()

    @property
    def other(self) -> Side:
        """The half across."""
        return Side.FAR if self is Side.NEAR else Side.NEAR


class Phase(Enum):
    """Where a half stands."""

    ATTACHING = auto()
    ATTACHED = auto()
    ASKED = auto()
    """Its end closes the link and waits for the answer of the other end."""
    DETACHING = auto()
    """Our detach is sent, the answer is not there."""
    OVER = auto()


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the near half's attach with the terms of the service."""

    terms: Terms


@dataclass(frozen=True, slots=True)
class Send:
    """Send a delivery on the half that goes out; `sent` takes its id."""

    delivery: DeliveryReceived


@dataclass(frozen=True, slots=True)
class Skip:
    """Give back credit on the half that goes out, as the sender did."""

    count: int


@dataclass(frozen=True, slots=True)
class Grant:
    """Grant credit on the half that comes in, up to so many deliveries since the attach."""

    limit: int
    drain: bool
    echo: bool
    properties: Fields | None


@dataclass(frozen=True, slots=True)
class State:
    """Send the sender's link state on the half that goes out."""

    available: int | None
    echo: bool
    properties: Fields | None


@dataclass(frozen=True, slots=True)
class Dispose:
    """State an outcome of deliveries on the half that comes in."""

    ids: list[int]
    state: DeliveryState | None
    settled: bool


@dataclass(frozen=True, slots=True)
class Settle:
    """Settle deliveries on the half that goes out."""

    ids: list[int]
    state: DeliveryState | None


@dataclass(frozen=True, slots=True)
class Detach:
    """Detach a half, answer its detach, or refuse its attach."""

    side: Side
    closed: bool
    error: AmqpError | None


@dataclass(frozen=True, slots=True)
class Window:
    """Whether the session of the half that comes in is offered frames."""

    is_open: bool


@dataclass(frozen=True, slots=True)
class Finished:
    """Both halves are detached or lost."""


Effect: TypeAlias = Reply | Send | Skip | Grant | State | Dispose | Settle | Detach | Window | Finished


class RelayCore:
    """Joins the halves of one routed link.

    Args:
        inward: the half that deliveries come in at.
        held_bytes: bodies that may wait here; more end the link (R-8).

    Attributes:
        held: bytes of bodies that wait for credit or room at the half that goes out.
    """

    __slots__ = (
        "_granted",
        "_has_room",
        "_held_bytes",
        "_in_of",
        "_inward",
        "_is_open",
        "_limit",
        "_out_of",
        "_phases",
        "_requested",
        "_sent",
        "_waiting",
        "held",
    )

    def __init__(self, inward: Side, held_bytes: int) -> None:
        self.held = 0
        self._inward = inward
        self._held_bytes = held_bytes
        self._phases = {Side.NEAR: Phase.ATTACHING, Side.FAR: Phase.ATTACHING}
        self._waiting: deque[DeliveryReceived | Skip] = deque()
        self._out_of: dict[int, int] = {}
        self._in_of: dict[int, int] = {}
        self._has_room = True
        self._is_open = True
        self._limit = 0  # what the receiver allows in total, and what of it has moved
        self._sent = 0
        self._granted = 0
        self._requested: tuple[LinkFlow, int] | None = None

    @property
    def is_joined(self) -> bool:
        """Whether both halves are attached."""
        return all(phase is Phase.ATTACHED for phase in self._phases.values())

    @property
    def is_over(self) -> bool:
        """Whether both halves are detached or lost."""
        return all(phase is Phase.OVER for phase in self._phases.values())

    @property
    def waiting(self) -> int:
        """Deliveries that wait for room or credit."""
        return len(self._waiting)

    def on_answer(self, terms: Terms) -> list[Effect]:
        """The service's attach came: only now the client's is answered (R-3)."""
        if self._phases[Side.FAR] is not Phase.ATTACHING or self._phases[Side.NEAR] is not Phase.ATTACHING:
            return []
        self._phases = {Side.NEAR: Phase.ATTACHED, Side.FAR: Phase.ATTACHED}
        effects: list[Effect] = [Reply(terms)]
        if self._requested is not None:  # the receiver did not wait for the answer
            effects += self.on_receiver_flow(*self._requested)
        return effects

    # --- deliveries and credit (R-5) ----------------------------------------------------------------------------------

    def on_delivery(self, delivery: DeliveryReceived, has_room: bool) -> list[Effect]:
        """A delivery came in; with room the half that goes out sends it at once, behind those that wait."""
        if not self.is_joined:
            return []
        if delivery.receiver_settles:
            why = "routers do not relay transfers with an rcv-settle-mode of their own; set it for the link"
            return self._end(AmqpError(NOT_IMPLEMENTED, why))
        self._has_room = has_room
        self._waiting.append(delivery)
        self.held += len(delivery.payload)
        if self.held > self._held_bytes or len(self._out_of) > MAX_UNSETTLED:
            why = "the link has more unsettled deliveries or bytes under way than routers hold; attach again"
            return self._end(AmqpError(RESOURCE_LIMIT_EXCEEDED, why))
        return self._pump()

    def sent(self, delivery: DeliveryReceived, out_id: int) -> None:
        """A delivery went out under this id."""
        if not delivery.settled and not delivery.aborted:
            self._out_of[delivery.delivery_id] = out_id
            self._in_of[out_id] = delivery.delivery_id

    def on_room(self) -> list[Effect]:
        """The connection of the half that goes out takes more."""
        self._has_room = True
        return self._pump() if self._waiting else []

    def on_receiver_flow(self, flow: LinkFlow, limit: int) -> list[Effect]:
        """The receiver's flow came at the half that goes out: its credit is the sender's.

        Args:
            flow: the flow.
            limit: deliveries that the receiver allows in all since the attach. A later flow of the same read may have
                lowered it already, so it is not the flow's own.
        """
        if not self.is_joined:
            self._requested = flow, limit
            return []
        self._limit = limit
        effects: list[Effect] = []
        is_news = self._limit != self._granted or flow.drain or flow.properties is not None
        if is_news or flow.echo:
            self._granted = self._limit
            echo = flow.echo and flow.properties is not None  # else the engine has answered
            effects.append(Grant(self._limit, flow.drain, echo, flow.properties))
        return effects + self._pump()

    def on_sender_flow(self, flow: LinkFlow) -> list[Effect]:
        """The sender's flow came at the half that comes in."""
        if not self.is_joined:
            return []
        if flow.skipped:
            self._waiting.append(Skip(flow.skipped))
            return self._pump()
        if self._waiting or not (flow.drain or flow.available or flow.properties is not None):
            return []
        return [State(flow.available, flow.echo and flow.properties is not None, flow.properties)]

    def _pump(self) -> list[Effect]:
        """Send what waits, in order, as far as the receiver's credit and the connection allow."""
        effects: list[Effect] = []
        waiting = self._waiting
        while waiting and self._has_room:
            head = waiting[0]
            count = head.count if isinstance(head, Skip) else 1
            if self._sent + count > self._limit:
                break
            self._sent += count
            waiting.popleft()
            if isinstance(head, Skip):
                effects.append(head)
            else:
                self.held -= len(head.payload)
                effects.append(Send(head))
        if self._is_open is bool(waiting):  # what waits here closes the window
            self._is_open = not waiting
            effects.append(Window(self._is_open))
        return effects

    # --- outcomes (R-6) -----------------------------------------------------------------------------------------------

    def on_disposition(self, side: Side, event: DispositionReceived) -> list[Effect]:
        """An end stated an outcome of deliveries, or settled them."""
        if not self.is_joined:
            return []
        if side is self._inward:
            return self._on_sender_settles(event)
        ids: list[int] = []
        for number in event.ids:
            found = self._in_of.get(number)
            if found is None:
                continue
            ids.append(found)
            if event.settled:
                del self._in_of[number], self._out_of[found]
        return [Dispose(ids, event.state, event.settled)] if ids else []

    def _on_sender_settles(self, event: DispositionReceived) -> list[Effect]:
        if not event.settled:
            return []
        ids: list[int] = []
        for number in event.ids:
            found = self._out_of.pop(number, None)
            if found is not None:
                del self._in_of[found]
                ids.append(found)
                continue
            for each in self._waiting:
                if isinstance(each, DeliveryReceived) and each.delivery_id == number:
                    each.settled = True
        return [Settle(ids, event.state)] if ids else []

    # --- the end (R-7) ------------------------------------------------------------------------------------------------

    def on_detached(self, side: Side, event: LinkDetached) -> list[Effect]:
        """A half is detached by its end, or has answered our detach."""
        phases, other = self._phases, side.other
        was_ours = phases[side] is Phase.DETACHING
        if phases[side] is Phase.OVER:
            return []
        phases[side] = Phase.ASKED if event.needs_answer and not was_ours else Phase.OVER
        effects: list[Effect] = []
        if phases[other] is Phase.ASKED:
            phases[other] = Phase.OVER
            effects.append(Detach(other, True, event.error))
        elif phases[other] in (Phase.ATTACHING, Phase.ATTACHED):
            phases[other] = Phase.DETACHING
            effects.append(Detach(other, event.closed, event.error))
        elif phases[side] is Phase.ASKED:  # the other end has ended, or our detach to it is under way and says the same
            phases[side] = Phase.OVER
            effects.append(Detach(side, True, None))
        return effects + self._finish()

    def on_lost(self, side: Side, why: str) -> list[Effect]:
        """The session or connection of a half has ended: the other end attaches again."""
        if self._phases[side] is Phase.OVER:
            return []
        self._phases[side] = Phase.OVER
        return self._leave(side.other, AmqpError(DETACH_FORCED, why)) + self._finish()

    def on_failed(self, error: AmqpError) -> list[Effect]:
        """Something could not be relayed: both ends are detached."""
        return self._end(error)

    def _end(self, error: AmqpError) -> list[Effect]:
        effects = [*self._leave(Side.NEAR, error), *self._leave(Side.FAR, error)]
        return effects + self._finish()

    def _leave(self, side: Side, error: AmqpError) -> list[Effect]:
        phase = self._phases[side]
        if phase is Phase.ASKED:
            self._phases[side] = Phase.OVER
            return [Detach(side, True, error)]
        if phase in (Phase.ATTACHING, Phase.ATTACHED):
            is_refusal = phase is Phase.ATTACHING and side is Side.NEAR  # nothing was attached that could be kept
            self._phases[side] = Phase.DETACHING
            return [Detach(side, is_refusal, error)]
        return []

    def _finish(self) -> list[Effect]:
        self._waiting.clear()
        self.held = 0
        self._in_of.clear()
        self._out_of.clear()
        effects: list[Effect] = []
        if not self._is_open:  # the answer to our detach may stand behind deliveries that waited for the window
            self._is_open = True
            effects.append(Window(True))
        return [*effects, Finished()] if self.is_over else effects
