"""Publishers that attach behind the subscribers of their AMQP session (rule A-2d)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

Waiter = TypeVar("Waiter")


class SessionOrder(Generic[Waiter]):
    """For each AMQP session: subscribers whose attach is not answered yet, and publishers that came behind them."""

    __slots__ = ("_is_open", "_serial", "_unanswered", "_waiting")

    def __init__(self, is_open: Callable[[int], bool]) -> None:
        """Nobody attaches. `is_open`: whether the attach of a link is neither answered nor over."""
        self._is_open = is_open
        self._serial = 0
        self._unanswered: dict[int, dict[int, int]] = {}
        """By session: links of subscribers, each with its place among all attaches, which ascends."""
        self._waiting: dict[int, dict[Waiter, int]] = {}
        """By session: publishers, likewise."""

    def __bool__(self) -> bool:
        """Whether a publisher waits."""
        return bool(self._waiting)

    def next_place(self) -> int:
        """The place of an attach that came now."""
        self._serial += 1
        return self._serial

    def add_subscriber(self, session: int, link: int, place: int) -> None:
        """A subscriber attaches; one whose map came behind its attach (C-4) keeps its place."""
        if session:
            self._unanswered.setdefault(session, {}).setdefault(link, place)

    def on_answered(self, session: int, link: int) -> None:
        """A subscriber's attach was answered."""
        unanswered = self._unanswered.get(session)
        if unanswered is not None and unanswered.pop(link, 0) and not unanswered:
            del self._unanswered[session]

    def on_session_ended(self, session: int) -> None:
        """Its links have ended before."""
        self._unanswered.pop(session, None)

    def holds(self, session: int, waiter: Waiter, place: int) -> bool:
        """Whether a publisher has to wait; then `take_ready` returns it when that is over."""
        if not self._is_behind(session, place):
            return False
        self._waiting.setdefault(session, {})[waiter] = place
        return True

    def forget(self, session: int, waiter: Waiter) -> None:
        """A publisher waits no longer, for its link has ended."""
        waiting = self._waiting.get(session)
        if waiting is not None and waiting.pop(waiter, 0) and not waiting:
            del self._waiting[session]

    def take_ready(self) -> list[Waiter]:
        """Publishers whose turn it is."""
        ready: list[Waiter] = []
        for session, waiting in list(self._waiting.items()):
            for waiter, place in list(waiting.items()):
                if self._is_behind(session, place):
                    break  # and so are those that came later
                ready.append(waiter)
                self.forget(session, waiter)
        return ready

    def _is_behind(self, session: int, place: int) -> bool:
        unanswered = self._unanswered.get(session, {})
        while unanswered:
            link = next(iter(unanswered))
            if self._is_open(link):
                return unanswered[link] < place
            self.on_answered(session, link)
        return False
