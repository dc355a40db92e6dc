"""Turns of the event loop: what one produced for a socket goes out in one write, and none takes long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from oncewire.transport.turns_core import Account, WaitingLine

TURN_S = 0.005
"""For those with much to do, together: a tenth of what is noticed, and a thousandth of the fence deadline (K-3)."""


class Output(Protocol):
    """Something with bytes to write at the end of the turn."""

    def flush(self) -> None:
        """Write what there is; raises nothing, for others wait behind it (K-3b)."""
        ...


class Turn:
    """Collects the outputs that have something to write."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is to be written.

        Args:
            clock: seconds, monotonic.
        """
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._dirty: list[Output] = []
        self._began_at = 0.0

    def mark_dirty(self, output: Output) -> None:
        """Have `output.flush()` called at the end of this turn. An output marks itself once until it is flushed."""
        if not self._dirty:
            self._began_at = self._clock()
            self._loop.call_soon(self.flush)
        self._dirty.append(output)

    def is_used_up(self, now: float) -> bool:
        """Whether those that were served since the last flush took as long as one may."""
        return bool(self._dirty) and now - self._began_at > TURN_S

    def flush(self) -> None:
        """Write what there is; the turn is over."""
        dirty, self._dirty = self._dirty, []
        for output in dirty:
            output.flush()


def work_for_a_turn(step: Callable[[], bool], clock: Callable[[], float], began_at: float, ends_at: float) -> bool:
    """Do step after step until one returns that nothing is left, or another one would end behind the turn.

    Args:
        step: a small piece of work; returns whether more is left.
        clock: monotonic, in seconds.
        began_at: when the step before began, on that clock; now, if there was none.
        ends_at: when the turn is over.

    Returns:
        Whether more is left.
    """
    now = clock()
    while now + (now - began_at) <= ends_at:
        if not step():
            return False
        began_at, now = now, clock()
    return True


class Unfinished(Protocol):
    """Somebody whose work did not end with its turn."""

    account: Account
    """What it has used of the processor."""

    def go_on(self, ends_at: float) -> bool:
        """Take a turn until `ends_at`; whether more is left."""
        ...


class Backlog:
    """Who has work left. In each round of the event loop their turns take `TURN_S` in all, least used first."""

    def __init__(
        self, turn: Turn, clock: Callable[[], float] = time.monotonic, used: Callable[[], float] = time.thread_time
    ) -> None:
        """Nobody has.

        Args:
            turn: what they write.
            clock: monotonic, in seconds.
            used: seconds of the processor that this thread has used. Accounts are in these: whoever was served while
                the machine did something else has not used that time, and must not wait for it.
        """
        self._turn = turn
        self._clock = clock
        self._used = used
        self._line: WaitingLine[Unfinished] = WaitingLine()
        self._loop = asyncio.get_running_loop()
        self._is_scheduled = False

    def is_busy(self, now: float) -> bool:
        """Whether one that comes now has to wait for its turn: others do, or this one of the loop is used up."""
        return self._is_scheduled or self._turn.is_used_up(now)

    def newcomer(self) -> Account:
        """The account of one that has just come."""
        return self._line.newcomer()

    def append(self, unfinished: Unfinished) -> None:
        """Give it turns until nothing is left."""
        self._line.add(unfinished.account, unfinished)
        self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._give_turns)

    def _give_turns(self) -> None:
        """One for each, as far as the time goes; none takes two, and none begins with less than half of the time."""
        line, clock, used = self._line, self._clock, self._used
        left: list[Unfinished] = []
        now = clock()
        half, ends_at = now + TURN_S / 2, now + TURN_S
        try:
            while line and now < ends_at:
                if not line.is_next_rested:
                    if now > half:
                        break
                    self._turn.flush()  # nobody with little to do waits for its answer behind one with much
                unfinished = line.pop()
                began = used()
                try:
                    if unfinished.go_on(ends_at):
                        left.append(unfinished)
                finally:
                    unfinished.account.used_s += used() - began
                    now = clock()
        finally:
            for unfinished in left:
                line.add(unfinished.account, unfinished)
            self._is_scheduled = False
            if line:
                self._schedule()
