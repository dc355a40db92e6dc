"""A connection that must not hold up others: its reads are carried out in turns, and its output is bounded.

A data_received call is one read: it is vetted first, then carried out in turns. Nothing more is read before that is
done, nor while the peer makes us answer and does not read the answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import ClassVar

from oncewire.transport.engine_protocol import INPUT, EngineProtocol
from oncewire.transport.turn import TURN_S, Backlog, Turn, work_for_a_turn
from oncewire.wire import Connection

STEP_WORK = 256
"""Frames, and deliveries of a disposition, between two looks at the clock: 3 ms; at 64 a message costs a third more."""

USUAL_WEIGHT = 16
"""What a unit may lead to without being more than one: a message that goes to so many. A step so leads to 4,096
deliveries at most, some 40 ms, unless a single message does."""


def units_of_a_step(weight: int) -> int:
    """Units of work between two looks at the clock, where one may lead to so much."""
    return max(1, STEP_WORK * USUAL_WEIGHT // max(USUAL_WEIGHT, weight))


class PacedProtocol(EngineProtocol):
    """An `EngineProtocol` that carries out one read in a turn of the loop."""

    __slots__ = ("_is_flooded", "_is_paused", "_is_unfinished", "_unfinished", "account")

    output_limit_bytes: ClassVar[int]
    """More than this unwritten: nothing more is read, or carried out, until the peer has caught up."""

    def __init__(self, engine: Connection, turn: Turn, clock: Callable[[], float], unfinished: Backlog) -> None:
        """Wait for the transport.

        Args:
            engine: a fresh one.
            turn: collects who writes at the end of a turn of the loop.
            clock: seconds, monotonic; that of the engine.
            unfinished: connections whose last read is not carried out yet.
        """
        super().__init__(engine, turn, clock)
        self._unfinished = unfinished
        self.account = unfinished.newcomer()
        """See `Unfinished`."""
        self._is_flooded = False
        """It does not take our answers, so nothing of it is carried out."""
        self._is_unfinished = False
        """What was read last is not carried out yet."""
        self._is_paused = False
        """It asks for too much, so nothing of it is carried out for a while."""

    def may_carry_out(self, now: float) -> bool:
        """Whether what was read before `now` still counts (K-3a)."""
        raise NotImplementedError

    def step_work(self) -> int:
        """Units of work between two looks at the clock; fewer where what one leads to costs much."""
        return STEP_WORK

    def is_held_up(self) -> bool:
        """Whether what it sent waits for something else than its turn."""
        return False

    def data_received(self, data: bytes) -> None:
        """One read: vet it, decode it, hand it over."""
        now = self._clock()
        if not self.may_carry_out(now):
            return
        self.bytes_in += len(data)
        try:  # `confined` costs as much as a small read
            # uvloop reads up to 32 times in one turn of its loop: windows are looked at, and others served, in between.
            if self._has_read or self._is_unfinished or self._is_paused or self._unfinished.is_busy(now):
                self.engine.receive_data(data, now, 0)
                self._wait_for_a_turn()
            elif self._step(data, now) and work_for_a_turn(self._step, self._clock, now, now + TURN_S):
                self.account.used_s += self._clock() - now
                self._wait_for_a_turn()
            self._has_read = True
        except Exception as error:  # noqa: BLE001  (K-3b: whatever it is)
            self.on_fault(error, INPUT.format(self.peer_noun))

    def _step(self, data: bytes = b"", now: float | None = None) -> bool:
        """Carry out a little of what was read; whether more is left."""
        is_left = self.engine.receive_data(data, self._clock() if now is None else now, self.step_work())
        self.process_events()
        self.look_for_login_work()
        return is_left

    def _wait_for_a_turn(self) -> None:
        if not self._is_unfinished:
            self._is_unfinished = True
            self._read_or_not()
            self._unfinished.append(self)

    def go_on(self, ends_at: float) -> bool:
        """Another turn for a read that was not finished; whether it still is not."""
        if self._transport is None:
            return False
        now = self._clock()
        if not self.may_carry_out(now):
            return True  # K-3a: nothing of it counts any more, and the connection is about to be closed
        if self._is_flooded or self._is_paused:
            return False  # it goes on when the peer reads again, or the pause is over
        if self.is_held_up():
            return True
        self._is_unfinished = False
        with self.confined(INPUT):
            self._is_unfinished = work_for_a_turn(self._step, self._clock, now, ends_at)
        self._read_or_not()
        return self._is_unfinished

    def pause_for(self, delay_s: float) -> None:
        """Carry out no more of what the peer sends for this time; what was read in this turn still is."""
        if not self._is_paused:
            self._is_paused = True
            self._read_or_not()
            self._loop.call_later(delay_s, self._end_pause)

    def pause_again(self) -> float:
        """Seconds for which a pause that is over goes on; 0 = it does not."""
        return 0.0

    def _end_pause(self) -> None:
        self._is_paused = False
        if self._transport is None:
            return
        with self.confined("a pause of {}"):
            self.engine.receive_data(b"", self._clock(), 0)  # its silence was our doing
            self.engine.handle_timer(self._clock())  # a heartbeat may be due
            self.mark_dirty()
        delay_s = self.pause_again()
        if delay_s:
            self.pause_for(delay_s)
            return
        if self._is_unfinished:
            self._unfinished.append(self)
        self._read_or_not()

    def _read_or_not(self) -> None:
        """Read from the peer, unless it has given us enough to do."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        is_held = self._is_unfinished or self._is_flooded or self._is_paused
        wants = not is_held and not self._is_logging_in
        if wants != transport.is_reading():
            (transport.resume_reading if wants else transport.pause_reading)()

    def resume_writing(self) -> None:
        """The peer has caught up."""
        self._is_behind = False
        if self._is_flooded:
            self._is_flooded = False
            self.engine.receive_data(b"", self._clock(), 0)  # its silence was our doing
            if self._is_unfinished:
                self._unfinished.append(self)
            self._read_or_not()

    def on_written_behind(self, transport: asyncio.Transport) -> None:
        """Beyond the limit nothing more is read."""
        if transport.get_write_buffer_size() > self.output_limit_bytes:
            self._is_flooded = True
            self._read_or_not()

    @property
    def is_listening_to_peer(self) -> bool:
        """Whether we read."""
        return self._transport is not None and self._transport.is_reading()
