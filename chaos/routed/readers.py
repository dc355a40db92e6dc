"""Simulated readers of a journal: with a map (S-a), with a cursor only, and with a position of their own."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

from bridges.journal.model import AtTime, Place, Start
from bridges.store.amqp_errors import PRECONDITION_FAILED
from chaos.routed.clients import SimClient
from chaos.routed.journal_judge import JournalJudge, Track
from oncewire.wire import (
    ACCEPTED,
    RELEASED,
    Accepted,
    DeliveryReceived,
    Described,
    DispositionReceived,
    Event,
    LinkDetached,
    LocalProtocolError,
    ReceiverSettleMode,
    SenderSettleMode,
    Source,
    TerminusDurability,
    Timestamp,
    vocabulary,
)

ADDRESS = "journal://log"
_POSITION_BYTES = 8


def position_in(tag: bytes) -> int:
    """The position that a delivery-tag ends with (J-22)."""
    return int.from_bytes(tag[-_POSITION_BYTES:], "big")


class SimReader(SimClient):
    """What readers share: where they start, and credit."""

    has_cursor = True

    def __init__(self, name: str, judge: JournalJudge, random: Random, start: Start) -> None:
        super().__init__(name, judge, random)
        self.journal = judge
        self.start = start
        self.is_calm = False
        self.is_late = False
        """Its cursor must be moved: the next message was trimmed (J-24)."""
        self.track = Track(name, f"|{name}|{self.link_name}" if self.has_cursor else "", is_once=True)

    @property
    def is_done(self) -> bool:
        """Whether it has read everything, and the journal knows it."""
        if self.is_late or self.track.high is None or self.journal.misses(self.track):
            return False
        if not self.has_cursor:
            return True
        cursor = self.journal.cursor_of(self.track)
        return cursor is not None and cursor.low == self.journal.state.last

    def _source(self) -> Source:
        if self.attaches == 1:
            self.track.low = self.journal.low_of(self.start)
        value: Any = self.start
        if isinstance(value, AtTime):
            value = Timestamp(value.us // 1000)
        elif isinstance(value, Place):
            value = value.value
        name = vocabulary.STREAM_OFFSET_SPEC
        durable = TerminusDurability.UNSETTLED_STATE if self.has_cursor else TerminusDurability.NONE
        return Source(address=ADDRESS, durable=durable, filter={name: Described(name, value)})

    def on_attached(self) -> None:
        """The attach is answered: it starts no later than here."""
        if self.track.high is None or (self.track.newest is None and not self.has_cursor):
            self.track.high = self.journal.low_of(self.start)

    def on_ended(self, event: LinkDetached) -> None:
        """The link is over."""
        if event.error is not None and event.error.condition == PRECONDITION_FAILED:
            self.journal.on_notified(self.track)
            self.on_late()

    def on_late(self) -> None:
        """J-24: its next message is gone."""
        self.is_late = True

    def attach(self) -> None:
        """Attach, unless it waits for an operator."""
        if not self.is_late:
            super().attach()

    def _grant(self) -> None:
        if self.link.credit < 3:
            self.link.grant(self.random.randint(1, 6), drain=self.random.random() < 0.2)


class OwnReader(SimReader):
    """Keeps its next position beside what it does, and states it at each attach (J-20)."""

    has_cursor = False

    def _attach(self, session: Any) -> Any:
        is_settled = self.random.random() < 0.5
        return session.attach_receiver(
            self.link_name,
            source=self._source(),
            rcv_settle_mode=ReceiverSettleMode.FIRST,
            snd_settle_mode=SenderSettleMode.SETTLED if is_settled else SenderSettleMode.UNSETTLED,
        )

    def on_event(self, event: Event) -> None:
        """Messages."""
        if isinstance(event, DeliveryReceived):
            position = position_in(event.tag)
            self.journal.on_arrived(self.track, position, event.payload)
            self.journal.on_read(self.track, position)
            self.start = position + 1
            if not event.settled:
                with suppress(LocalProtocolError):  # what came behind it has ended the link
                    event.link.dispose([event.delivery_id], ACCEPTED, self.random.random() < 0.5)

    def on_late(self) -> None:
        """It goes on with what is there."""
        self.start = Place.FIRST

    def act(self) -> None:
        """Grant."""
        if self.is_ready and self.link.is_attached and not self.link.credit:
            self._grant()


class CursorReader(SimReader):
    """Has a cursor and no map: each message at least once."""

    def __init__(self, name: str, judge: JournalJudge, random: Random, start: Start) -> None:
        super().__init__(name, judge, random, start)
        self.track.is_once = False
        self._open: dict[int, int] = {}
        self._asked: dict[int, int] = {}
        self._released: set[int] = set()

    def _attach(self, session: Any) -> Any:
        self._open.clear()
        self._asked.clear()
        self._released.clear()
        return session.attach_receiver(self.link_name, source=self._source(), rcv_settle_mode=ReceiverSettleMode.FIRST)

    def on_event(self, event: Event) -> None:
        """Messages, and answers."""
        if isinstance(event, DeliveryReceived):
            position = position_in(event.tag)
            self.journal.on_arrived(self.track, position, event.payload)
            if position not in self._released:
                self.judge.on_order(f"{self.name}.{self.attaches}", position)
            self.journal.on_read(self.track, position)
            self._open[event.delivery_id] = position
            self.journal.on_under_way(self.track, len(self._open))
        elif isinstance(event, DispositionReceived) and event.settled:
            for number in event.ids:
                if number in self._asked:
                    self.journal.on_settled(self.track, self._asked.pop(number))

    def act(self) -> None:
        """Grant, or state an outcome."""
        if not self.is_ready or not self.link.is_attached:
            return
        if self._open and self.random.random() < 0.7:
            number = self.random.choice(sorted(self._open))
            position, is_settled = self._open.pop(number), self.random.random() < 0.3
            if self.random.random() < 0.1:
                self._released.add(position)
                self.track.seen.discard(position)
                self.link.dispose([number], RELEASED, is_settled)
                return
            if not is_settled:
                self._asked[number] = position
            self.link.dispose([number], ACCEPTED, is_settled)
        else:
            self._grant()

    def leave(self) -> None:
        """End the cursor, and begin anew with what comes next."""
        if self.is_ready and self.link.is_attached:
            self.link.detach(True)
            self.is_ready, self.start = False, Place.NEXT
            self.journal.on_closed(self.track)


class Thief(SimClient):
    """Attaches another reader's link for a moment, and reads nothing (J-23)."""

    def __init__(self, victim: SimReader) -> None:
        super().__init__(victim.name, victim.judge, victim.random)
        self._victim = victim

    def attach(self) -> None:
        """Take the cursor, if there is one."""
        if self._victim.track.high is not None:
            super().attach()

    def _attach(self, session: Any) -> Any:
        source = Source(address=ADDRESS, durable=TerminusDurability.UNSETTLED_STATE)
        return session.attach_receiver(self.link_name, source=source, rcv_settle_mode=ReceiverSettleMode.FIRST)

    def act(self) -> None:
        """Leave."""
        if self.is_ready and self.link.is_attached:
            self.detach()


@dataclass(slots=True)
class Entry:
    """What a map has of one delivery."""

    is_done: bool = False
    has_body: bool = False


class MapReader(SimReader):
    """Keeps what came in a map until it is settled, over crashes of its own: each message once (S-a)."""

    def __init__(self, name: str, judge: JournalJudge, random: Random, start: Start) -> None:
        super().__init__(name, judge, random, start)
        self.map: dict[bytes, Entry] = {}
        self._numbers: dict[bytes, int] = {}
        """Of deliveries of this attach whose outcome is not stated."""

    @property
    def is_done(self) -> bool:
        """Whether it has read everything, the journal knows it, and it knows that."""
        return not self.map and super().is_done

    def _attach(self, session: Any) -> Any:
        self._numbers.clear()
        unsettled = {tag: ACCEPTED if entry.is_done else None for tag, entry in self.map.items()}
        return session.attach_receiver(
            self.link_name, source=self._source(), rcv_settle_mode=ReceiverSettleMode.SECOND, unsettled=unsettled
        )

    def on_attached(self) -> None:
        """What the answer leaves out is settled."""
        super().on_attached()
        answered = self.link.remote_attach.unsettled or {}
        for tag in [each for each in self.map if each in answered and self.map[each].is_done]:
            self.journal.on_not_stored(self.track, position_in(tag))
        for tag in [each for each in self.map if each not in answered]:
            self._leave(tag)

    def _leave(self, tag: bytes) -> None:
        """The journal has settled it."""
        entry, position = self.map.pop(tag), position_in(tag)
        self._numbers.pop(tag, None)
        if entry.is_done:
            self.journal.on_settled(self.track, position)
            return
        self.journal.on_left_out(self.track, position)
        if entry.has_body:
            self.journal.on_read(self.track, position)

    def crash(self) -> None:
        """What was not done is lost with the process, but for the tags of the first ones."""
        waiting = [tag for tag, entry in self.map.items() if not entry.is_done]
        kept = self.random.randint(0, len(waiting))
        for tag in waiting[:kept]:
            self.map[tag].has_body = False
        for tag in waiting[kept:]:
            del self.map[tag]

    def on_event(self, event: Event) -> None:
        """Messages, and answers."""
        if isinstance(event, DeliveryReceived):
            self._take(event)
        elif isinstance(event, DispositionReceived) and event.settled and isinstance(event.state, Accepted):
            for tag in event.tags:
                if tag in self.map:
                    self._leave(tag)

    def _take(self, event: DeliveryReceived) -> None:
        tag = bytes(event.tag)
        if event.aborted:
            if tag in self.map:
                self._leave(tag)
            return
        self.journal.on_arrived(self.track, position_in(tag), event.payload)
        self.journal.on_resumed(self.track, position_in(tag), event.resume, tag in self.map)
        self.map.setdefault(tag, Entry()).has_body = True
        self._numbers[tag] = event.delivery_id
        self.journal.on_under_way(self.track, len(self._numbers))

    def act(self) -> None:
        """Do what the oldest message asks for, state an outcome, or grant."""
        if not self.is_ready or not self.link.is_attached:
            return
        oldest = next((tag for tag, entry in self.map.items() if not entry.is_done), None)
        done = [tag for tag in self._numbers if self.map[tag].is_done]
        if oldest is not None and self.map[oldest].has_body and self.random.random() < 0.5:
            self._process(oldest)
        elif done and self.random.random() < 0.7:
            tag = self.random.choice(done)
            self.link.dispose([self._numbers.pop(tag)], ACCEPTED, False)
        else:
            self._grant()

    def _process(self, tag: bytes) -> None:
        if tag in self._numbers and not self.is_calm and self.random.random() < 0.1:
            self.journal.on_put_back(self.track, position_in(tag))
            del self.map[tag]
            self.link.dispose([self._numbers.pop(tag)], RELEASED, self.random.random() < 0.5)
            return
        self.journal.on_read(self.track, position_in(tag))
        self.map[tag].is_done = True
