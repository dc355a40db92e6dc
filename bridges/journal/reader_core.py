"""What a journal does on one AMQP link of a reader: events of the link and results of the store in, effects out.

Two kinds of readers share the way out. One without a cursor is sent what lies behind its start, each message once and
settled if it asks for that; nothing it says is stored (J-20). One with a cursor is sent what its cursor does not cover;
each outcome is stored, then settled (J-21). The messages are read in portions, as credit and the store allow: one
portion at a time, so that order is that of the positions.

The delivery-tag names the journal and the position, so an attach after a crash of anybody can be compared with the
cursor: what the map presents with an outcome is stored as read before the attach is answered, what it presents without
one and is not read is resumed, and what it does not present has never arrived (J-22). For that comparison nothing has
to be remembered here: the cursor and the reader's map are all there is.

Deliveries that are released come again on the same link, before later ones. So two things are ahead of a new read:
messages that were read and found no credit, and deliveries to send again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from bridges.journal.errors import PositionAhead, PositionTrimmed, UnknownJournal
from bridges.journal.model import MAX_AHEAD, MAX_UNDER_WAY, Cursor, JournalState, StoredMessage
from bridges.journal.schema import MAX_POSITION
from bridges.store.amqp_errors import error_of
from bridges.store.push_core import Detach
from oncewire.store.errors import EdgeError
from oncewire.wire import (
    RELEASED,
    RESOURCE_DELETED,
    STOLEN,
    Accepted,
    AmqpError,
    DeliveryState,
    DispositionReceived,
    Modified,
    Rejected,
)
from oncewire.wire.journal_tags import POSITION_BYTES, journal_position, journal_tag

NO_CURSOR = Cursor(0, 0)
READ_COUNT = 256
"""Messages of one read of the store: enough that its cost is shared, few enough that others have turns."""


def tag_of(journal: JournalState, position: int) -> bytes:
    """The delivery-tag of a message, the same whenever it is sent."""
    return tag_start(journal) + position.to_bytes(POSITION_BYTES, "big")


def tag_start(journal: JournalState) -> bytes:
    """What the delivery-tags of all messages of a journal begin with; the position follows."""
    return journal_tag(bytes.fromhex(journal.uuid), 0)[:-POSITION_BYTES]


def position_of(journal: JournalState, tag: bytes) -> int | None:
    """The position that a tag of this journal names; None = it is another's."""
    position = journal_position(tag)
    return position if position is not None and tag == tag_of(journal, position) else None


@dataclass(frozen=True, slots=True)
class Read:
    """Read up to `count` messages behind a position; `ReaderCore.on_read` takes them."""

    after: int
    count: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing is left: call `ReaderCore.on_changed` when the journal has changed."""


@dataclass(frozen=True, slots=True)
class Send:
    """Send messages in their order; `ReaderCore.sent` takes the delivery-ids of those that went out."""

    messages: Sequence[StoredMessage]
    tags: Sequence[bytes]
    is_settled: bool
    resume: bool


@dataclass(frozen=True, slots=True)
class Abandon:
    """Settle a delivery that the reader presents and that the journal has replaced: resumed, aborted."""

    tag: bytes


@dataclass(frozen=True, slots=True)
class Drained:
    """Give the reader's credit back: nothing more is there."""


@dataclass(frozen=True, slots=True)
class Outcomes:
    """What the reader stated of some deliveries, all the same."""

    numbers: tuple[int, ...]
    state: DeliveryState
    is_settled: bool
    """By the reader: it waits for no answer."""


@dataclass(frozen=True, slots=True)
class Store:
    """Store that positions are read; `ReaderCore.on_stored` takes the cursor, or the error."""

    positions: tuple[int, ...]
    outcomes: tuple[Outcomes, ...]


@dataclass(frozen=True, slots=True)
class Settle:
    """Settle deliveries that went out, after what they mean is durable."""

    numbers: tuple[int, ...]
    state: DeliveryState


ReaderEffect: TypeAlias = Read | Wait | Send | Abandon | Drained | Store | Settle | Detach


def presented_as_read(journal: JournalState, unsettled: Mapping[bytes, DeliveryState | None] | None) -> list[int]:
    """Positions whose outcome a reader's map presents: its last link did not bring it here (J-22)."""
    found = []
    for tag, state in (unsettled or {}).items():
        position = position_of(journal, tag)
        if position is not None and is_final(state):
            found.append(position)
    return found


def is_final(state: DeliveryState | None) -> bool:
    """Whether an outcome counts as read (J-21)."""
    return isinstance(state, Accepted | Rejected) or (isinstance(state, Modified) and bool(state.undeliverable_here))


def end_of(error: EdgeError) -> AmqpError:
    """The error of a reader that cannot be served (J-24, J-27).

    A journal that is not there has another condition than a service that is not: that one is waited for (R-2).
    """
    return AmqpError(RESOURCE_DELETED, str(error)) if isinstance(error, UnknownJournal) else error_of(error)


@dataclass(slots=True)
class ReaderCore:
    """One link of a reader.

    Attributes:
        is_settled: the reader wants its messages settled.
        has_cursor: its source is durable.
        journal: what it reads, as its attach found it.
        generation: of its cursor.
    """

    is_settled: bool
    has_cursor: bool
    journal: JournalState | None = None
    generation: int = 0
    _cursor: Cursor = NO_CURSOR
    _after: int = 0
    _limit: int = 0
    _sent: int = 0
    _unsettled: int = 0
    _is_draining: bool = False
    _is_reading: bool = False
    _is_storing: bool = False
    _is_at_end: bool = False
    _is_over: bool = False
    _presented: list[int] = field(default_factory=list)
    """Positions that the reader's map has without an outcome, in order; those behind `_after`."""
    _again: deque[int] = field(default_factory=deque)
    _read: deque[StoredMessage] = field(default_factory=deque)
    _under_way: dict[int, int] = field(default_factory=dict)
    """By delivery-id, of deliveries that have no outcome yet: the position."""
    _finished: list[tuple[Outcomes, tuple[int, ...]]] = field(default_factory=list)

    # --- the attach -----------------------------------------------------------------------------------------------

    def on_opened(
        self, journal: JournalState, after: int, cursor: Cursor | None, presented: Iterable[bytes]
    ) -> dict[bytes, DeliveryState | None]:
        """The store has found where the reader starts; returns the map of the answer (J-22)."""
        self.journal, self._after = journal, after
        if cursor is not None:
            self._cursor, self.generation = cursor, cursor.generation
            positions = (position_of(journal, tag) for tag in presented)
            newest = min(journal.last, cursor.low + MAX_AHEAD)
            self._presented = sorted(
                position for position in positions if position is not None and not self._is_read(position, newest)
            )
        return dict.fromkeys((tag_of(journal, position) for position in self._presented), None)

    def _is_read(self, position: int, newest: int) -> bool:
        return position > newest or position <= self._cursor.low or position in self._cursor.behind

    # --- sending --------------------------------------------------------------------------------------------------

    def on_flow(self, limit: int, drain: bool) -> list[ReaderEffect]:
        """The reader allows so many deliveries in all since the attach."""
        self._limit, self._is_draining = limit, drain
        if drain:
            self._is_at_end = False  # it is asked what is there now
        return self._step()

    def on_changed(self) -> list[ReaderEffect]:
        """The journal may have more, or the store answers again."""
        self._is_at_end = False
        return self._step()

    def _step(self) -> list[ReaderEffect]:
        effects: list[ReaderEffect] = []
        if self._is_over or self.journal is None:
            return effects
        while self._read and self._may_send(self._read[0].position):
            abandoned = self._abandon(self._read[0].position)
            effects.append(self._send() if abandoned is None else abandoned)
        if self._is_reading or self._room() <= 0:
            return effects
        if self._again:
            read = Read(self._again[0] - 1, 1)
        elif self._read:
            return [*effects, *self._look_for_cursor()]
        elif self._is_at_end or not self._may_send(self._after + 1):
            return effects
        else:
            read = Read(self._after, min(self._room(), READ_COUNT))
        self._is_reading = True
        return [*effects, read]

    def _look_for_cursor(self) -> list[ReaderEffect]:
        """J-26: the next message is too far ahead, and nothing is left to settle: what lies between was replaced."""
        if self._unsettled or self._is_storing:
            return []
        self._is_storing = True
        return [Store((), ())]

    def _room(self) -> int:
        """Deliveries that may go out now: the reader's credit, and what its map can hold (J-21)."""
        credit = self._limit - self._sent
        return min(credit, MAX_UNDER_WAY - self._unsettled) if self.has_cursor else credit

    def _may_send(self, position: int) -> bool:
        return self._room() > 0 and (not self.has_cursor or position <= self._cursor.low + MAX_AHEAD)

    def _abandon(self, limit: int) -> Abandon | None:
        """J-26: the oldest delivery that the reader presents, if the next message lies behind it: it was replaced."""
        assert self.journal is not None
        if not self._presented or self._presented[0] >= limit:
            return None
        self._sent += 1
        return Abandon(tag_of(self.journal, self._presented.pop(0)))

    def _send(self) -> Send:
        """The first message that was read, which may go out; with it those behind it that may, too."""
        assert self.journal is not None
        read, presented = self._read, self._presented
        messages = [read.popleft()]
        is_presented = bool(presented) and presented[0] == messages[0].position
        if is_presented:
            presented.pop(0)
        else:  # up to the next one that the reader presents, or that is too far ahead
            stop = presented[0] if presented else MAX_POSITION + 1
            if self.has_cursor:
                stop = min(stop, self._cursor.low + MAX_AHEAD + 1)
            most = min(self._room(), len(read) + 1)
            while len(messages) < most and read[0].position < stop:
                messages.append(read.popleft())
        self._sent += len(messages)
        self._unsettled += len(messages)
        start = tag_start(self.journal)
        tags = [start + message.position.to_bytes(POSITION_BYTES, "big") for message in messages]
        return Send(messages, tags, self.is_settled, is_presented)

    def sent(self, messages: Sequence[StoredMessage], numbers: Sequence[int]) -> None:
        """So many of the messages of a `Send` went out, the first ones."""
        if not self.is_settled:
            self._under_way.update(zip(numbers, (message.position for message in messages), strict=False))

    def on_read(
        self, asked: Read, found: tuple[JournalState, Sequence[StoredMessage]] | EdgeError
    ) -> list[ReaderEffect]:
        """What a `Read` found."""
        self._is_reading = False
        if self._is_over:
            return []
        if isinstance(found, EdgeError):
            return self._failed(found)
        assert self.journal is not None
        if found[0].uuid != self.journal.uuid:
            return self._end(AmqpError(RESOURCE_DELETED, "the journal was deleted, and made again; attach again"))
        if self._again and asked.after == self._again[0] - 1:
            return self._sent_again(found[1])
        if found[1]:
            self._after = found[1][-1].position
            newest = found[0].last
            self._read.extend(each for each in found[1] if not self._is_read(each.position, newest))
            return self._step()
        self._is_at_end = True
        effects: list[ReaderEffect] = []
        while self._room() > 0 and (abandoned := self._abandon(found[0].last + 1)) is not None:
            effects.append(abandoned)
        if self._is_draining:
            self._is_draining, self._sent = False, self._limit
            effects.append(Drained())
        return [*effects, Wait()]

    def _sent_again(self, messages: Sequence[StoredMessage]) -> list[ReaderEffect]:
        """A message that was released; where a compacted journal has replaced it, it counts as read (J-26)."""
        position = self._again.popleft()
        if messages and messages[0].position == position:
            self._read.appendleft(messages[0])
            return self._step()
        return [*self._finish(Outcomes((), RELEASED, True), (position,)), *self._step()]

    def _failed(self, error: EdgeError) -> list[ReaderEffect]:
        if isinstance(error, PositionTrimmed | PositionAhead | UnknownJournal):
            return self._end(end_of(error))
        self._is_at_end = True  # the store is asked again when it may answer
        return [Wait()]

    def _end(self, error: AmqpError, closed: bool = True) -> list[ReaderEffect]:
        self._is_over = True
        return [Detach(closed, error)]

    # --- outcomes -------------------------------------------------------------------------------------------------

    def on_disposition(self, event: DispositionReceived) -> list[ReaderEffect]:
        """The reader states outcomes, or settles."""
        known = [number for number in event.ids if number in self._under_way]
        if not known or self._is_over:
            return []
        positions = tuple(self._under_way.pop(number) for number in known)
        self._unsettled -= len(known)
        state = RELEASED if event.state is None else event.state
        outcomes = Outcomes(tuple(known), state, event.settled)
        if not self.has_cursor:  # J-20
            return [*([] if event.settled else [Settle(outcomes.numbers, state)]), *self._step()]
        if not is_final(state):  # J-21
            self._again.extend(positions)
            return [*([] if event.settled else [Settle(outcomes.numbers, state)]), *self._step()]
        return self._finish(outcomes, positions)

    def _finish(self, outcomes: Outcomes, positions: tuple[int, ...]) -> list[ReaderEffect]:
        self._finished.append((outcomes, positions))
        return self._store()

    def _store(self) -> list[ReaderEffect]:
        if self._is_storing or not self._finished:
            return []
        self._is_storing = True
        finished, self._finished = self._finished, []
        positions = tuple(position for _, some in finished for position in some)
        return [Store(positions, tuple(outcomes for outcomes, _ in finished))]

    def on_stored(self, stored: Store, result: Cursor | EdgeError) -> list[ReaderEffect]:
        """What became of a `Store`: the reader is answered when it is durable (J-21)."""
        self._is_storing = False
        if self._is_over:  # what the reader stated before counts all the same
            return [] if isinstance(result, EdgeError) else self._store()
        if isinstance(result, EdgeError):
            # J-22: whether it is stored is not known, or another link has the cursor; the next attach shows it.
            return self._end(error_of(result), closed=False)
        self._cursor = result
        settled = [Settle(each.numbers, each.state) for each in stored.outcomes if each.numbers and not each.is_settled]
        return [*settled, *self._store(), *self._step()]

    def on_taken(self) -> list[ReaderEffect]:
        """J-23: another link has the cursor."""
        return [] if self._is_over else self._end(AmqpError(STOLEN, "the cursor was attached again, moved or deleted"))

    def on_detached(self) -> None:
        """The link is over."""
        self._is_over = True
