"""A subscriber's map that does not fit a frame: it presents a part at a time, and each part is resumed (rule C-4)."""

from __future__ import annotations

from collections.abc import Callable

from delivery_records.model import effects
from delivery_records.model.endpoint import Endpoint
from delivery_records.model.failures import PastFailures
from delivery_records.model.inputs import LossCause
from delivery_records.model.limits import REDUCTION_QUIET_S
from delivery_records.model.outcomes import Decision
from delivery_records.model.timers import Timer
from delivery_records.model.turn import Turn


class Reduction:
    """One round: the link of an attach with incomplete-unsettled, from the reply to the detach."""

    __slots__ = ("_endpoint", "_failures", "_left", "_link", "_suspend", "_turn", "has_progressed")

    def __init__(
        self,
        turn: Turn,
        endpoint: Endpoint,
        link: int,
        failures: PastFailures,
        suspend: Callable[[Endpoint, LossCause], None],
    ) -> None:
        """The attach was read; it is not answered."""
        self._turn = turn
        self._endpoint = endpoint
        self._link = link
        self._failures = failures
        self._suspend = suspend
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
        at = self._turn.now + (REDUCTION_QUIET_S if self._left else 0)
        self._turn.timers.set(Timer.REDUCTION, self._endpoint.key, at)

    def on_timer(self, is_in_hand: bool) -> None:
        """Both sides suspend, and the client attaches again with the next part."""
        if is_in_hand:
            self._wait()  # C-2: the subscriber has some in hand, and alone knows how long they take
            return
        turn, endpoint = self._turn, self._endpoint
        self._failures.end_round(endpoint.key, self.has_progressed)
        turn.note(Decision.SUBSCRIBER_MAP_REDUCED, subscription=endpoint.name)
        turn.out.append(effects.DetachLink(self._link, False))
        self._suspend(endpoint, LossCause.DETACH)
