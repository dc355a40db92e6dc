"""Watches the event loop: how late it is, and garbage collection at times of our choosing (K-3a).

A router that stalls is routed around by its neighbours, and after a few seconds more it loses its lease; so stalls are
measured, and the collector never runs in the middle of a burst: young objects are collected once a second, everything
only once in a while, and when many clients have left: a connection and its links are full of cycles.
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
FULL_EVERY = 3000
"""Periods between full collections: once in five minutes; what was there at the start is exempt (gc.freeze)."""
MIN_ENDED = 128
"""Connections and links that have ended since the last full collection: fewer, with windows of 500, hold some 3 MB."""
ENDED_SHARE = 4
"""As many as a quarter of those that are there: a collection looks at all of these, so each end pays for four."""


@dataclass(frozen=True, slots=True)
class Census:
    """Connections and links of clients."""

    ended: int
    """So far."""
    present: int


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
        self._collected = 0
        """How many had ended at the last full collection."""
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
        gc.disable()
        self._schedule()

    def stop(self) -> None:
        """Give garbage collection back."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        gc.enable()
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
        census = self._count()
        self._collected = min(self._collected, census.ended)  # an incarnation counts its links from 0
        left = census.ended - self._collected
        if self._periods % FULL_EVERY == 0 or left >= max(MIN_ENDED, census.present // ENDED_SHARE):
            self._collected = census.ended
            gc.collect()
        else:
            gc.collect(1)
