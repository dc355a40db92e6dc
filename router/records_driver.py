"""Drives the record core of one incarnation: inputs in, effects carried out, one timer kept.

Whoever read something from the outside calls `submit` with all inputs of that read. The effects are carried out at once
by the parts that registered for them, but for thousands of deliveries (see later_effects.py); what those write to
sockets goes out at the end of the turn (see turn.py).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from delivery_records import Records
from delivery_records.model import effects
from delivery_records.model.inputs import Input, SendFailed, SessionRoom, StoreFailed, StoreFailure
from oncewire.transport.turn import Backlog
from oncewire.wire import vocabulary
from router.amqp.offers import Offers
from router.process.later_effects import AT_ONCE, LaterEffects
from router.process.logs import EventLog, Part

_EVERYWHERE: Final[Mapping[str, object]] = {vocabulary.SAME_EVERYWHERE: True}
_UNKNOWN: Final[tuple[str, Mapping[str, object]]] = ("", {})
"""What the record core says stands."""


class ClientLink(Protocol):
    """The shell of one client link: carries out the effects that name it.

    Events of one read may be out of date when they are handled, and effects with them: a link that was detached further
    down in the same read does nothing, and says so to nobody, for the record core hears of it in the same turn.
    """

    def carry_out(self, effect: Any) -> None:
        """Carry out an effect."""
        ...

    def fail(self) -> None:
        """An effect could not be carried out, which is a fault of our own: end the connection of this link (K-3b)."""
        ...


class DriverWatch(Protocol):
    """Follows what the record core gets and decides (telemetry); it decides nothing itself."""

    def on_inputs(self, batch: Sequence[Input]) -> None:
        """Before the record core gets it."""
        ...

    def on_effects(self, done: Sequence[effects.Effect]) -> None:
        """After it has decided, before that is carried out."""
        ...

    def end(self) -> None:
        """The incarnation is over."""
        ...


class RecordsDriver:
    """One incarnation's record core, its clock, its timer and its links."""

    def __init__(
        self,
        records: Records,
        log: EventLog,
        vet: Callable[[float], bool],
        on_fault: Callable[[], None],
        turns: Backlog,
    ) -> None:
        """Drive `records`.

        Args:
            records: the fresh record core of this incarnation.
            log: where its decisions go.
            vet: whether the lease was surely valid at a time on the monotonic clock; ends the incarnation if not.
            on_fault: called when the core raised: its state cannot be trusted any more, and a crash is survived (N-1).
            turns: of the clients' connections.
        """
        self.records = records
        self.vet = vet
        """Ask after each read from a client, before the engine sees the bytes (K-3a)."""
        self.links_added = 0
        self.links: dict[int, Any] = {}
        """Shells by link number; a number is never used twice."""
        self.offers = Offers()
        """What the AMQP sessions of this incarnation's clients may still send (C-6)."""
        self.waiting_for_store = 0
        """Reads and proposals that are not under way yet."""
        self.is_stopped = False
        self.watch: DriverWatch | None = None
        self._log = log
        self._on_fault = on_fault
        self._loop = asyncio.get_running_loop()
        self._next_number = 1
        self._streams: dict[int, int] = {}
        """Publishers of large messages that come in, and what each held when it was looked at last."""
        self._backlog: list[Input] = []
        self._is_handling = False
        self._later = LaterEffects(turns, self._carry_out_later)
        self._store_failure: tuple[str, Mapping[str, object]] = _UNKNOWN
        """The error of links that end for a failure in etcd, while that is handled: description and info."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._handlers: dict[type, Callable[[Any], None]] = {
            effects.Note: self._note,
            effects.Faulted: self._on_faulted,
            effects.RoomAgain: lambda _effect: None,
        }
        for kind in (
            effects.DeliverPart,
            effects.Dispose,
            effects.GrantPublisherCredit,
            effects.SettleAtSubscriber,
            effects.PublisherReply,
            effects.SubscriberReply,
            effects.AskEcho,
            effects.Confirm,
            effects.CompleteDrain,
            effects.NotifyOwing,
            effects.NotifyEnded,
            effects.NotifyAcceptedBy,
            effects.NotifyStart,
            effects.CloseConnection,
            effects.DetachLink,
        ):
            self._handlers[kind] = self._carry_out_on_link

    def register(self, kind: type, handler: Callable[[Any], None]) -> None:
        """Have effects of this type carried out by `handler` (store and other routers)."""
        self._handlers[kind] = handler

    def watch_outcomes(self, seen: Callable[[effects.Dispose], None] | None) -> None:
        """Have `seen` look at the outcomes that publishers get, before they get them; None: nobody looks."""
        if seen is None:
            self._handlers[effects.Dispose] = self._carry_out_on_link
            return
        look = seen

        def carry_out(effect: Any) -> None:
            look(effect)
            self._carry_out_on_link(effect)

        self._handlers[effects.Dispose] = carry_out

    def add_link(self, shell: ClientLink) -> int:
        """Give a client link its number."""
        number = self.new_number()
        self.links[number] = shell
        self.links_added += 1
        return number

    @property
    def is_behind(self) -> bool:
        """Deliveries of a message wait for their turns: nobody leads to thousands more meanwhile."""
        return bool(self._later.by_link) or self.records.is_behind

    def publisher_bytes(self, number: int) -> tuple[int, bool]:
        """What a publisher's window holds in bytes, and whether it has deliveries to send again (C-6)."""
        return self.records.figures.window_bytes(number)

    def stream_bytes(self, number: int) -> int:
        """Bytes of a publisher's large messages that wait for those who get them (L-4)."""
        return self.records.figures.stream_bytes(number)

    def watch_stream(self, number: int) -> None:
        """A large message has begun to come from a publisher; what others take of it makes room for more (L-4)."""
        self._streams.setdefault(number, 0)

    def _look_at_streams(self) -> None:
        for number, before in list(self._streams.items()):
            shell = self.links.get(number)
            held, _ = self.publisher_bytes(number)
            if shell is None or not (held or shell.is_streaming):
                del self._streams[number]
            else:
                self._streams[number] = held
            if shell is not None and held < before:
                shell.connection.mark_dirty()

    def on_session_window(self, number: int, is_narrow: bool) -> None:
        """A publisher with deliveries to send again shares a session that has no room, or has some again (C-6)."""
        self.submit([SessionRoom(number, is_narrow)])

    def new_number(self) -> int:
        """A number for a client link, AMQP session or connection, given once in this incarnation."""
        number = self._next_number
        self._next_number += 1
        return number

    def submit(self, inputs: list[Input]) -> None:
        """Hand what was read in one go to the record core and carry out what it decides."""
        if self.is_stopped:
            return
        if self._is_handling:
            self._backlog += inputs  # an effect made these; they are handled right after the others
            return
        self._is_handling = True
        try:
            self._handle(inputs)
            while self._backlog and not self.is_stopped:
                backlog, self._backlog = self._backlog, []
                self._handle(backlog)
        except Exception as error:  # noqa: BLE001  (whatever it is, the incarnation ends)
            self._fail(error)
        finally:
            self._is_handling = False
        if self._streams:
            self._look_at_streams()
        self._set_timer()

    def fail_in_store(self, failed: StoreFailed, reported: str, *, same_everywhere: bool = False) -> None:
        """An operation on etcd failed; the error of a link that ends for it states why, and what to do.

        Args:
            failed: which one.
            reported: why, and what to do, for the client.
            same_everywhere: it would fail at every router.
        """
        self._store_failure = (reported, _EVERYWHERE if same_everywhere else {})
        try:
            self.submit([failed])
        finally:
            self._store_failure = _UNKNOWN

    def _handle(self, inputs: list[Input]) -> None:
        watch = self.watch
        if watch is None:
            decided = self.records.handle(inputs, time.monotonic())
        else:
            watch.on_inputs(inputs)
            decided = self.records.handle(inputs, time.monotonic())
            watch.on_effects(decided)
        if self._store_failure is not _UNKNOWN:
            decided = [self._explained(effect) for effect in decided]
        self._carry_out_in_turns(decided)

    def _carry_out_in_turns(self, decided: list[effects.Effect]) -> None:
        if len(decided) > AT_ONCE or self._later.by_link:
            decided = self._later.take(decided)
        self._carry_out(decided)

    def _fail(self, error: Exception) -> None:
        self._log.fault(Part.INCARNATION, error, "record core")
        self._on_fault()

    def stop(self) -> None:
        """The incarnation is over: nothing is handled or written any more (K-3)."""
        self.is_stopped = True
        self.links.clear()
        self._later.clear()
        if self.watch is not None:
            self.watch.end()
            self.watch = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- effects ------------------------------------------------------------------------------------------------------

    def _carry_out_later(self, decided: list[effects.Effect]) -> None:
        """In a turn of their own."""
        if self.is_stopped:
            return
        self._is_handling = True
        try:
            self._carry_out(decided)
        except Exception as error:  # noqa: BLE001  (whatever it is, the incarnation ends)
            self._fail(error)
        finally:
            self._is_handling = False
        if self._backlog:
            self.submit([])

    def _carry_out(self, decided: list[effects.Effect]) -> None:
        handlers, links = self._handlers, self.links
        for effect in decided:
            try:
                if type(effect) is effects.Deliver:  # most effects are
                    link = links.get(effect.link)
                    if link is not None:
                        link.deliver(effect)
                else:
                    handlers[type(effect)](effect)
            except Exception as error:  # noqa: BLE001  (K-3b: whatever it is, it ends what the effect was for)
                self._on_effect_failed(effect, error)
            if self.is_stopped:
                return

    def _on_effect_failed(self, effect: Any, error: Exception) -> None:
        """K-3b: the record core has decided; what cannot be carried out ends the link or channel it was for."""
        self._log.fault(Part.EFFECT, error, f"carry out {type(effect).__name__}")
        if isinstance(effect, effects.SendToRouters):
            self._backlog.append(SendFailed(effect.message, tuple(target[0] for target in effect.targets)))
        elif isinstance(effect, effects.Read | effects.Propose):
            self._backlog.append(StoreFailed(effect.nonce, StoreFailure.UNKNOWN))
        else:
            link = self.links.get(getattr(effect, "link", -1))
            if link is not None:
                link.fail()

    def _carry_out_on_link(self, effect: Any) -> None:
        link = self.links.get(effect.link)
        if link is not None:
            link.carry_out(effect)

    def _explained(self, effect: effects.Effect) -> effects.Effect:
        """A-1: who asked something of etcd gets its reply, and what the operator has to do."""
        if not isinstance(effect, effects.DetachLink) or not effect.by_store:
            return effect
        reported, info = self._store_failure
        return replace(effect, description=reported or effect.description, info=info)

    def _on_faulted(self, effect: effects.Faulted) -> None:
        self._log.fault(Part.LINK, effect.error, "record core")

    def _note(self, effect: effects.Note) -> None:
        self._log.decision(effect.decision, effect.fields)

    # --- the one timer ------------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        """A deadline that moved away is noticed when the old one fires: cheaper than a new timer a turn."""
        deadline = self.records.next_deadline()
        if deadline is None or self.is_stopped:
            return
        if self._timer is not None:
            if deadline >= self._timer_at:
                return
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_later(max(0.0, deadline - time.monotonic()), self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self.is_stopped:
            return
        self._is_handling = True
        try:
            done = self.records.handle_timer(time.monotonic())
            if self.watch is not None:
                self.watch.on_effects(done)
            self._carry_out_in_turns(done)
        except Exception as error:  # noqa: BLE001  (whatever it is, the incarnation ends)
            self._fail(error)
        finally:
            self._is_handling = False
        if self._backlog:
            self.submit([])
        if self._streams:
            self._look_at_streams()
        self._set_timer()
