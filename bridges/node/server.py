"""Serves a node over TCP and unix sockets: one request after the other on each connection."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import ssl
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any

from bridges.doors.gates import HELLO_S
from bridges.node.door import PIPELINE, Room, node_doors
from bridges.node.errors import BadRequest, InternalError, NodeError, NodeUnavailable, NotAuthenticated, StorageError
from bridges.node.frames import (
    HEAD,
    MAX_HEADER_BYTES,
    MAX_HELLO_BYTES,
    NONCE_BYTES,
    check_proof,
    decode_head,
    decode_header,
    encode_frame,
    error_header,
    proof,
)
from bridges.node.node import BridgeNode
from bridges.node.requests import Operations
from oncewire.client import ClientError
from oncewire.transport.accepting import Listener, bound, bound_at, port_of

MAX_CONNECTIONS = 1024
"""A task slot of the cluster uses one; each may hold a body of 64 MiB for a moment."""
READ_AHEAD_BYTES = 1 << 16
"""What is read of a connection before somebody asks for it, twice: nobody without the secret is asked for more."""
REQUEST_S = 60.0
"""How long the rest of a request may take after its first byte."""


class Server:
    """Listens and answers.

    Args:
        node: what is served.
        secret: what both ends know.
    """

    def __init__(self, node: BridgeNode, secret: bytes) -> None:
        self._operations = Operations(node)
        self._secret = secret
        self._listeners: list[Listener] = []
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._known = 0
        self.doors = node_doors()
        self.room = Room()
        self._unix_path: Path | None = None
        self.requests: dict[str, int] = dict.fromkeys([*self._operations.single, "range"], 0)
        self.errors: dict[str, int] = {}

    @property
    def connection_count(self) -> int:
        """Connections that are open."""
        return len(self._connections)

    async def listen_tcp(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> int:
        """Listen on an address, without TLS if `tls` is None; returns the port.

        Raises:
            StorageError: it cannot be had.
        """
        try:
            sockets = await bound(host, port)
        except OSError as error:
            raise StorageError(
                f"the node cannot listen on {host}:{port}",
                _reason(error),
                "give listen.host and listen.port an address of this machine that is free (0 = any port)",
            ) from error
        self._listeners.append(Listener(sockets, self._protocol, tls, self.doors.gates[PIPELINE]))
        return port_of(self._listeners[-1])

    async def listen_unix(self, path: Path) -> None:
        """Listen on a socket file that only this user may open; one without a server is replaced.

        Raises:
            StorageError: it cannot be made, or another node serves it.
        """
        await _remove_stale(path)
        before = os.umask(0o177)
        try:
            listening = bound_at(str(path))
        except OSError as error:
            raise StorageError(
                f"the node cannot listen on {path}", _reason(error), "give listen.unix another path"
            ) from error
        finally:
            os.umask(before)
        self._listeners.append(Listener([listening], self._protocol, None, self.doors.gates[PIPELINE]))
        self._unix_path = path

    async def stop(self) -> None:
        """Stop listening and drop connections."""
        for listener in self._listeners:
            listener.close()
        for task in list(self._connections):
            task.cancel()
        if self._connections:
            await asyncio.wait(list(self._connections))
        if self._unix_path is not None:
            self._unix_path.unlink(missing_ok=True)

    # --- one connection -----------------------------------------------------------------------------------------------

    def _protocol(self) -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(asyncio.StreamReader(READ_AHEAD_BYTES), self._serve)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections[task] = writer
        try:
            await self._converse(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, TimeoutError):
            pass  # the client disconnected, or stopped in the middle of a request
        except asyncio.CancelledError:
            pass  # the server stops
        except Exception as error:  # noqa: BLE001  (a fault of ours ends this connection)
            self.doors.notify_fault("a connection", error)
        finally:
            del self._connections[task]
            writer.close()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            try:
                async with asyncio.timeout(HELLO_S):
                    await self._greet(reader, writer)
            except NotAuthenticated as error:
                self.doors.login_failed(PIPELINE, _host_of(writer), error.why)
                raise
            except NodeError as error:
                self.doors.connection_refused(PIPELINE, _host_of(writer), error.why)
                raise
            self.doors.gates[PIPELINE].know(writer.transport.get_protocol())
            self._known += 1
            try:
                await self._take_requests(reader, writer)
            finally:
                self._known -= 1
        except NodeError as error:  # what is no request ends the connection: its next byte has no meaning
            self._count(error)
            writer.write(encode_frame(error_header(error)))
            with suppress(ConnectionError):
                await writer.drain()

    async def _take_requests(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readexactly(HEAD.size)
            async with self.room.hold(sum(decode_head(head))):
                async with asyncio.timeout(REQUEST_S):
                    header, body = await _read_rest(reader, head, MAX_HEADER_BYTES)
                await self._answer(header, body, writer)
                del header, body  # the next request may be long in coming

    async def _greet(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonce = secrets.token_hex(NONCE_BYTES)
        writer.write(encode_frame({"node": "oncewire", "version": 1, "nonce": nonce}))
        hello, _ = await _read_rest(reader, await reader.readexactly(HEAD.size), MAX_HELLO_BYTES)
        theirs = hello.get("nonce")
        if not isinstance(theirs, str) or not NONCE_BYTES <= len(theirs) <= MAX_HELLO_BYTES:
            raise BadRequest("a hello cannot be used", "it has no nonce", "use the client of this node")
        check_proof(self._secret, "client", nonce, theirs, hello.get("proof"))
        if self._known >= MAX_CONNECTIONS:
            raise NodeUnavailable("the node takes no more connections", f"it has {MAX_CONNECTIONS}", "try again later")
        writer.write(encode_frame({"ok": True, "proof": proof(self._secret, "server", nonce, theirs)}))

    async def _answer(self, header: dict[str, Any], body: bytes, writer: asyncio.StreamWriter) -> None:
        name = header.get("op")
        try:
            if name == "range":
                self.requests["range"] += 1
                async for rows in self._operations.range(header):
                    writer.write(encode_frame({"ok": True, "more": True}, rows))
                    await writer.drain()
                answer: dict[str, object] = {}
            else:
                operation = self._operations.single.get(name) if isinstance(name, str) else None
                if operation is None:
                    raise BadRequest(
                        f"there is no operation {name!r}",
                        f"this node knows {', '.join(self.requests)}",
                        "use the client that belongs to this node",
                    )
                assert isinstance(name, str)
                self.requests[name] += 1
                answer, _ = await operation(header, body)
            writer.write(encode_frame({"ok": True, **answer}))
        except NodeError as error:
            self._count(error)
            writer.write(encode_frame(error_header(error)))
        except ClientError as error:
            self._fail(BadRequest(error.what, error.why, error.fix), writer)
        except (ConnectionError, TimeoutError):
            raise
        except Exception as error:  # noqa: BLE001  (a fault of ours ends this request)
            self.doors.notify_fault(f"the request {name}", error)
            fault = InternalError(f"the request {name} failed", repr(error), "see the node's log, and report this")
            self._fail(fault, writer)
        await writer.drain()

    def _fail(self, error: NodeError, writer: asyncio.StreamWriter) -> None:
        self._count(error)
        writer.write(encode_frame(error_header(error)))

    def _count(self, error: NodeError) -> None:
        self.errors[error.code] = self.errors.get(error.code, 0) + 1


def _host_of(writer: asyncio.StreamWriter) -> str:
    """The address of the other end; empty for a socket of this machine."""
    peer = writer.get_extra_info("peername")
    return str(peer[0]) if isinstance(peer, tuple) else ""


def _mode_of(path: Path) -> int | None:
    """What kind of file there is; None = none."""
    try:
        return path.lstat().st_mode
    except OSError:
        return None


def _unlink(path: Path) -> None:
    path.unlink(missing_ok=True)


async def _remove_stale(path: Path) -> None:
    """Remove a socket file without a server.

    Raises:
        StorageError: it has a server, or it is another kind of file.
    """
    mode = _mode_of(path)
    if mode is None:
        return
    is_socket = stat.S_ISSOCK(mode)
    if is_socket:
        try:
            _, writer = await asyncio.open_unix_connection(path)
        except OSError:
            _unlink(path)
            return
        writer.close()
    raise StorageError(
        f"the node cannot listen on {path}",
        "another program listens there" if is_socket else "there is a file that is no socket",
        "give listen.unix another path",
    )


async def _read_rest(reader: asyncio.StreamReader, head: bytes, max_header: int) -> tuple[dict[str, Any], bytes]:
    header_size, body_size = decode_head(head, max_header=max_header)
    if max_header == MAX_HELLO_BYTES and body_size:
        raise BadRequest("a hello cannot be used", "it has a body", "use the client of this node")
    header = decode_header(await reader.readexactly(header_size))
    return header, await reader.readexactly(body_size)


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the address is in use"
    return error.strerror or str(error)
