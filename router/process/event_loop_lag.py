"""Watches the event loop: how late it is, and garbage collection at times of our choosing (K-3a).

A router that stalls is routed around by its neighbours, and after a few seconds more it loses its lease; so stalls are
measured, and the collector runs in small pieces: young objects are collected once a second, and when so many have come
that it would take milliseconds. Everything is collected once in a while, and when many clients have left. That cannot
be cut, so it has half a hundredth of the time: what holds messages (connections, their links, the records of
subscribers) is freed without it.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable
from dataclasses import dataclass

from router.process.logs import EventLog, RouterEvent

PERIOD_S = 0.1
ALARM_S = 0.25
"""A later loop is worth a line in the log."""
ENDANGERED_FRACTION = 0.5
"""A stall of this part of the neighbours' timeout is reported: a longer one may exceed it."""
YOUNG_EVERY = 10
"""Periods between collections of young objects: once a second."""
MOST_YOUNG = 10_000
"""Objects that are new since the last collection of young ones: 1 to 2 ms. One message to 3,600 subscriptions makes
more, and those of a second, collected in one piece, held up all others for 60 ms."""
NEVER = 1 << 30
"""Of the collector's own count: it does not collect everything by itself."""
FULL_S = 300.0
"""Between full collections; what was there at the start is exempt (gc.freeze)."""
REST = 200
"""After a full collection comes none for so many times what it took: it makes less than one in two hundred late."""
MIN_ENDED = 128
"""Connections and links that have ended since the last full collection: fewer leave less than a MiB."""
ENDED_SHARE = 4
"""As many as a quarter of those that are there: a collection looks at all of these, so each end pays for four."""


@dataclass(frozen=True, slots=True)
class Census:
    """Connections and links of clients."""

    ended: int
    """So far."""
    present: int


class FullCollections:
    """When everything is collected; it knows no clock."""

    def __init__(self, now: float) -> None:
        """All was collected just now."""
        self._ended = 0
        """How many had ended at the last one."""
        self._due_at = now + FULL_S
        self._rests_until = now

    def is_due(self, census: Census, now: float) -> bool:
        """Whether enough was left behind, or time has passed, since the last one."""
        self._ended = min(self._ended, census.ended)  # an incarnation counts its links from 0
        left = census.ended - self._ended
        is_much = left >= max(MIN_ENDED, census.present // ENDED_SHARE)
        return now >= self._rests_until and (is_much or now >= self._due_at)

    def on_done(self, census: Census, began_at: float, now: float) -> None:
        """One is over."""
        self._ended = census.ended
        self._due_at = now + FULL_S
        self._rests_until = now + REST * (now - began_at)


class LoopWatch:
    """Measures the lag of the running loop and collects garbage in its pauses."""

    def __init__(self, log: EventLog, borne_s: float, count: Callable[[], Census]) -> None:
        """Nothing is measured yet.

        Args:
            log: gets the lag.
            borne_s: neighbours that hear nothing for so long route around this router.
            count: of what leaves garbage when it ends.
        """
        self._count = count
        self._full = FullCollections(time.monotonic())
        self._thresholds = gc.get_threshold()
        self.lag_s = 0.0
        """Lag at the last measurement."""
        self.worst_s = 0.0
        """Largest lag since `take_worst`."""
        self.stalls = 0
        """Stalls so long that neighbours may soon give this router up."""
        self._borne_s = borne_s
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._due = 0.0
        self._periods = 0
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Take over garbage collection and begin to measure."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(MOST_YOUNG, 1, NEVER)
        self._schedule()

    def stop(self) -> None:
        """Give garbage collection back."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        gc.set_threshold(*self._thresholds)
        gc.unfreeze()

    def take_worst(self) -> float:
        """The largest lag since the last call, seconds."""
        worst, self.worst_s = self.worst_s, 0.0
        return worst

    def _schedule(self) -> None:
        self._due = time.monotonic() + PERIOD_S
        self._handle = self._loop.call_later(PERIOD_S, self._on_time)

    def _on_time(self) -> None:
        self.lag_s = max(0.0, time.monotonic() - self._due)
        self.worst_s = max(self.worst_s, self.lag_s)
        if self.lag_s > ENDANGERED_FRACTION * self._borne_s:
            self.stalls += 1
            self._log.event(
                RouterEvent.LOOP_STALLED, seconds=round(self.lag_s, 3), neighbours_bear=round(self._borne_s, 3)
            )
        elif self.lag_s > ALARM_S:
            self._log.event(RouterEvent.LOOP_LAG, seconds=round(self.lag_s, 3))
        self._periods += 1
        if self._periods % YOUNG_EVERY == 0:
            self._collect()
        self._schedule()

    def _collect(self) -> None:
        census, began_at = self._count(), time.monotonic()
        if self._full.is_due(census, began_at):
            gc.collect()
            self._full.on_done(census, began_at, time.monotonic())
        else:
            gc.collect(1)
