"""A subscriber's map that does not fit a frame: it presents a part at a time, and each part is resumed (rule C-4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delivery_records import effects
from delivery_records.entries import SENT
from delivery_records.inputs import LossCause
from delivery_records.limits import REDUCTION_QUIET_S
from delivery_records.outcomes import Decision
from delivery_records.timers import Timer

if TYPE_CHECKING:
    from delivery_records.egress import Egress


class Reduction:
    """One round: the link of an attach with incomplete-unsettled, from the reply to the detach."""

    __slots__ = ("_egress", "_left", "has_progressed")

    def __init__(self, egress: Egress) -> None:
        """The attach was read; it is not answered."""
        self._egress = egress
        self._left = 0
        self.has_progressed = False
        """Something of the presented part was settled or answered."""

    def begin(self, presented: int, kept: int) -> None:
        """The attach is answered: `kept` of the `presented` entries are to be resumed."""
        self._left = kept
        self.has_progressed = kept < presented
        self._wait()

    def on_resumed(self) -> None:
        """An entry went to the subscriber."""
        self._wait()

    def on_answered(self) -> None:
        """The subscriber stated what became of some."""
        self.has_progressed = True
        self._wait()

    def on_gone(self) -> None:
        """The subscriber was sent the settlement of an entry, or wants it again: it is no longer in its map."""
        self.has_progressed = True
        self._left -= 1
        self._wait()

    def _wait(self) -> None:
        """Until nothing has happened for a while; no longer when nothing is left."""
        egress = self._egress
        turn = egress.core.turn
        at = turn.now + (REDUCTION_QUIET_S if self._left else 0)
        turn.timers.set(Timer.REDUCTION, egress.key, at)

    def on_timer(self) -> None:
        """Both sides suspend, and the client attaches again with the next part."""
        egress = self._egress
        entries = (entry for entries in egress.sessions.values() for entry in entries.values())
        if any(entry.state is SENT for entry in entries):
            self._wait()  # C-2: the subscriber has them in hand, and alone knows how long they take
            return
        core, turn = egress.core, egress.core.turn
        core.end_round(egress.key, self.has_progressed)
        turn.note(Decision.SUBSCRIBER_MAP_REDUCED, subscription=egress.name)
        turn.out.append(effects.Detach(egress.link, False))
        core.suspend_subscriber(egress, LossCause.DETACH)
