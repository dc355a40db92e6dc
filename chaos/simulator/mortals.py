"""Publishers whose process is killed and never comes back, while their sessions are kept (C-4, K-5).

T_pub of such a publisher is longer than any world lasts. So whoever waits for its session to expire waits for ever, and
is found: the sessions end only when everybody else is at rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from chaos.simulator.violation import Violation
from delivery_records.model.view import Kind

if TYPE_CHECKING:
    from chaos.simulator.state import WorldState


class Mortals:
    """Who is dead."""

    def __init__(self, world: WorldState, delete_key: Callable[[Kind, str], None]) -> None:
        """Everybody lives."""
        self._world = world
        self._delete_key = delete_key
        self._dead: list[int] = []

    @property
    def are_waited_for(self) -> bool:
        """Somebody is dead, whose session nobody may wait for."""
        return bool(self._dead)

    def kill(self, publisher: int) -> None:
        """Its process is gone, and so is its journal."""
        self._world.publishers[publisher].die()
        self._dead.append(publisher)

    def bury(self) -> bool:
        """The sessions of the dead end; False: that has been done. Before it everybody else must have come to rest.

        Raises:
            Violation: somebody waits for the dead (G5).
        """
        world = self._world
        if not self._dead:
            return False
        for client in world.clients():
            if client.index in self._dead and client in world.publishers:
                continue
            is_away = client.is_wanted and client.connection is None
            left = client.leftover() if client in world.publishers else ""
            if left or (is_away and client in world.subscribers and not world.comes_later(client)):
                what = f"{client.index} {left or 'is not attached'}"
                kind = "p" if client in world.publishers else "s"
                raise Violation(f"BLOCKED: {kind}{what} while sessions are kept of publishers that are gone")
        for publisher in self._dead:
            self._delete_key(Kind.PUBLISHER, world.publisher_key(publisher))
        self._dead.clear()
        return True
