"""A real subscriber in a thread of its own, for tests of the sink: it accepts what it gets and writes it down."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from bridges.node.identity import identity_of
from oncewire.client import connect
from oncewire.client.transactions.sequence_header import SequenceHeader, read_header
from oncewire.wire import Message, decode_message

PATIENCE_S = 300.0
"""Seconds that no delivery needs."""
_COUNTER = itertools.count()


@dataclass(frozen=True, slots=True)
class Received:
    """One delivery."""

    identity: tuple[str, int]
    message: Message
    header: SequenceHeader

    @property
    def text(self) -> str:
        """The body."""
        assert isinstance(self.message.body, bytes)
        return self.message.body.decode()


class Recorder:
    """Subscribes to a topic for the time of a `with` block. `held` = accept nothing until it is cleared."""

    def __init__(self, url: str, topic: str, *, held: bool = False) -> None:
        self._url = url
        self._topic = topic
        self._lock = threading.Condition()
        self._received: list[Received] = []
        self._loop = asyncio.new_event_loop()
        self._may_accept = asyncio.Event()
        if not held:
            self._may_accept.set()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="recorder", daemon=True)

    def __enter__(self) -> Recorder:
        self._thread.start()
        assert self._ready.wait(PATIENCE_S), "the subscriber is not confirmed"
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    @property
    def received(self) -> list[Received]:
        """What has come so far."""
        with self._lock:
            return list(self._received)

    @property
    def texts(self) -> list[str]:
        """The bodies of what has come so far."""
        return [delivery.text for delivery in self.received]

    def release(self) -> None:
        """Accept from now on."""
        self._loop.call_soon_threadsafe(self._may_accept.set)

    def wait(self, condition: Callable[[list[Received]], bool]) -> list[Received]:
        """Wait until what has come fulfils a condition; returns it."""
        ends_at = time.monotonic() + PATIENCE_S
        with self._lock:
            while not condition(self._received):
                left_s = ends_at - time.monotonic()
                assert left_s > 0, f"{len(self._received)} messages came, the last is {self._received[-1:]}"
                self._lock.wait(left_s)
            return list(self._received)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._task = self._loop.create_task(self._receive())
        try:
            self._loop.run_until_complete(self._task)
        except asyncio.CancelledError:
            pass
        finally:
            self._loop.close()

    async def _receive(self) -> None:
        async with connect(self._url, container_id=f"recorder-{next(_COUNTER)}") as client:
            subscriber = await client.subscriber(self._topic)
            self._ready.set()
            async for delivery in subscriber:
                identity = identity_of(delivery.payload)
                header = read_header(decode_message(delivery.payload).annotations)
                assert identity is not None
                assert header is not None
                found = Received((identity.producer, identity.sequence), delivery.message, header)
                with self._lock:
                    self._received.append(found)
                    self._lock.notify_all()
                await self._may_accept.wait()
                await delivery.accept()
