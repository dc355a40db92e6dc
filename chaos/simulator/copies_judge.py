"""Rule D-3 as a check: a subscriber that drops copies processes none of a message it was done with lately.

That it drops nothing else is G1: a message is accepted when each subscription that is owed it has processed it.
"""

from __future__ import annotations

from chaos.simulator.state import WorldState
from chaos.simulator.violation import Violation

Message = tuple[int, int]


class CopiesJudge:
    """Knows what each subscriber has processed of each publisher, in order, as far back as it must remember."""

    def __init__(self, world: WorldState) -> None:
        """Nothing is processed."""
        self._world = world
        self._last: dict[tuple[int, int], list[int]] = {}
        """(subscriber, publisher) -> numbers of the last messages that were processed."""

    def on_amnesia(self, subscriber: int) -> None:
        """Its journal is lost, and with it what it knew."""
        for place in [place for place in self._last if place[0] == subscriber]:
            del self._last[place]

    def on_processed(self, subscriber: int, message: Message) -> None:
        """It is done with a message.

        Raises:
            Violation: it was done with it before, and since then with fewer others of that publisher than it remembers.
        """
        if not self._world.drops_copies(subscriber):
            return
        publisher, number = message
        last = self._last.setdefault((subscriber, publisher), [])
        if number in last:
            raise Violation(f"DUP: s{subscriber} processes p{publisher}/{number} again, a copy it knows")
        last.append(number)
        del last[: -self._world.traits.remembers]
