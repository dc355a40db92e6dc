"""How pipelines reach a node: over a socket, or embedded in their own process. Calls block; made for Spark's workers.

Neither kind opens anything when it is made, and both can be pickled: connections and threads start with the first call
that needs them, in the process that makes it.
"""

from __future__ import annotations

import secrets
import socket
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from bridges.doors.tls import NO_FILES, TlsFiles
from bridges.node.addresses import context_of, parse_address
from bridges.node.arrow_bodies import decode_batches, range_schema
from bridges.node.errors import BadRequest, NodeError, NodeUnavailable, NotAuthenticated
from bridges.node.frames import (
    HEAD,
    MIN_SECRET_BYTES,
    NONCE_BYTES,
    check_proof,
    decode_head,
    decode_header,
    encode_frame,
    proof,
    raise_error,
)
from bridges.node.gaps import Gap
from bridges.node.interface import RETRY_CAP_S, RETRY_FIRST_S, Commit, Node, Offsets
from bridges.node.model import AS_USUAL, Publishing, StagedPart, Writer
from oncewire.client.isolation import Isolation
from oncewire.transport.tls import fault_of

T = TypeVar("T", Offsets, Commit)

CONNECT_S = 10.0
"""How long to wait for a node's first answer."""
ANSWER_S = 120.0
"""How long a reply may take: the node waits 30 s at most before it replies."""
WAIT_S = 20.0
"""One request's share of a longer wait."""


class RemoteNode(Node):
    """A node behind a socket.

    Every request can be made again without harm, so one that broke off is repeated on a new connection until
    `patience_s` is over.

    Args:
        address: ``tcp://HOST:PORT``, ``tls://HOST:PORT`` or ``unix:///PATH``.
        secret: what both ends know.
        patience_s: how long to wait for an unreachable node (for example during a restart).
        tls: for tls://: whom to trust and who to be, as files or as a context, with which it cannot be pickled.

    Raises:
        BadRequest: address, secret or files cannot be used.
    """

    def __init__(
        self, address: str, secret: bytes, *, patience_s: float = 60.0, tls: TlsFiles | ssl.SSLContext = NO_FILES
    ) -> None:
        self._address = address
        self._target = parse_address(address)
        check_secret(secret)
        if tls != NO_FILES and not self._target.is_tls:
            raise BadRequest(
                "the TLS settings cannot be used", f"{address} does not ask for TLS", "write tls://HOST:PORT"
            )
        self._tls = tls
        self._context = context_of(tls) if self._target.is_tls else None
        self._secret = secret
        self._patience_s = patience_s
        self._socket: socket.socket | None = None
        self._is_reading = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_socket": None, "_is_reading": False, "_context": None}

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        self._is_reading = False

    def subscribe(self, subscription: str, topics: Sequence[str], isolation: Isolation | None = None) -> str:
        """See Node."""
        asked: dict[str, object] = {"op": "subscribe", "subscription": subscription, "topics": list(topics)}
        if isolation is not None:
            asked["isolation"] = isolation.value
        answer = self._ask(asked)
        return str(answer["journal"])

    def offsets(
        self, subscription: str, low: int | None = None, *, max_rows: int | None = None, max_bytes: int | None = None
    ) -> Offsets:
        """See Node."""
        answer = self._ask(
            {"op": "offsets", "subscription": subscription, "low": low, "max_rows": max_rows, "max_bytes": max_bytes}
        )
        return _read(Offsets, {**answer, "gaps": tuple(Gap(*gap) for gap in answer["gaps"])})

    def initial_offset(self, subscription: str, start: str | int) -> int:
        """See Node."""
        return int(self._ask({"op": "initial", "subscription": subscription, "start": start})["position"])

    def choose_end(self, subscription: str, start: int, stop: int) -> int:
        """See Node."""
        return int(self._ask({"op": "end", "subscription": subscription, "start": start, "stop": stop})["stop"])

    def read_range(
        self, subscription: str, low: int, high: int, *, journal: str | None = None, query: str | None = None
    ) -> Iterator[Any]:
        """See Node. An interrupted read resumes behind the last batch received.

        Nothing but `trim` can be asked until it is read to its end or closed: its answers are still on their way.
        """
        request = {"op": "range", "subscription": subscription, "high": high, "journal": journal, "query": query}
        ends_at = time.monotonic() + self._patience_s
        pause_s = RETRY_FIRST_S
        schema = range_schema()
        while True:
            try:
                self._send({**request, "low": low}, b"")
                self._is_reading = True
                while True:
                    header, body = self._receive()
                    if not header.get("more"):
                        self._is_reading = False
                        return
                    for batch in decode_batches(body, schema):
                        low += batch.num_rows
                        yield batch
                    ends_at = time.monotonic() + self._patience_s
            except NodeUnavailable:
                self.close()
                if time.monotonic() + pause_s >= ends_at:
                    raise
            except NodeError:  # an error ends the answer
                self._is_reading = False
                raise
            except GeneratorExit:  # the rest of the answer is on its way: this connection cannot be used again
                self.close()
                raise
            time.sleep(pause_s)
            pause_s = min(RETRY_CAP_S, 2 * pause_s)

    def trim(self, subscription: str, position: int, query: str | None = None) -> None:
        """See Node. May be called while a range is read, too: it goes over another connection then."""
        if self._is_reading:
            with RemoteNode(self._address, self._secret, patience_s=self._patience_s) as other:
                other.trim(subscription, position, query)
            return
        self._ask({"op": "trim", "subscription": subscription, "position": position, "query": query})

    def release(self, subscription: str, *, ends: bool = False) -> bool:
        """See Node."""
        return bool(self._ask({"op": "release", "subscription": subscription, "ends": ends}).get("is_ended"))

    def choose_snapshot(self, sink: str, start: str, stop: str) -> str:
        """See Node."""
        return str(self._ask({"op": "snapshot", "sink": sink, "start": start, "stop": stop})["stop"])

    def stage_once(
        self, sink: str, writer: Writer, batch: int, partition: int, attempt: str, chunk: int, body: bytes
    ) -> bool:
        """See Node."""
        request = {
            "op": "stage",
            **_writer(sink, writer),
            "batch": batch,
            "partition": partition,
            "attempt": attempt,
            "chunk": chunk,
        }
        return bool(self._ask(request, body)["is_needed"])

    def commit(
        self,
        sink: str,
        writer: Writer,
        batch: int,
        parts: Sequence[StagedPart],
        wait_s: float = 0.0,
        publishing: Publishing = AS_USUAL,
    ) -> Commit:
        """See Node."""
        ends_at = time.monotonic() + wait_s
        answer = self._ask(
            {
                "op": "commit",
                **_writer(sink, writer),
                "batch": batch,
                "parts": [[part.partition, part.attempt, part.chunks, part.rows] for part in parts],
                "wait_s": min(wait_s, WAIT_S),
                "resends_in_doubt": publishing.resends_in_doubt,
                "is_atomic": publishing.is_atomic,
                "require": publishing.require,
            }
        )
        found = _read(Commit, answer)
        if found.is_done or time.monotonic() >= ends_at:
            return found
        return replace(self.wait_done(sink, found.number, ends_at - time.monotonic()), is_first=found.is_first)

    def discard(self, sink: str, writer: Writer, batch: int) -> None:
        """See Node."""
        self._ask({"op": "discard", **_writer(sink, writer), "batch": batch})

    def wait_done(self, sink: str, number: int, wait_s: float) -> Commit:
        """See Node."""
        ends_at = time.monotonic() + wait_s
        while True:
            left_s = max(0.0, ends_at - time.monotonic())
            request = {"op": "finished", "sink": sink, "number": number, "wait_s": min(left_s, WAIT_S)}
            found = _read(Commit, self._ask(request))
            if found.is_done or time.monotonic() >= ends_at:
                return found

    def status(self) -> dict[str, Any]:
        """See Node."""
        found: dict[str, Any] = self._ask({"op": "status"})["state"]
        return found

    # --- the connection -----------------------------------------------------------------------------------------------

    def _ask(self, request: dict[str, object], body: bytes = b"") -> dict[str, Any]:
        ends_at = time.monotonic() + self._patience_s
        pause_s = RETRY_FIRST_S
        while True:
            try:
                self._send(request, body)
                return self._receive()[0]
            except NodeUnavailable:
                self.close()
                if time.monotonic() + pause_s >= ends_at:
                    raise
            time.sleep(pause_s)
            pause_s = min(RETRY_CAP_S, 2 * pause_s)

    def _send(self, request: dict[str, object], body: bytes) -> None:
        if self._is_reading:
            raise BadRequest(
                f"{self._address} cannot be asked for {request['op']}",
                "a range is being read over this connection",
                "read it to its end or close it first, or use a RemoteNode for each",
            )
        frame = encode_frame(request, body)
        try:
            if self._socket is None:
                self._connect()
            assert self._socket is not None
            self._socket.sendall(frame)
        except OSError as error:
            raise self._unavailable(error) from error

    def _connect(self) -> None:
        target = self._target
        connection = socket.socket(target.family, socket.SOCK_STREAM)
        try:
            connection.settimeout(CONNECT_S)
            connection.connect(target.place)
            if target.family != socket.AF_UNIX:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if target.is_tls:
                if self._context is None:  # it was pickled
                    self._context = context_of(self._tls)
                connection = self._context.wrap_socket(connection, server_hostname=target.place[0])
            self._socket = connection
            hello, _ = self._receive(is_hello=True)
            theirs, ours = str(hello.get("nonce")), secrets.token_hex(NONCE_BYTES)
            connection.sendall(encode_frame({"nonce": ours, "proof": proof(self._secret, "client", theirs, ours)}))
            answer, _ = self._receive()
            check_proof(self._secret, "server", theirs, ours, answer.get("proof"))
            connection.settimeout(ANSWER_S)
        except BaseException:
            self._socket = None
            connection.close()
            raise

    def _receive(self, *, is_hello: bool = False) -> tuple[dict[str, Any], bytes]:
        """The next frame.

        Raises:
            NodeUnavailable: the connection is lost.
            NodeError: the answer is an error; a connection that the node has closed is closed here, too.
        """
        try:
            header_size, body_size = decode_head(self._read(HEAD.size))
            header = decode_header(self._read(header_size))
            body = self._read(body_size)
        except OSError as error:
            raise self._unavailable(error) from error
        except NodeError:
            self.close()
            raise
        if not (is_hello and "nonce" in header):
            raise_error(header)
        return header, body

    def _read(self, size: int) -> bytes:
        assert self._socket is not None
        buffer = bytearray(size)
        view = memoryview(buffer)
        place = 0
        while place < size:
            count = self._socket.recv_into(view[place:])
            if count == 0:
                raise ConnectionResetError("the node closed the connection")
            place += count
        return bytes(buffer)

    def _unavailable(self, error: OSError) -> NodeError:
        if isinstance(error, NodeError):
            return error
        what = f"the bridge node at {self._address} cannot be reached"
        if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
            return NotAuthenticated(
                what,
                f"TLS: {fault_of(error)}",
                "check authority, certificate and key (--ca-file, --cert-file, --key-file; options bridge.tls.*), and "
                "that the node has listen.tls; without it write tcp://",
            )
        why = "it did not answer in time" if isinstance(error, TimeoutError) else error.strerror or str(error)
        fix = "check that it runs (`oncewire bridge node`) and that nothing blocks the way to it"
        if self._address.startswith("tcp://") and not isinstance(error, ConnectionRefusedError):  # it may want TLS
            fix += "; if it has listen.tls, write tls:// in the place of tcp://"
        return NodeUnavailable(what, why, fix)


def check_secret(secret: bytes) -> None:
    """Refuse a secret that is too short.

    Raises:
        BadRequest: it is.
    """
    if len(secret) < MIN_SECRET_BYTES:
        raise BadRequest(
            "the secret cannot be used",
            f"it has {len(secret)} bytes, {MIN_SECRET_BYTES} are needed",
            "use the contents of the node's secret file",
        )


def read_secret(path: Path) -> bytes:
    """The secret in a file; white space around it does not count.

    Raises:
        BadRequest: it cannot be read, or is too short.
    """
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise BadRequest(
            f"the secret file {path} cannot be read",
            error.strerror or str(error),
            "give the path of a copy of the node's secret file",
        ) from error
    check_secret(secret)
    return secret


def _writer(sink: str, writer: Writer) -> dict[str, object]:
    return {
        "sink": sink,
        "query": writer.query,
        "run": writer.run,
        "takeover": writer.takeover,
        "repeats": writer.repeats,
        "stands_alone": writer.stands_alone,
    }


def _read(kind: type[T], answer: Mapping[str, Any]) -> T:
    """What an answer says, and no more."""
    return kind(**{each.name: answer[each.name] for each in fields(kind)})
