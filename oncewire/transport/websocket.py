"""AMQP over WebSocket (OASIS, AMQP WebSocket Binding 1.0): a WebSocket of aiohttp as one more transport of asyncio.

Binary messages carry AMQP's stream of bytes; where one of them ends says nothing. `WebSocketTransport` serves both
ends: `open_websocket` makes that of a client, the router's HTTP side that of a listener.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import aiohttp
from aiohttp import ClientWebSocketResponse, WSCloseCode, WSMsgType, web

from oncewire.transport.engine_protocol import EngineProtocol
from oncewire.transport.websocket_frames_core import FRAMES_IN_A_TURN, PIECE_BYTES, UNREAD_BYTES, FramesAsTheyCome

SUBPROTOCOL = "amqp"
MESSAGE_BYTES = 65_535
"""Longest message we write. Qpid JMS reads no longer ones unless it is configured to, and longer ones save nothing."""
LEAST_READ_BYTES = 1 << 20
"""Messages up to this are read, however small frames are: Qpid JMS puts as many frames into one as fill this."""
PASSED_ON_BYTES = PIECE_BYTES + 1
"""Longer messages are not read where `pass_on_frames` makes them."""
MAX_READ_BYTES = 1 << 31
"""No message may be longer, whatever the frame size: aiohttp counts in 32 bits."""
HIGH_WATER_BYTES = 1 << 16
"""More than this unwritten: `pause_writing` is called, unless the protocol sets another limit. As in asyncio."""
FLUSH_S = 10.0
"""After `close`, for what is unwritten and the peer's close: one that does nothing must not keep the connection."""

_WebSocket: TypeAlias = "ClientWebSocketResponse | web.WebSocketResponse"
_tasks: set[asyncio.Task[None]] = set()
"""Of the connections that clients have opened: the event loop alone would not keep them."""


def longest_message(max_frame_size: int) -> int:
    """Bytes of the longest message that is read: a frame of ours, or frames that the peer has put together."""
    return min(max(max_frame_size, LEAST_READ_BYTES) + MESSAGE_BYTES, MAX_READ_BYTES)


class WebSocketTransport(asyncio.Transport):
    """What an `asyncio.Protocol` is given in the place of a TCP transport; its buffers and limits work alike."""

    def __init__(
        self,
        websocket: _WebSocket,
        below: asyncio.Transport,
        protocol: asyncio.Protocol,
        peername: str | None = None,
        frames: FramesAsTheyCome | None = None,
    ) -> None:
        """Notify the protocol that it is connected; `run` carries its bytes.

        Args:
            websocket: open, with `autoping` off.
            below: the transport under it, TCP or TLS.
            protocol: of the connection.
            peername: who the peer is, where `below` cannot know: behind a proxy.
            frames: what the peer's frames go through; None = a library that keeps messages until they are whole.
        """
        super().__init__()
        self._websocket = websocket
        self._below = below
        self._protocol = protocol
        self._peername = peername
        self._frames = frames
        self._read = 0
        self._output: deque[bytes] = deque()
        self._unwritten = 0
        self._high = HIGH_WATER_BYTES
        self._low = HIGH_WATER_BYTES // 4
        self._is_behind = False
        self._has_output = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._is_closing = False
        self._flushing: asyncio.TimerHandle | None = None
        self._close_code, self._close_reason = int(WSCloseCode.OK), ""
        protocol.connection_made(self)

    async def run(self, release: Callable[[], Awaitable[object]] | None = None) -> None:
        """Carry bytes until the connection has ended, and notify the protocol, as every transport does.

        Args:
            release: frees what the WebSocket has, before the protocol is notified.
        """
        writing = asyncio.create_task(self._write_all())
        try:
            await self._read_all()
            if self._is_closing:
                await asyncio.wait([writing])
        finally:
            self._is_closing = True
            writing.cancel()
            await asyncio.wait([writing])
            if self._flushing is not None:
                self._flushing.cancel()
            self._below.close()
            if release is not None:
                await release()
            self._protocol.connection_lost(None)

    async def _read_all(self) -> None:
        in_turn = 0
        while True:
            message = await self._websocket.receive()
            if not self._may_read.is_set():
                await self._may_read.wait()
            if self._is_closing:  # as with TCP, nothing counts any more
                return
            kind = message.type
            if kind is WSMsgType.BINARY and message.data:
                self._read += len(message.data)
                self._protocol.data_received(message.data)
                in_turn += 1
                if in_turn >= FRAMES_IN_A_TURN:  # what waits here already is given without a turn of the event loop
                    in_turn = 0
                    await asyncio.sleep(0)
            elif kind in (WSMsgType.BINARY, WSMsgType.PING, WSMsgType.PONG):
                if kind is WSMsgType.PING:
                    with contextlib.suppress(ConnectionError):
                        await self._websocket.pong(message.data)
                await asyncio.sleep(0)  # others have a turn, whatever waits here already
            elif kind is WSMsgType.TEXT:
                self._end(WSCloseCode.UNSUPPORTED_DATA, "AMQP comes in binary messages")
            else:
                return

    async def _write_all(self) -> None:
        """Write what there is; the last of it is the WebSocket's own close."""
        try:
            while not (self._is_closing and not self._output):
                while self._output:
                    piece = self._output.popleft()
                    await self._websocket.send_bytes(piece)
                    self._unwritten -= len(piece)
                    if self._is_behind and self._unwritten <= self._low:
                        self._is_behind = False
                        self._protocol.resume_writing()
                if not self._is_closing:
                    self._has_output.clear()
                    await self._has_output.wait()
            await self._websocket.close(code=self._close_code, message=self._close_reason.encode())
        except ConnectionError:
            self.abort()
        except Exception:  # a fault of the protocol's
            self.abort()
            raise

    # --- see `asyncio.Transport` --------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview[Any]) -> None:
        """See `asyncio.Transport`."""
        if self._is_closing or not data:
            return
        whole = bytes(data)
        self._output.extend(whole[at : at + MESSAGE_BYTES] for at in range(0, len(whole), MESSAGE_BYTES))
        self._unwritten += len(data)
        self._has_output.set()
        if self._unwritten > self._high and not self._is_behind:
            self._is_behind = True
            self._protocol.pause_writing()

    def close(self) -> None:
        """Write what is unwritten, in bounded time, and end the connection."""
        self._end(WSCloseCode.OK, "")

    def _end(self, code: int, reason: str) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._close_code, self._close_reason = code, reason
            self._flushing = asyncio.get_running_loop().call_later(FLUSH_S, self._below.abort)
            self._has_output.set()
            self._may_read.set()

    def abort(self) -> None:
        """End the connection at once; what is unwritten is lost."""
        self._output.clear()
        self._unwritten = 0
        self._is_behind = False
        self._end(WSCloseCode.OK, "")
        self._below.abort()

    def is_closing(self) -> bool:
        """See `asyncio.Transport`."""
        return self._is_closing or self._below.is_closing()

    def pause_reading(self) -> None:
        """See `asyncio.Transport`; what the peer goes on sending waits in aiohttp's queue, and then in TCP."""
        if not self._is_closing:
            self._may_read.clear()

    def resume_reading(self) -> None:
        """See `asyncio.Transport`."""
        self._may_read.set()

    def is_reading(self) -> bool:
        """See `asyncio.Transport`."""
        return self._may_read.is_set() and not self._is_closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """See `asyncio.Transport`."""
        self._high = HIGH_WATER_BYTES if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        """See `asyncio.Transport`."""
        return self._unwritten + self._below.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """See `asyncio.Transport`."""
        if name == "peername" and self._peername is not None:
            return self._peername
        if name == UNREAD_BYTES and self._frames is not None:
            return self._frames.passed_on - self._read
        return self._below.get_extra_info(name, default)


# --- listeners --------------------------------------------------------------------------------------------------------


class _SharedPauses:
    """The transport under a library's protocol, which is read when neither the library nor we have paused it."""

    def __init__(self, below: asyncio.Transport) -> None:
        self._below = below
        self._is_paused_there = self._is_paused_here = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._below, name)

    def pause_reading(self) -> None:
        """The library has too much."""
        self._is_paused_there = True
        self._below.pause_reading()

    def resume_reading(self) -> None:
        """The library has room."""
        self._is_paused_there = False
        if not self._is_paused_here:
            self._below.resume_reading()

    def pause_here(self) -> None:
        """We have something that the library was not given yet."""
        self._is_paused_here = True
        if not self._below.is_closing():
            self._below.pause_reading()

    def resume_here(self) -> None:
        """We have nothing any more."""
        self._is_paused_here = False
        if not self._is_paused_there and not self._below.is_closing():
            self._below.resume_reading()


class _FilteredProtocol(asyncio.Protocol):
    """In front of the protocol of a library, which gets a client's frames as they come, so many in a turn."""

    def __init__(self, behind: asyncio.Protocol, frames: FramesAsTheyCome, pauses: _SharedPauses) -> None:
        self._frames = frames
        self._behind = behind
        self._pauses = pauses
        self._is_waiting = False
        """The rest of what has come is taken in the next turn of the event loop."""
        self.pause_writing = behind.pause_writing  # type: ignore[method-assign]
        self.resume_writing = behind.resume_writing  # type: ignore[method-assign]

    def data_received(self, data: bytes) -> None:
        taken = self._frames.take(data)
        if taken:
            self._behind.data_received(taken)
        if self._frames.has_more and not self._is_waiting:
            self._is_waiting = True
            self._pauses.pause_here()
            asyncio.get_running_loop().call_soon(self._go_on)

    def eof_received(self) -> bool | None:
        self._take_all()
        return self._behind.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._is_waiting = False
        self._behind.connection_lost(exc)

    def _go_on(self) -> None:
        if not self._is_waiting:
            return
        self._is_waiting = False
        self.data_received(b"")
        if not self._is_waiting:
            self._pauses.resume_here()

    def _take_all(self) -> None:
        """Nothing comes behind this, and it comes before the end."""
        self._is_waiting = False
        while self._frames.has_more:
            self._behind.data_received(self._frames.take(b""))


def pass_on_frames(below: asyncio.Transport) -> FramesAsTheyCome:
    """From now on the protocol of this transport gets the frames of a WebSocket as they come.

    A client sends nothing before it has the answer to its handshake (RFC 6455, 4.1). What has come already is not seen
    here, and `PASSED_ON_BYTES` is the most that it can make the library keep.
    """
    frames = FramesAsTheyCome()
    behind = below.get_protocol()
    assert isinstance(behind, asyncio.Protocol)
    pauses = _SharedPauses(below)
    behind.transport = pauses  # type: ignore[attr-defined]  # where aiohttp's protocols pause it
    below.set_protocol(_FilteredProtocol(behind, frames, pauses))
    return frames


# --- clients ----------------------------------------------------------------------------------------------------------


class _Opened(ClientWebSocketResponse):
    """Shows what is under it."""

    def is_of(self, url: str) -> bool:
        """Whether nobody has redirected us: a redirect could end TLS."""
        return not self._response.history and self._response.url.scheme == url.partition(":")[0]

    @property
    def below(self) -> asyncio.Transport | None:
        """The transport; None when it is closed already."""
        connection = self._response.connection
        return None if connection is None else connection.transport


async def open_websocket(protocol: EngineProtocol, url: str, timeout_s: float, tls: ssl.SSLContext | None) -> None:
    """Connect `protocol` by a WebSocket.

    Args:
        protocol: of a fresh engine.
        url: `ws` or `wss`, with host, port and path.
        timeout_s: for all of it.
        tls: for `wss`.

    Raises:
        OSError: there is no connection, or no AMQP behind it.
        TimeoutError: it took longer.
    """
    session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), ws_response_class=_Opened)
    try:
        async with asyncio.timeout(timeout_s):
            websocket = await session.ws_connect(
                url,
                protocols=(SUBPROTOCOL,),
                autoping=False,
                ssl=tls or True,
                max_msg_size=longest_message(protocol.engine.receive_frame_size),
            )
        assert isinstance(websocket, _Opened)
        below = websocket.below
        if below is None:
            raise ConnectionResetError("the connection was lost")
        if not websocket.is_of(url):
            raise ConnectionError("it redirects to another address; a client connects to those it was given only")
        if websocket.protocol != SUBPROTOCOL:
            raise ConnectionError("a WebSocket is there, but no AMQP on it: it does not have the sub-protocol amqp")
    except aiohttp.ClientError as error:
        await session.close()
        raise _cause(error) from None
    except BaseException:
        await session.close()
        raise
    running = asyncio.create_task(WebSocketTransport(websocket, below, protocol).run(session.close))
    _tasks.add(running)
    running.add_done_callback(_tasks.discard)


def _cause(error: aiohttp.ClientError) -> OSError:
    """What a TCP connection would have raised."""
    if isinstance(error, aiohttp.WSServerHandshakeError):
        reported = {
            401: "it wants a login over HTTP",
            403: "it does not admit this client",
            404: "nothing is at this path",
            503: "it takes no clients now",
        }.get(error.status, error.message)
        return ConnectionError(f"no AMQP over WebSocket there: HTTP status {error.status}, {reported}")
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        below: BaseException | None = error.certificate_error
    elif isinstance(error, aiohttp.ClientConnectorError):
        below = error.os_error
    else:
        below = error.__cause__ if isinstance(error.__cause__, OSError) else error
    return below if isinstance(below, OSError) else ConnectionError(str(error) or type(error).__name__)
