"""The router's budget is full, or was: whose window goes, and who is looked at when there is room (rule C-6)."""

from __future__ import annotations

from delivery_records.attachments.endpoints import Endpoints
from delivery_records.model import effects
from delivery_records.model.limits import ROOM_CHECK_S
from delivery_records.model.outcomes import Decision
from delivery_records.model.timers import Timer
from delivery_records.model.turn import Turn


class Room:
    """Makes room, and gives it to those who wait for it."""

    __slots__ = ("_endpoints", "_turn")

    def __init__(self, turn: Turn, endpoints: Endpoints) -> None:
        """Nobody waits."""
        self._turn = turn
        self._endpoints = endpoints

    def make(self) -> None:
        """Windows of publishers without a link go; with room, look at the others."""
        turn = self._turn
        forgettable = self._endpoints.disconnected
        # Those that nobody resumes last: what was read of them would be lost (A-9a).
        order = sorted(forgettable.values(), key=lambda found: found.departure.is_kept) if turn.budget.is_short else ()
        for ingress in order:
            if not turn.budget.is_short:
                break
            turn.note(Decision.WINDOW_FORGOTTEN, publisher=ingress.name, unsettled=len(ingress.window))
            self._endpoints.forget_ingress(ingress)  # as in a crash (N-1): its publisher presents its map again
        if turn.budget.has_room_again():
            self._look()

    def set_timer(self) -> None:
        """Less room than is worth a look in every turn must not be kept from those who wait for it."""
        if not self._turn.timers.is_set(Timer.ROOM, 0):
            self._turn.timers.set(Timer.ROOM, 0, self._turn.now + ROOM_CHECK_S)

    def on_timer(self) -> None:
        """The time of `set_timer` is over."""
        if self._turn.budget.has_room_again(however_little=True):
            self._look()

    def _look(self) -> None:
        self._turn.out.append(effects.RoomAgain())
        for ingress in self._endpoints.ingresses.values():
            ingress.mark_dirty()
