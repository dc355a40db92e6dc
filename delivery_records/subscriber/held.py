"""New deliveries that an egress holds for lack of credit or room, in order (rules C-3, C-4, K-8a).

Each step costs the same however many wait: a client may send any number of flows (2.7.4), and each asks what may go.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from delivery_records.subscriber.entries import Entry, SyncState


class HeldQueue:
    """The held deliveries of one subscription, oldest first, and which publishers may pass a full map (C-4)."""

    __slots__ = ("_is_held_back", "_line", "_locked_out", "_parked", "aside", "is_freed")

    def __init__(self) -> None:
        """Nothing waits."""
        self._is_held_back: Callable[[Entry], bool] | None = None
        """What a draining router does not send."""
        self._line: OrderedDict[Entry, None] = OrderedDict()
        self._parked: OrderedDict[Entry, None] = OrderedDict()
        """What a draining router does not send; a drain never ends (K-8a)."""
        self._locked_out: dict[SyncState, None] = {}
        self.aside: dict[SyncState, tuple[OrderedDict[Entry, None], dict[Entry, None]]] = {}
        """L-7: what waits of a publisher that is to send again, and for which deliveries it waits."""
        self.is_freed = False
        """Something was waited for, and is no longer: set here, and taken back by who has looked."""

    def __len__(self) -> int:
        """Deliveries that wait."""
        aside = sum(len(waiting) for waiting, _ in self.aside.values()) if self.aside else 0
        return len(self._line) + len(self._parked) + aside

    @property
    def is_moving(self) -> bool:
        """Whether one waits that is not held for good."""
        return bool(self._line)

    @property
    def moving(self) -> int:
        """How many wait that are not held for good."""
        return len(self._line)

    @property
    def first(self) -> Entry | None:
        """The oldest that is not held for good."""
        return next(iter(self._line), None)

    @property
    def first_locked_out(self) -> Entry | None:
        """The oldest delivery of a publisher that has none in the map."""
        for sync in self._locked_out:
            return next(iter(sync.held))
        return None

    def append(self, entry: Entry, is_held_back: bool) -> None:
        """Hold one behind all others; `is_held_back`: for good, and pre-settled ones behind such with it."""
        if is_held_back or (entry.presettled and self._parked):
            self._parked[entry] = None
            return
        if self.aside and entry.sync is not None and self.waits_for_publisher(entry):
            self.aside[entry.sync][0][entry] = None
            return
        self._line[entry] = None
        if entry.sync is not None:
            entry.sync.held[entry] = None
            self.look_at(entry.sync)

    def remove(self, entry: Entry) -> None:
        """One is sent, settled, or dropped."""
        if entry in self._parked:
            del self._parked[entry]
            return
        if self.aside and entry.sync in self.aside and entry in self.aside[entry.sync][0]:
            del self.aside[entry.sync][0][entry]
            return
        self.remove_from_line(entry)

    def of(self, sync: SyncState) -> list[Entry]:
        """All that wait of one publisher."""
        aside = self.aside[sync][0] if sync in self.aside else ()
        return [*aside, *sync.held, *(entry for entry in self._parked if entry.sync is sync)]

    def _is_to_park(self, entry: Entry) -> bool:
        return self._is_held_back is not None and self._is_held_back(entry)

    def park(self, is_held_back: Callable[[Entry], bool]) -> None:
        """K-8a: the router begins to drain; what it will not send makes way for the rest."""
        self._is_held_back = is_held_back
        for entry in list(self._line):
            self.remove(entry)
            self.append(entry, is_held_back(entry))

    def set_aside(self, sync: SyncState, cause: Entry) -> None:
        """L-7: `cause`, and what follows it of its publisher, waits until it is sent again or not needed."""
        waiting, causes = self.aside.setdefault(sync, (OrderedDict(), {}))
        causes[cause] = None
        for entry in [entry for entry in sync.held if entry.number >= cause.number]:
            self.remove_from_line(entry)
            waiting[entry] = None

    def waits_for_publisher(self, entry: Entry) -> bool:
        """L-7: it follows a delivery that its publisher is to send again."""
        if entry.sync not in self.aside:
            return False
        causes = self.aside[entry.sync][1]
        return entry not in causes and entry.number > min(cause.number for cause in causes)

    def remove_from_line(self, entry: Entry) -> None:
        """It waits elsewhere from now on."""
        del self._line[entry]
        if entry.sync is not None:
            del entry.sync.held[entry]
            self.look_at(entry.sync)

    def let_go(self, entry: Entry) -> None:
        """I-1c: it keeps its place in the line, and is of no publisher's stream any more."""
        sync, entry.sync = entry.sync, None
        if sync is not None and entry in sync.held:
            del sync.held[entry]
            self.look_at(sync)

    def bring_back(self, sync: SyncState, cause: Entry) -> None:
        """L-7: `cause` is not waited for any longer."""
        found = self.aside.get(sync)
        if found is None:
            return
        waiting, causes = found
        causes.pop(cause, None)
        self.is_freed = True
        freed = [entry for entry in waiting if entry not in causes and not (causes and self.waits_for_publisher(entry))]
        for entry in freed:
            del waiting[entry]
        if not causes:
            del self.aside[sync]
        for entry in freed:
            self.append(entry, self._is_to_park(entry))

    def forget_aside(self, sync: SyncState) -> list[Entry]:
        """E-2: a SYNC says all anew. Returns what was waited for."""
        found = self.aside.pop(sync, None)
        return [] if found is None else list(found[1])

    def put_first(self, entry: Entry) -> None:
        """L-6: it goes back to where it was, ahead of what follows it."""
        self.append(entry, self._is_to_park(entry))
        sync = entry.sync
        if entry in self._parked:
            self._parked.move_to_end(entry, last=False)
        elif sync is not None and sync in self.aside and entry in self.aside[sync][0]:
            self.aside[sync][0].move_to_end(entry, last=False)
        else:
            self._line.move_to_end(entry, last=False)
            if sync is not None:
                sync.held.move_to_end(entry, last=False)

    def look_at(self, sync: SyncState) -> None:
        """A publisher's held deliveries, or its places in the map, have changed."""
        if sync.held and (not sync.places or (sync.is_letters and sync.is_locked_out(next(iter(sync.held))))):
            self._locked_out[sync] = None
        else:
            self._locked_out.pop(sync, None)
