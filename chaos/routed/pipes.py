"""Connections of the simulated world: two engines, and the bytes between them."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from oncewire.wire import Connection, Event, Role

FRAME_SIZE = 1024
IDLE_NEVER = 0


class End:
    """One end of a connection: an engine, and who takes its events."""

    def __init__(self, engine: Connection, on_event: Callable[[Event], None], on_lost: Callable[[], None]) -> None:
        self.engine = engine
        self.on_event = on_event
        self.on_lost = on_lost
        self.after: Callable[[], None] = lambda: None
        """Called when a read was taken, before what it led to is written."""
        self.unread = b""
        self.other: End | None = None

    def take(self, size: int) -> None:
        """Read so many bytes."""
        data, self.unread = self.unread[:size], self.unread[size:]
        self.engine.receive_data(data, 0.0)
        for event in self.engine.events():
            self.on_event(event)
        self.after()


class Pipes:
    """All connections of a world."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._ends: list[End] = []

    def connect(self, client: End, server: End) -> None:
        """Join two ends; the client opens."""
        client.other, server.other = server, client
        self._ends += [client, server]
        client.engine.open()

    def cut(self, end: End) -> None:
        """Lose the connection of an end without a word; both notice."""
        for each in (end, end.other):
            if each is not None and each in self._ends:
                self._ends.remove(each)
                each.engine.receive_eof(0.0)
                for event in each.engine.events():
                    each.on_event(event)
                each.on_lost()

    def is_open(self, end: End) -> bool:
        """Whether the connection of an end is there."""
        return end in self._ends

    def write(self) -> None:
        """Take what the engines have to say."""
        for end in self._ends:
            data = end.engine.data_to_send()
            if data and end.other is not None:
                end.other.unread += data

    def step(self) -> bool:
        """Have one end read something; whether there was anything to read."""
        waiting = [end for end in self._ends if end.unread]
        if not waiting:
            return False
        end = self._random.choice(waiting)
        end.take(self._random.choice((len(end.unread), len(end.unread), 40, 300)))
        return True

    def pick(self) -> End | None:
        """Some end, for a fault."""
        return self._random.choice(self._ends) if self._ends else None


def engine(role: Role, name: str, **options: Any) -> Connection:
    """An engine with small frames, and without a clock."""
    return Connection(role, container_id=name, max_frame_size=FRAME_SIZE, idle_time_out_ms=IDLE_NEVER, **options)
