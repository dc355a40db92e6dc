"""An event loop without sockets: connections in memory, and time that passes only when nothing is left to do.

Listening sockets are real, for routers open them, but nobody connects to them: `create_connection` joins two protocols.
"""
# ruff: noqa: SLF001  (the two ends of a connection know each other)

from __future__ import annotations

import asyncio
import errno
import socket
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

T = TypeVar("T")

HIGH_WATER_BYTES = 1 << 16
READ_BYTES = 1 << 18
"""Of one read, as uvloop has it."""


class Stuck(AssertionError):
    """Every task waits for something that nothing is going to bring about."""


class MemoryTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, loop: MemoryLoop, protocol: asyncio.BaseProtocol, port: int) -> None:
        super().__init__()
        assert isinstance(protocol, asyncio.Protocol)
        self.peer: MemoryTransport | None = None
        self.protocol: asyncio.Protocol = protocol
        self._loop = loop
        self._port = port
        self._unread: deque[bytes] = deque()
        self._unread_bytes = 0
        self._is_ended = False
        """The peer sends no more."""
        self._is_reading = True
        self._is_scheduled = False
        self._is_closing = self._is_lost = False
        self._high = HIGH_WATER_BYTES
        self._is_behind = False

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """See `asyncio.Transport`."""
        peer = self.peer
        if self._is_closing or peer is None or not data:
            return
        peer._unread.append(bytes(data))
        peer._unread_bytes += len(data)
        peer._schedule()
        if peer._unread_bytes > self._high and not self._is_behind:
            self._is_behind = True
            self.protocol.pause_writing()

    def _schedule(self) -> None:
        has_news = bool(self._unread) or self._is_ended
        if has_news and self._is_reading and not self._is_scheduled and not self._is_closing:
            self._is_scheduled = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._is_scheduled = False
        if self._is_closing or not self._is_reading:
            return
        if self._unread:
            data = self._unread.popleft()
            while self._unread and len(data) + len(self._unread[0]) <= READ_BYTES:
                data += self._unread.popleft()
            self._unread_bytes -= len(data)
            self.protocol.data_received(data)
            self._note_room()
        elif self._is_ended and not self.protocol.eof_received():
            self.close()
            return
        if self._unread or self._is_ended:
            self._schedule()

    def _note_room(self) -> None:
        peer = self.peer
        if peer is not None and peer._is_behind and self._unread_bytes <= peer._high // 4:
            peer._is_behind = False
            if not peer._is_closing:
                peer.protocol.resume_writing()

    def close(self) -> None:
        """See `asyncio.Transport`; what is unwritten still goes out."""
        if not self._is_closing:
            self._is_closing = True
            self._unread.clear()
            self._loop.call_soon(self._lose)

    def abort(self) -> None:
        """See `asyncio.Transport`."""
        self.close()

    def _lose(self) -> None:
        if self._is_lost:
            return
        self._is_lost = True
        peer, self.peer = self.peer, None
        if peer is not None:
            peer._is_ended = True
            peer._schedule()
        self.protocol.connection_lost(None)

    def is_closing(self) -> bool:
        """See `asyncio.Transport`."""
        return self._is_closing

    def pause_reading(self) -> None:
        """See `asyncio.Transport`."""
        self._is_reading = False

    def resume_reading(self) -> None:
        """See `asyncio.Transport`."""
        self._is_reading = True
        self._schedule()

    def is_reading(self) -> bool:
        """See `asyncio.Transport`."""
        return self._is_reading and not self._is_closing

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """See `asyncio.Transport`."""
        assert isinstance(protocol, asyncio.Protocol)
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """See `asyncio.Transport`."""
        return self.protocol

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See `asyncio.Transport`."""
        self._high = HIGH_WATER_BYTES if high is None else high

    def get_write_buffer_size(self) -> int:
        """See `asyncio.Transport`."""
        return 0 if self.peer is None else self.peer._unread_bytes

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See `asyncio.Transport`."""
        return ("127.0.0.1", self._port) if name in ("peername", "sockname") else default


class MemoryLoop(asyncio.BaseEventLoop):
    """See the module. Attributes: `trouble`, exceptions nobody took."""

    def __init__(self) -> None:
        super().__init__()
        self.trouble: list[BaseException | str] = []
        self._now = 0.0
        self._listeners: dict[int, Any] = {}
        self._next_port = 40_000
        self._selector = self  # BaseEventLoop asks it once in each turn
        self.set_exception_handler(lambda _loop, found: self.trouble.append(found.get("exception") or found["message"]))

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._now

    def select(self, timeout: float | None) -> list[Any]:
        """With nothing ready let time pass."""
        if timeout is None:
            raise Stuck("every task waits, and nothing is going to happen")
        self._now += timeout
        return []

    def _process_events(self, event_list: object) -> None:
        """There are none."""

    def _write_to_self(self) -> None:
        """There is nobody to wake."""

    def add_reader(self, *args: Any) -> None:  # type: ignore[override]  # the real one is generic over its arguments
        """Note a listening socket; `callback` is a method of who accepts its connections."""
        fd, callback, *_ = args
        assert isinstance(fd, socket.socket)
        self._listeners[fd.getsockname()[1]] = getattr(callback, "__self__")  # noqa: B009  (mypy knows no such name)

    def remove_reader(self, fd: Any) -> bool:
        """See `asyncio`."""
        return self._listeners.pop(fd.getsockname()[1], None) is not None

    def run_in_executor(self, *args: Any) -> Any:  # type: ignore[override]  # the real one is generic over its result
        """Do it at once."""
        _executor, func, *arguments = args
        future: asyncio.Future[Any] = self.create_future()
        future.set_result(func(*arguments))
        return future

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        """Addresses of this machine only."""
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (host, port))]

    async def create_connection(self, *args: Any, **_: Any) -> Any:
        """Join a protocol with one of whoever listens at that port."""
        factory, _host, port = args
        listener = self._listeners.get(port)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "connection refused")
        self._next_port = 40_000 + (self._next_port + 1) % 20_000
        near = MemoryTransport(self, factory(), port)
        far = MemoryTransport(self, listener._factory(), self._next_port)  # in the place of its sockets
        near.peer, far.peer = far, near
        near.protocol.connection_made(near)
        far.protocol.connection_made(far)
        return near, near.protocol


@contextmanager
def _time_of(loop: MemoryLoop) -> Iterator[None]:
    with patch.object(time, "monotonic", loop.time):
        yield


def run_in_memory(main: Callable[[MemoryLoop], Coroutine[Any, Any, T]]) -> T:
    """Run `main(loop)`; what nobody took of exceptions is raised.

    Raises:
        Stuck: it waits for what never comes.
    """
    loop = MemoryLoop()
    with _time_of(loop), asyncio.Runner(loop_factory=lambda: loop) as runner:
        result = runner.run(main(loop))
    for error in loop.trouble:
        raise error if isinstance(error, BaseException) else AssertionError(error)
    return result
