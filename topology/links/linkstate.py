"""Which routers are linked with which, at what cost: link states are flooded, best paths computed from them.

Pure: every call gets `now` (seconds on one monotonic clock) and returns what is to be done. Each router announces its
own links under a growing sequence number; who hears something newer than it knows passes it on to its other neighbours.
Transports are reliable while they last, and two routers whose link comes up send each other all they know, so every
router gets every newest state. A link counts only when both its ends announce it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from delivery_records.model.inputs import PathsChanged
from topology.links.linkstate_codec import (
    MAX_COST,
    MAX_NEIGHBOURS,
    MAX_STATES,
    Announcement,
    Heartbeat,
    LinkStateMessage,
    LinkStateUpdate,
)
from topology.links.paths import NO_PATHS, Paths, best_paths

HEARTBEAT_S = 0.5
"""Between two heartbeats to a neighbour: 10 bytes each, four of them fit in a silence."""
SILENCE_S = 2.0
"""A neighbour that said nothing for so long is routed around. Shorter than a busy machine's pauses would cost a change
of path now and then, and nothing else: no message is lost by a path, the channel over it starts anew (T-4)."""
MIN_HEARTBEATS_IN_SILENCE = 3
"""Two heartbeats in a row may be late without anybody being suspected."""
REFRESH_S = 60.0
"""A router announces its links anew after this, so that what nobody refreshes can be forgotten."""
MAX_AGE_S = 200.0
"""A state this old is forgotten: its origin has missed three refreshes."""
MAX_ROUTERS = 4_096
"""Link states kept; states of further origins are ignored. Bounds memory against a neighbour gone mad."""
MAX_SEQUENCE = 2**63
"""No router announces so often; a larger number would leave no room for its next."""
MAX_GONE = 10_000
"""Incarnations known to be gone, so that late announcements of them are ignored; the oldest is forgotten first."""


@dataclass(frozen=True, slots=True)
class SendTo:
    """Send this message to these neighbours."""

    neighbours: tuple[int, ...]
    message: LinkStateMessage


@dataclass(frozen=True, slots=True)
class DropNeighbour:
    """This neighbour is silent, or one too many, and does not count as one any more: close its connection."""

    rid: int


Effect: TypeAlias = SendTo | DropNeighbour


@dataclass(slots=True)
class _Neighbour:
    cost: int
    heard_at: float
    heartbeat_at: float


@dataclass(frozen=True, slots=True)
class _Known:
    update: LinkStateUpdate
    born_at: float


class LinkStateView:
    """The link states one router incarnation knows, and its best paths."""

    def __init__(
        self, rid: int, node_id: str, now: float, *, heartbeat_s: float = HEARTBEAT_S, silence_s: float = SILENCE_S
    ) -> None:
        """Start without neighbours.

        Args:
            rid: this incarnation.
            node_id: its name, for people.
            now: the time.
            heartbeat_s: between two heartbeats to a neighbour.
            silence_s: a neighbour that said nothing for so long is given up; several heartbeats long.
        """
        assert silence_s >= MIN_HEARTBEATS_IN_SILENCE * heartbeat_s > 0
        self.rid = rid
        self.paths: Paths = NO_PATHS
        """As of the last `update_paths`."""
        self._node_id = node_id
        self._heartbeat_s = heartbeat_s
        self._silence_s = silence_s
        self._neighbours: dict[int, _Neighbour] = {}
        self._known: dict[int, _Known] = {}
        self._gone: dict[int, str] = {}
        """Ended incarnations with their names: neighbours of theirs may announce links to them for a moment more."""
        self._sequence = 0
        self._refresh_at = now + REFRESH_S
        self._is_stale = False
        self._announce_own(now)

    # --- neighbours

    def neighbour_up(self, rid: int, cost: int, now: float) -> list[Effect]:
        """A connection to this neighbour is ready, or its cost changed.

        Args:
            rid: the neighbour's incarnation.
            cost: 1 to MAX_COST.
            now: the time.
        """
        assert 1 <= cost <= MAX_COST
        assert rid != self.rid
        if len(self._neighbours) >= MAX_NEIGHBOURS and rid not in self._neighbours:
            return [DropNeighbour(rid)]
        self._neighbours[rid] = _Neighbour(cost, now, now + self._heartbeat_s)
        # It may know nothing at all: send it everything. The others only need the new link.
        return self._announce_own(now, besides=rid) + self._notify_all(rid, now)

    def neighbour_down(self, rid: int, now: float) -> list[Effect]:
        """The connection to this neighbour is gone. Unknown neighbours are ignored."""
        if self._neighbours.pop(rid, None) is None:
            return []
        return self._announce_own(now)

    def heard(self, rid: int, now: float) -> None:
        """Something, whatever it was, was read from this neighbour."""
        neighbour = self._neighbours.get(rid)
        if neighbour is not None:
            neighbour.heard_at = now

    def router_gone(self, rid: int) -> None:
        """This incarnation's key in etcd is deleted: whatever is still reported about its links is past."""
        known = self._known.pop(rid, None)
        self._gone[rid] = self._gone.get(rid, "") if known is None else known.update.node_id
        if len(self._gone) > MAX_GONE:
            del self._gone[next(iter(self._gone))]
        if known is not None:
            self._is_stale = True

    # --- messages and time

    def receive(self, message: LinkStateMessage, sender: int, now: float) -> list[Effect]:
        """A neighbour sent this."""
        self.heard(sender, now)
        if isinstance(message, Heartbeat) or sender not in self._neighbours:
            return []
        effects: list[Effect] = []
        newer: list[LinkStateUpdate] = []
        outdated: list[LinkStateUpdate] = []
        for update in message.states:
            if update.sequence > MAX_SEQUENCE:
                continue
            if update.origin == self.rid:
                # Nobody else speaks for us; a larger sequence than ours must not silence us.
                if update.sequence > self._sequence:
                    self._sequence = update.sequence
                    effects += self._announce_own(now)
                continue
            known = self._known.get(update.origin)
            if known is not None and known.update.sequence >= update.sequence:
                if known.update.sequence > update.sequence:
                    outdated.append(self._aged(known, now))
            elif self._accept(update, now):
                newer.append(update)
        effects += self._pass_on(newer, besides=sender)
        if outdated:
            effects.append(SendTo((sender,), Announcement(tuple(outdated))))
        return effects

    def next_deadline(self) -> float:
        """When `handle_timer` wants to be called next."""
        times = [self._refresh_at]
        for neighbour in self._neighbours.values():
            times += (neighbour.heartbeat_at, neighbour.heard_at + self._silence_s)
        return min(times)

    def handle_timer(self, now: float, *, spare_silent: bool = False) -> list[Effect]:
        """Time has passed: send heartbeats, give up silent neighbours, refresh and forget link states.

        Args:
            now: the time.
            spare_silent: give nobody up. For a router that was held up itself and has not read yet what its neighbours
                said meanwhile; it calls again when it has.
        """
        effects: list[Effect] = []
        silent = [rid for rid, n in self._neighbours.items() if now >= n.heard_at + self._silence_s]
        if spare_silent:
            silent = []
        for rid in silent:
            del self._neighbours[rid]
            effects.append(DropNeighbour(rid))
        if silent or now >= self._refresh_at:
            self._forget_old(now)
            effects += self._announce_own(now)
        due = [rid for rid, n in self._neighbours.items() if now >= n.heartbeat_at]
        for rid in due:
            self._neighbours[rid].heartbeat_at = now + self._heartbeat_s
        if due:
            effects.append(SendTo(tuple(due), Heartbeat()))
        return effects

    # --- results

    @property
    def is_stale(self) -> bool:
        """Whether links changed since `update_paths`."""
        return self._is_stale

    def update_paths(self) -> PathsChanged | None:
        """Compute best paths anew if links changed; what changed, or None. Call it once for all inputs of a turn."""
        if not self._is_stale:
            return None
        self._is_stale = False
        before, self.paths = self.paths, best_paths(self.links(), self.rid)
        old, new = before.next_hops, self.paths.next_hops
        moved = frozenset(rid for rid in old.keys() | new.keys() if old.get(rid) != new.get(rid))
        return PathsChanged(frozenset(new), moved) if moved else None

    def links(self) -> Mapping[int, Mapping[int, int]]:
        """All links both ends of which announce them: router -> neighbour -> cost."""
        said = self.announced()
        return {
            origin: {other: cost for other, cost in links.items() if origin in said.get(other, ())}
            for origin, links in said.items()
        }

    def announced(self) -> Mapping[int, Mapping[int, int]]:
        """What each router says of its own links; one end alone makes no link."""
        return {origin: dict(known.update.links) for origin, known in self._known.items()}

    def node_ids(self) -> Mapping[int, str]:
        """Names of the routers whose links are known, for people."""
        return {origin: known.update.node_id for origin, known in self._known.items()}

    def names(self) -> Mapping[int, str]:
        """The same with the routers that have ended."""
        return {rid: name for rid, name in self._gone.items() if name} | dict(self.node_ids())

    # --- inside

    def _announce_own(self, now: float, besides: int | None = None) -> list[Effect]:
        self._sequence += 1
        self._refresh_at = now + REFRESH_S
        links = tuple(sorted((rid, neighbour.cost) for rid, neighbour in self._neighbours.items()))
        update = LinkStateUpdate(self.rid, self._node_id, self._sequence, links)
        self._remember(_Known(update, now))
        return self._pass_on([update], besides)

    def _accept(self, update: LinkStateUpdate, now: float) -> bool:
        if update.age_s >= MAX_AGE_S or update.origin in self._gone:
            return False
        if len(self._known) >= MAX_ROUTERS and update.origin not in self._known:
            return False
        self._remember(_Known(update, now - update.age_s))
        return True

    def _remember(self, known: _Known) -> None:
        before = self._known.get(known.update.origin)
        self._known[known.update.origin] = known
        # A refresh that says the same changes no path.
        if before is None or before.update.links != known.update.links:
            self._is_stale = True

    def _pass_on(self, updates: Iterable[LinkStateUpdate], besides: int | None) -> list[Effect]:
        states = tuple(updates)
        neighbours = tuple(rid for rid in self._neighbours if rid != besides)
        return [SendTo(neighbours, Announcement(states))] if states and neighbours else []

    def _notify_all(self, rid: int, now: float) -> list[Effect]:
        states = [self._aged(known, now) for known in self._known.values()]
        return [
            SendTo((rid,), Announcement(tuple(states[start : start + MAX_STATES])))
            for start in range(0, len(states), MAX_STATES)
        ]

    def _aged(self, known: _Known, now: float) -> LinkStateUpdate:
        age_s = min(int(now - known.born_at) + 1, int(MAX_AGE_S))
        return replace(known.update, age_s=age_s)

    def _forget_old(self, now: float) -> None:
        for origin in [o for o, known in self._known.items() if now - known.born_at >= MAX_AGE_S]:
            del self._known[origin]
            self._is_stale = True
