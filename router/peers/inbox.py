"""What neighbours sent, on its way to the record core: at once, or in turns where it leads to much (T-5)."""

from __future__ import annotations

import time
from collections import deque
from typing import Protocol

from delivery_records.model.inputs import Input
from delivery_records.records import Records
from oncewire.transport.paced_protocol import STEP_WORK, USUAL_WEIGHT
from oncewire.transport.turn import Backlog, work_for_a_turn

MOST = STEP_WORK * USUAL_WEIGHT
"""Deliveries of a step at most, unless a single message leads to more."""


class Core(Protocol):
    """Who takes the inputs; the records' driver is it."""

    @property
    def records(self) -> Records:
        """The record core."""

    @property
    def is_behind(self) -> bool:
        """Whether deliveries of an earlier one wait for their turns."""

    def submit(self, inputs: list[Input]) -> None:
        """Hand them to the record core."""


class Inbox:
    """One line for all neighbours of an incarnation, in the order of their reads.

    Nobody stops reading: what waits here is as if it were still under way, and its bodies count in the credit of their
    channel. Heartbeats and link states do not come by here.
    """

    __slots__ = ("_backlog", "_core", "_is_waiting", "_waiting", "account")

    def __init__(self, core: Core, backlog: Backlog) -> None:
        """Nothing waits."""
        self._core = core
        self._backlog = backlog
        self.account = backlog.newcomer()
        """See `Unfinished`."""
        self._waiting: deque[Input] = deque()
        self._is_waiting = False

    def put(self, inputs: list[Input]) -> None:
        """Take what was read in one go, or what this router found out about its links, behind what waits."""
        if self._is_waiting:
            self._waiting.extend(inputs)
            return
        if len(inputs) * self._core.records.heaviest() <= STEP_WORK:  # as nearly always
            self._core.submit(inputs)
            return
        self._is_waiting = True
        self._waiting.extend(inputs)
        if self._core.is_behind or self._backlog.is_busy(time.monotonic()) or self._step():
            self._backlog.append(self)
        else:
            self._is_waiting = False

    def go_on(self, ends_at: float) -> bool:
        """See `Unfinished`."""
        if self._core.is_behind:
            return True
        self._is_waiting = work_for_a_turn(self._step, time.monotonic, time.monotonic(), ends_at)
        return self._is_waiting

    def clear(self) -> None:
        """The incarnation is over: what waits is lost, as on the way (K-3)."""
        self._waiting.clear()

    def _step(self) -> bool:
        """Hand over what leads to so much at most, or one that leads to more; whether more waits."""
        waiting, weight_of = self._waiting, self._core.records.weight_of
        taken: list[Input] = []
        weight = 0
        while waiting and len(taken) < STEP_WORK:
            weight += weight_of(waiting[0])
            if taken and weight > MOST:
                break
            taken.append(waiting.popleft())
        if taken:
            self._core.submit(taken)
        return bool(waiting)
