"""T-10: what goes to many subscriptions of this router is handed over in pieces, each in a turn of its own.

To an egress its publisher's stream is under way for longer, as if it came by a channel from afar, and still in order:
what follows waits behind it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from delivery_records.model.messages import Msg, Settle, ToEgress
from delivery_records.model.timers import Timer
from delivery_records.model.turn import Turn
from delivery_records.subscriber.egress import Egress

_HERE = 0
"""Whose deadline the next piece is: this router's."""
_SETTLED_AS_ONE = 8
"""Settlements that cost as much as a delivery."""


@dataclass(slots=True)
class Rest:
    """A message of a stream that not all have got, or one that waits behind such a one."""

    origin: int
    message: ToEgress
    egresses: Sequence[Egress] | None
    """Those it is for; None: found when its turn comes."""
    at: int = 0
    """So many of them have it."""


class Pieces:
    """What waits, in order for each publisher's stream."""

    __slots__ = ("_begin", "_egresses", "_hand_over", "_heaviest", "_turn", "_weighed_at", "lines")

    def __init__(
        self,
        turn: Turn,
        egresses: Mapping[str, Egress],
        begin: Callable[[int, ToEgress], Sequence[Egress]],
        hand_over: Callable[[Egress, Msg | Settle], None],
    ) -> None:
        """Nothing waits.

        Args:
            turn: of this router.
            egresses: all of this router.
            begin: carries out a message from a router, but for handing it to those that it returns.
            hand_over: a message for one egress.
        """
        self._turn = turn
        self._egresses = egresses
        self._begin = begin
        self._hand_over = hand_over
        self._weighed_at, self._heaviest = -1, 0
        self.lines: dict[int, deque[Rest]] = {}
        """By the publisher's epoch. What it holds is bounded: a publisher here by its window, one elsewhere by the
        credit of its channel (T-5); and the shell hands over nothing else that leads to much meanwhile."""

    def wait(self, origin: int, message: ToEgress, egresses: Sequence[Egress] | None = None) -> bool:
        """Whether a message waits, for what came before in its stream does."""
        line = self.lines.get(message.publisher_epoch)
        if line is None:
            return False
        line.append(Rest(origin, message, egresses))
        return True

    def take(self, origin: int, message: Msg | Settle, egresses: Sequence[Egress]) -> bool:
        """Whether a message to several is too much for a turn: then as many have it as a turn may, and others wait.

        Nothing of its stream waits. One at a time is begun: another one that is too much waits until it is through.
        """
        most = self._turn.limits.piece
        if self.heaviest(message) <= most or not _is_much(message, egresses, most):
            return False
        is_first = not self.lines
        self.lines[message.publisher_epoch] = deque((Rest(origin, message, _by_filter(egresses)),))
        if is_first:  # what answers at once may send more of its stream, which waits
            self.on_timer()
        return True

    def heaviest(self, message: Msg | Settle | None = None) -> int:
        """What a message to all egresses here would cost, in deliveries; None: one that is no SETTLE."""
        if self._weighed_at != self._turn.plan_version:
            self._weighed_at = self._turn.plan_version
            self._heaviest = sum(egress.weight() for egress in self._egresses.values())
        return self._heaviest if message is None else self._heaviest * _share(message)

    def on_timer(self) -> None:
        """The next piece, and when the one behind it is due."""
        left = Left(self._turn.limits.piece)
        while self.lines and left.deliveries > 0:
            epoch, line = next(iter(self.lines.items()))
            rest = line[0]
            if rest.egresses is None:
                rest.egresses = _by_filter(self._begin(rest.origin, rest.message))
                left.deliveries -= 1
            self._advance(rest, left)
            if rest.at >= len(rest.egresses):
                line.popleft()
                if not line:
                    del self.lines[epoch]
        if self.lines:
            self._turn.timers.set(Timer.PIECES, _HERE, self._turn.now)

    def _advance(self, rest: Rest, left: Left) -> None:
        """Hand a message to as many as a turn may."""
        message, egresses = rest.message, rest.egresses
        assert egresses is not None
        while rest.at < len(egresses) and left.deliveries > 0:
            assert isinstance(message, Msg | Settle), "all else is for nobody else"
            egress = egresses[rest.at]
            if not left.has_room(message, egress):
                left.deliveries = 0
                return
            rest.at += 1
            self._hand_over(egress, message)


class Left:
    """What is left of a turn. Its first egress has room whatever it costs."""

    __slots__ = ("_filter", "_is_new", "deliveries", "filters")

    def __init__(self, most: int) -> None:
        """All of it is.

        Args:
            most: deliveries, and deliveries that its filters cost beside them.
        """
        self.deliveries = most
        self.filters = most
        self._filter: object = None
        self._is_new = True

    def has_room(self, message: Msg | Settle, egress: Egress) -> bool:
        """Whether a message to this egress, behind the one before, belongs to this turn; it is counted then."""
        if isinstance(message, Msg) and egress.shared_filter is not self._filter:
            self._filter = egress.shared_filter
            if self._filter is not None:
                self.filters -= egress.weight()
                if self.filters < 0 and not self._is_new:
                    return False
        self.deliveries -= _share(message)
        self._is_new = False
        return True


def _share(message: Msg | Settle) -> int:
    """Deliveries that a message is for one egress, without its filter."""
    return 1 + sum(count for _, count in message.runs) // _SETTLED_AS_ONE if isinstance(message, Settle) else 1


def _is_much(message: Msg | Settle, egresses: Sequence[Egress], most: int) -> bool:
    """Whether it is too much for a turn."""
    if len(egresses) * _share(message) > most:
        return True
    if isinstance(message, Settle):
        return False
    filters = {egress.shared_filter: egress.weight() for egress in egresses}
    return sum(weight for found, weight in filters.items() if found is not None) > most


def _by_filter(egresses: Sequence[Egress]) -> Sequence[Egress]:
    """Those with equal filters behind each other: each piece evaluates a filter once (E-9)."""
    groups: dict[object, list[Egress]] = {}
    for egress in egresses:
        groups.setdefault(egress.shared_filter, []).append(egress)
    return egresses if len(groups) == 1 else [egress for group in groups.values() for egress in group]
