"""What must be true of a journal in every run, and of what its readers get (J-16 to J-26)."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from bridges.journal import cursors, log
from bridges.journal.model import AtTime, Cursor, JournalState, Place, Start
from chaos.routed.code import MAX_AHEAD, MAX_UNDER_WAY
from chaos.routed.journal_store import JournalStore
from chaos.routed.judge import Judge, Violation
from oncewire.wire import decode_message

NAME = "log"
ALL = 1 << 30


@dataclass(slots=True)
class Track:
    """What one reader has got.

    Attributes:
        name: of the reader.
        cursor: of its cursor; empty = it has none.
        is_once: each message is to come once.
        low: nothing up to it may come.
        high: everything behind it must come, if nothing has come yet; None = no attach was answered.
        newest: the newest position that came.
        seen: positions that were read.
        owed: positions that it has released.
        is_notified: it was notified that positions were trimmed.
        floor: positions up to it are as they may be: its cursor was moved.
    """

    name: str
    cursor: str
    is_once: bool
    low: int = 0
    high: int | None = None
    newest: int | None = None
    seen: set[int] = field(default_factory=set)
    owed: set[int] = field(default_factory=set)
    is_notified: bool = False
    floor: int = -1


class JournalJudge(Judge):
    """Watches the store of a journal with the shipped code, and its readers."""

    def __init__(self, store: JournalStore, *, is_compacted: bool, is_trimmed: bool) -> None:
        super().__init__()
        self.store = store
        self.is_full = False
        self.counts: Counter[bytes] = Counter()
        self.payloads: dict[int, bytes] = {}
        self.times: list[int] = []
        self.kept: list[int] = []
        self._replaced: set[int] = set()
        self.state: JournalState = store.peek(lambda do: log.state(do, NAME))
        self._is_compacted = is_compacted
        self._is_trimmed = is_trimmed
        store.listeners[""] = self._on_notice

    # --- the store ------------------------------------------------------------------------------------------------

    def _on_notice(self, names: frozenset[str]) -> None:
        if log.notice_of(NAME) in names:
            self.look()

    def look(self) -> None:
        """J-17: what is new has the next positions and no earlier time; J-25: a full journal takes nothing."""
        before = self.state.last
        self.state, found = self.store.peek(lambda do: log.read(do, NAME, log.state(do, NAME).trimmed, ALL, ALL))
        self.kept = [each.position for each in found]
        if self._is_compacted:
            self._replaced.update(set(range(self.state.trimmed + 1, self.state.last + 1)).difference(self.kept))
        new = [each for each in found if each.position > before]
        if self.is_full and self.state.last > before:
            raise Violation("a full journal has taken more")
        positions = [each.position for each in new]
        first = max(before, self.state.trimmed) + 1
        if not self._is_compacted and positions != list(range(first, self.state.last + 1)):
            raise Violation(f"positions {positions} follow {before}, and {self.state.last} is the last")
        if self.state.kept != len(found):
            raise Violation(f"{len(found)} messages are kept, and the journal says {self.state.kept}")
        for each in new:
            if self.times and each.arrived_us < self.times[-1]:
                raise Violation(f"the time of position {each.position} is before the one before it")
            self.times.append(each.arrived_us)
            self.payloads[each.position] = each.payload
            self.counts[body_of(each.payload)] += 1

    def cursor_of(self, track: Track) -> Cursor | None:
        """A reader's cursor as it is stored."""
        return self.store.peek(lambda do: cursors.find_cursor(do, self.state, track.cursor))  # type: ignore[no-any-return]

    def low_of(self, start: Start) -> int:
        """J-19: the position behind which a reader starts if it is answered now."""
        state = self.state
        if isinstance(start, AtTime):
            found = [position for position in self.kept if self._time_of(position) < start.us]
            return max([state.trimmed, *found])
        if isinstance(start, int):
            return start - 1
        last = max(state.last - 1, state.trimmed)
        return {Place.FIRST: state.trimmed, Place.LAST: last, Place.NEXT: state.last}[start]

    def _time_of(self, position: int) -> int:
        return int(self.store.peek(lambda do: log.read(do, NAME, position - 1, 1, ALL))[1][0].arrived_us)

    # --- readers --------------------------------------------------------------------------------------------------

    def on_arrived(self, track: Track, position: int, payload: bytes) -> None:
        """A delivery came: what the journal has there, and not too far ahead of the cursor (J-21)."""
        if body_of(payload) != body_of(self.payloads.get(position, b"")):
            raise Violation(f"{track.name} got something else at position {position}")
        cursor = self.cursor_of(track) if track.cursor else None
        if cursor is not None and position > cursor.low + MAX_AHEAD:
            raise Violation(f"{track.name} got position {position}, and its cursor is at {cursor.low}")

    def on_resumed(self, track: Track, position: int, is_resumed: bool, is_held: bool) -> None:
        """J-22: what the reader holds is resumed, and all else is new."""
        if is_resumed is not is_held:
            words = "resumed and it is new" if is_resumed else "sent anew and it is held"
            raise Violation(f"{track.name}: position {position} is {words}")

    def on_under_way(self, track: Track, count: int) -> None:
        """J-21: what is not settled has a bound."""
        if count > MAX_UNDER_WAY:
            raise Violation(f"{track.name} has {count} deliveries under way")

    def on_read(self, track: Track, position: int) -> None:
        """A reader has done what a message asks for: once, in order, and nothing is left out."""
        if not self._pass(track, position):
            return
        if position in track.seen and track.is_once:
            raise Violation(f"{track.name} got position {position} twice")
        track.seen.add(position)

    def on_put_back(self, track: Track, position: int) -> None:
        """A reader wants a message again."""
        if self._pass(track, position):
            track.owed.add(position)

    def _pass(self, track: Track, position: int) -> bool:
        """Look at the order; whether the position counts."""
        if position <= track.floor:
            return False
        if position in track.owed:
            track.owed.remove(position)
            return True
        if position <= track.low:
            raise Violation(f"{track.name} starts behind {track.low}, and got position {position}")
        if track.newest is None:
            missing = range((position if track.high is None else track.high) + 1, position)
        else:
            missing = range(track.newest + 1, position)
            if track.is_once and position < track.newest and position not in track.seen:
                raise Violation(f"{track.name} got position {position} behind {track.newest}")
        lost = [each for each in missing if each not in track.seen and self._must_come(track, each)]
        if lost:
            raise Violation(f"{track.name} got position {position}, and not {lost}")
        track.is_notified = False
        track.newest = max(position, track.newest or 0)
        return True

    def _must_come(self, track: Track, position: int) -> bool:
        return position not in self._replaced and not (track.is_notified and position <= self.state.trimmed)

    def on_left_out(self, track: Track, position: int) -> None:
        """J-22: the journal takes as read what the reader holds unread: only what it does not have any more."""
        if position > track.floor and self._must_come(track, position) and not track.is_notified:
            raise Violation(f"{track.name} has not read position {position}, and the journal takes it as read")

    def on_not_stored(self, track: Track, position: int) -> None:
        """J-22: an outcome of a map is stored before the attach is answered."""
        raise Violation(f"{track.name} has presented that position {position} is read, and it is not stored")

    def on_settled(self, track: Track, position: int) -> None:
        """G4: settled is only what is stored, or replaced (J-26)."""
        if position in self._replaced:
            return
        cursor = self.cursor_of(track)
        if cursor is None or not cursors.is_read(cursor, position):
            raise Violation(f"{track.name} is answered that position {position} is read, and the cursor is {cursor}")

    def on_close_answered(self, reader: str, generation: int) -> None:
        """J-21: the end of a cursor is stored before the close of its link is answered."""
        cursor = self.store.peek(lambda do: cursors.find_cursor(do, self.state, reader))
        if cursor is not None and cursor.generation == generation:
            raise Violation(f"the close of {reader} is answered, and the cursor is {cursor}")

    def on_notified(self, track: Track) -> None:
        """J-24: the reader's next message was trimmed."""
        if not self._is_trimmed:
            raise Violation(f"{track.name} is refused for messages that were trimmed, and none were")
        track.is_notified = True

    def on_closed(self, track: Track) -> None:
        """A reader has ended its cursor: its next attach begins anew, or goes on if the end was lost."""
        track.low, track.high, track.newest, track.floor = -1, None, None, -1
        track.seen, track.is_notified = set(), False

    def on_moved(self, track: Track, low: int) -> None:
        """An operator has moved a cursor: a reader that keeps a map may get again what it has settled."""
        if track.is_once:
            track.is_once = False
        else:
            track.seen = set()
        track.owed = {position for position in track.owed if position > low}
        track.floor, track.newest, track.low = low, low, min(track.low, low)

    def misses(self, track: Track) -> list[int]:
        """What a reader still has to get."""
        first = min(track.seen, default=None) if track.floor < 0 else track.floor
        low = (self.state.last if track.high is None else track.high) if first is None else first
        missing = {position for position in self.kept if position > low} - track.seen
        return sorted(missing | {each for each in track.owed if each in self.kept})

    def judge_end(self, sent: Counter[bytes], exactly_once: set[bytes]) -> None:
        """Everything was accepted, and is there."""
        missing = self.accepted - self.counts.keys()
        if missing:
            raise Violation(f"accepted and not appended: {sorted(missing)[:3]}")
        twice = [item for item in sorted(exactly_once) if self.counts[item] > 1]
        if twice:
            raise Violation(f"appended twice: {twice[:3]}")
        open_items = sent.keys() - self.accepted
        if open_items:
            raise Violation(f"not accepted at the end: {sorted(open_items)[:3]}")


def body_of(payload: bytes) -> bytes:
    """The message's content, whatever annotations it has got."""
    body = decode_message(payload).body if payload else b""
    assert isinstance(body, bytes)
    return body
