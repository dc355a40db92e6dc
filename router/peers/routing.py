"""Runs the link-state protocol of one incarnation: its messages, its timer, and the next hops it leads to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from delivery_records.model.inputs import PathsChanged
from topology.links.linkstate import DropNeighbour, Effect, LinkStateView
from topology.links.linkstate_codec import decode_message, encode_message
from topology.links.paths import Paths

LATE_S = 0.5
"""A timer that fires later than this was held up with everything else: what neighbours said meanwhile is read first."""
CATCH_UP_S = 0.1
"""For reading it: a pause of our own is no reason to give anybody up."""


class Routing:
    """The link states this router knows, and the next hop to each other router."""

    def __init__(
        self,
        rid: int,
        node_id: str,
        send: Callable[[Sequence[int], bytes], None],
        give_up: Callable[[int], None],
        heartbeat_s: float,
        silence_s: float,
    ) -> None:
        """Start without neighbours.

        Args:
            rid: this incarnation.
            node_id: its name.
            send: sends a message to these neighbours.
            give_up: closes the connection to a neighbour that is silent.
            heartbeat_s, silence_s: see `LinkStateView`.
        """
        self.next_hops: Mapping[int, int] = {}
        """Neighbour to send to, by destination; as of the last `update`."""
        self.changes = 0
        """How often links have changed: whatever is made of them is out of date when this moves."""
        self._send = send
        self._give_up = give_up
        self._state = LinkStateView(rid, node_id, time.monotonic(), heartbeat_s=heartbeat_s, silence_s=silence_s)
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0
        self._spare_until = 0.0
        self._set_timer()

    def neighbour_up(self, rid: int, cost: int) -> None:
        """A link is up, or its cost has changed."""
        self._carry_out(self._state.neighbour_up(rid, cost, time.monotonic()))

    def neighbour_down(self, rid: int) -> None:
        """A link is gone."""
        self._carry_out(self._state.neighbour_down(rid, time.monotonic()))

    def router_gone(self, rid: int) -> None:
        """An incarnation's key is deleted."""
        self._state.router_gone(rid)

    def heard(self, rid: int) -> None:
        """Something was read from a neighbour."""
        self._state.heard(rid, time.monotonic())

    def receive(self, data: bytes, sender: int) -> None:
        """A neighbour sent a message.

        Raises:
            LinkStateError: it is none.
        """
        self._carry_out(self._state.receive(decode_message(data), sender, time.monotonic()))

    def update(self) -> PathsChanged | None:
        """Compute the paths anew if links changed; what changed."""
        self.changes += self._state.is_stale
        changed = self._state.update_paths()
        self.next_hops = self._state.paths.next_hops
        return changed

    @property
    def paths(self) -> Paths:
        """The best paths as of the last `update`."""
        return self._state.paths

    def announced(self) -> Mapping[int, Mapping[int, int]]:
        """What each router says of its own links."""
        return self._state.announced()

    def names(self) -> Mapping[int, str]:
        """Names of the routers whose links are known, or were."""
        return self._state.names()

    def stop(self) -> None:
        """No timer any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def edges(self) -> list[dict[str, object]]:
        """All links of the network, for people."""
        names = self._state.names()
        return [
            {"from": names.get(origin, f"{origin:x}"), "to": names.get(neighbour, f"{neighbour:x}"), "cost": cost}
            for origin, links in self._state.links().items()
            for neighbour, cost in links.items()
        ]

    def _carry_out(self, effects: Sequence[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, DropNeighbour):
                self._give_up(effect.rid)
            else:
                self._send(effect.neighbours, encode_message(effect.message))
        if self._next_due() < self._due:
            self._set_timer()

    def _next_due(self) -> float:
        return max(self._state.next_deadline(), self._spare_until)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due = self._next_due()
        self._timer = self._loop.call_later(max(0.0, self._due - time.monotonic()), self._on_timer)

    def _on_timer(self) -> None:
        now = time.monotonic()
        is_late = now - self._due > LATE_S
        effects = self._state.handle_timer(now, spare_silent=is_late)
        if is_late:
            self._spare_until = now + CATCH_UP_S
        self._due = 0.0
        self._carry_out(effects)
        self._set_timer()
