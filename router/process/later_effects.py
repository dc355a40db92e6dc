"""Effects of a message to thousands of subscriptions: most of its deliveries go out in later turns of the event loop.

The record core has decided, so nothing of this is seen by it. Deliveries of different links know no order. What names
a link whose delivery waits, waits behind that; all else is carried out at once.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable

from delivery_records.model import effects
from oncewire.transport.paced_protocol import STEP_WORK
from oncewire.transport.turn import Backlog, work_for_a_turn

AT_ONCE = 2_048
"""Effects that one call of the record core has carried out at once: some 5 ms, compiled."""
_NO_LINK = 0
"""Links are numbered from 1."""


class LaterEffects:
    """What waits, in order for each link; `Backlog` gives it turns."""

    __slots__ = ("_backlog", "_carry_out", "account", "by_link")

    def __init__(self, backlog: Backlog, carry_out: Callable[[list[effects.Effect]], None]) -> None:
        """Nothing waits.

        Args:
            backlog: that of the clients' connections, so that none of them is served meanwhile out of turn.
            carry_out: does so; what it leads to comes back by `take`, when it is over.
        """
        self._backlog = backlog
        self._carry_out = carry_out
        self.by_link: OrderedDict[int, deque[effects.Effect]] = OrderedDict()
        """What waits for each link; empty = nothing does."""
        self.account = backlog.newcomer()
        """See `Unfinished`."""

    def take(self, decided: list[effects.Effect]) -> list[effects.Effect]:
        """Keep what waits; returns what is to be carried out at once."""
        by_link, was_waiting = self.by_link, bool(self.by_link)
        at_once: list[effects.Effect] = []
        for effect in decided:
            link = getattr(effect, "link", _NO_LINK)
            waiting = by_link.get(link)
            if waiting is not None:
                waiting.append(effect)
            elif len(at_once) >= AT_ONCE and type(effect) is effects.Deliver:
                by_link[link] = deque((effect,))
            else:
                at_once.append(effect)
        if by_link and not was_waiting:
            self._backlog.append(self)
        return at_once

    def go_on(self, ends_at: float) -> bool:
        """See `Unfinished`."""
        return work_for_a_turn(self._step, time.monotonic, time.monotonic(), ends_at)

    def clear(self) -> None:
        """The incarnation is over: what waits is not sent, as what is on the way to a socket (K-3)."""
        self.by_link.clear()

    def _step(self) -> bool:
        """Carry out so many; whether more wait."""
        by_link = self.by_link
        piece: list[effects.Effect] = []
        while by_link and len(piece) < STEP_WORK:
            link, waiting = next(iter(by_link.items()))
            while waiting and len(piece) < STEP_WORK:
                piece.append(waiting.popleft())
            if not waiting:
                del by_link[link]
        if piece:
            self._carry_out(piece)
        return bool(by_link)
