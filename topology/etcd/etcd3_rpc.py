"""gRPC calls to the members of one etcd cluster, with the messages of the package `etcd3`, from asyncio.

gRPC answers in threads of its own; every answer is handed to the event loop by `call_soon_threadsafe`. The package's
own client is not used: it knows one member only, and gives up a watch when a connection breaks.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import os
import sys
import threading
import warnings
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

from yarl import URL

from topology.etcd.members import (
    CALL_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    SNAPSHOT_TIMEOUT_S,
    WATCH_SILENCE_S,
    EtcdMembers,
    NotSent,
    NotTrusted,
    Silent,
    Unanswered,
    raise_error,
)

MAX_ANSWER_BYTES = 256 << 20
"""A snapshot is one message; gRPC's own limit of 4 MiB would be some 10,000 links."""
STREAM_ANSWERS = 64
"""Of a watch, waiting for the loop; then its thread waits, and TCP with it."""
_PYTHON_PROTOBUF = "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"
_NOT_CONNECTED = ("failed to connect", "DNS resolution failed")
"""gRPC's texts for a request that found no connection to go out on; the code is shared with broken connections."""
_NOT_TRUSTED = "CERTIFICATE_VERIFY_FAILED"
"""In those texts, where we do not trust etcd. That etcd does not trust us looks like an etcd that is not there."""


class Etcd3Missing(Exception):
    """The package etcd3 is not there or cannot be loaded. The text says what to do."""


@dataclass(frozen=True, slots=True)
class Etcd3Options:
    """How to talk to etcd."""

    user: str = ""
    """Empty: no login."""
    password: str = ""
    credentials: Callable[[], tuple[bytes | None, bytes | None, bytes | None]] | None = None
    """For https endpoints, asked for each channel: whom to trust, our certificate and its key, PEM. Of the first None:
    gRPC's own list of authorities."""
    call_timeout_s: float = CALL_TIMEOUT_S
    snapshot_timeout_s: float = SNAPSHOT_TIMEOUT_S
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    watch_silence_s: float = WATCH_SILENCE_S


@dataclass(frozen=True, slots=True)
class Packages:
    """What is loaded only when this store is chosen."""

    grpc: Any
    rpc: Any
    """`etcd3.etcdrpc`: messages and stubs."""


@cache
def load_packages() -> Packages:
    """The packages etcd3 and grpc.

    Raises:
        Etcd3Missing: they are not installed, or protobuf was loaded in a way etcd3 cannot work with.
    """
    if importlib.util.find_spec("etcd3") is None:
        raise Etcd3Missing("the package etcd3 is not installed: `pip install 'oncewire[etcd3]'`")
    # etcd3's messages are of 2020; today's protobuf reads them in its implementation in Python only. The variable is
    # read when protobuf is imported, so it need not stay set for programs we start.
    before = os.environ.get(_PYTHON_PROTOBUF)
    os.environ[_PYTHON_PROTOBUF] = "python"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            return Packages(importlib.import_module("grpc"), importlib.import_module("etcd3.etcdrpc"))
    except (ImportError, TypeError) as error:
        why = str(error).partition("\n")[0]
        loaded = "something else in this process has loaded protobuf before" if _protobuf_is_native() else why
        raise Etcd3Missing(
            f"the package etcd3 cannot be loaded ({loaded}): set {_PYTHON_PROTOBUF}=python in the environment, "
            "install as `pip install 'oncewire[etcd3]'` does, or use the gateway store"
        ) from None
    finally:
        if before is None:
            del os.environ[_PYTHON_PROTOBUF]
        else:
            os.environ[_PYTHON_PROTOBUF] = before


def _protobuf_is_native() -> bool:
    implementation = sys.modules.get("google.protobuf.internal.api_implementation")
    return implementation is not None and implementation.Type() != "python"


class Etcd3Client(EtcdMembers):
    """A channel to each member that was needed, and the login token."""

    def __init__(self, endpoints: Sequence[str], options: Etcd3Options) -> None:
        """See `Etcd3Store`."""
        super().__init__(endpoints, options.user)
        self.options = options
        self.packages = load_packages()
        self._channels: dict[URL, Any] = {}

    async def unary(
        self, endpoint: URL, stub: str, method: str, request: Any, timeout_s: float, lease_id: int = 0
    ) -> Any:
        """One request to one member, logged in if a user is configured; the answer is a message of etcd3.

        Raises:
            NotSent, Unanswered: another member may be asked, or not.
            LeaseLost: of `lease_id`.
            StoreAuthError, StoreRejected: see there.
        """
        return await self.logged_in(endpoint, lambda: self._unary(endpoint, stub, method, request, timeout_s, lease_id))

    async def first_of_stream(self, endpoint: URL, stub: str, method: str, request: Any, timeout_s: float) -> Any:
        """As `unary`, for a call that is a stream in gRPC: its first answer."""

        async def ask() -> Any:
            async with self.stream(endpoint, stub, method, request, timeout_s) as answers:
                return await answers.next(timeout_s)

        try:
            return await self.logged_in(endpoint, ask)
        except Silent:
            raise Unanswered(f"nothing came within {timeout_s} s") from None

    @asynccontextmanager
    async def stream(
        self, endpoint: URL, stub: str, method: str, request: Any, timeout_s: float | None = None
    ) -> AsyncGenerator[Answers, None]:
        """A call whose answers go on; it ends with the block."""
        is_over = threading.Event()

        def requests() -> Iterator[Any]:
            yield request
            # etcd ends a stream whose requests have ended.
            is_over.wait()

        call = self._stub(endpoint, stub, method)(requests(), timeout=timeout_s, metadata=self._metadata())
        answers = Answers(self, endpoint, call)
        try:
            yield answers
        finally:
            answers.close()
            is_over.set()

    async def _authenticate(self, endpoint: URL) -> str:
        request = self.packages.rpc.AuthenticateRequest(name=self.options.user, password=self.options.password)
        answer = await self._unary(endpoint, "AuthStub", "Authenticate", request, self.options.call_timeout_s, 0)
        return str(answer.token)

    async def close(self) -> None:
        """Close all channels; running calls and streams fail."""
        self.closed = True
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()

    def fail(self, endpoint: URL, error: Any, lease_id: int = 0) -> NoReturn:
        """Raise what an error of gRPC stands for."""
        code, text = error.code(), str(error.details())
        if code is self.packages.grpc.StatusCode.UNAVAILABLE and any(part in text for part in _NOT_CONNECTED):
            # A new channel tries at once; this one would wait for its back-off, also when etcd is back.
            channel = self._channels.pop(endpoint, None)
            if channel is not None:
                channel.close()
            raise NotTrusted(text) if _NOT_TRUSTED in text else NotSent(text)
        raise_error(code.value[0], text, lease_id)

    async def _unary(self, endpoint: URL, stub: str, method: str, request: Any, timeout_s: float, lease_id: int) -> Any:
        call = self._stub(endpoint, stub, method).future(request, timeout=timeout_s, metadata=self._metadata())
        loop = asyncio.get_running_loop()
        done = asyncio.Event()

        def hand_over(_call: Any) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(done.set)

        call.add_done_callback(hand_over)
        try:
            await done.wait()
        except asyncio.CancelledError:
            call.cancel()
            raise
        try:
            return call.result()
        except self.packages.grpc.FutureCancelledError:
            raise Unanswered("this client was closed") from None
        except self.packages.grpc.RpcError as error:
            self.fail(endpoint, error, lease_id)

    def _stub(self, endpoint: URL, stub: str, method: str) -> Any:
        if self.closed:
            raise NotSent("this client is closed")
        channel = self._channels.get(endpoint)
        if channel is None:
            channel = self._channels[endpoint] = self._new_channel(endpoint)
        return getattr(getattr(self.packages.rpc, stub)(channel), method)

    def _new_channel(self, endpoint: URL) -> Any:
        grpc, options = self.packages.grpc, self.options
        arguments = (
            # A channel of its own connections: none waits for the back-off of another's.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.min_reconnect_backoff_ms", int(1000 * options.connect_timeout_s)),
            ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
            # etcd is not behind the proxy of this machine's environment.
            ("grpc.enable_http_proxy", 0),
        )
        target = f"{endpoint.host}:{endpoint.port}" if ":" not in str(endpoint.host) else endpoint.authority
        if endpoint.scheme == "http":
            return grpc.insecure_channel(target, arguments)
        ca, certificate, key = options.credentials() if options.credentials is not None else (None, None, None)
        credentials = grpc.ssl_channel_credentials(ca, key, certificate)
        return grpc.secure_channel(target, credentials, arguments)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        # `hasleader`: a member that is cut off from its leader answers with an error instead of falling silent. The
        # token goes as plain metadata: gRPC's own call credentials refuse a connection without TLS.
        metadata = (("hasleader", "true"),)
        return (*metadata, ("token", self._token)) if self._token else metadata


class Answers:
    """The answers of one stream: read in a thread, since gRPC only knows how to wait there, taken in the loop."""

    def __init__(self, client: Etcd3Client, endpoint: URL, call: Any) -> None:
        """Start reading."""
        self._client = client
        self._endpoint = endpoint
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._queue: asyncio.Queue[Any] = asyncio.Queue()
        self._room = threading.Semaphore(STREAM_ANSWERS)
        self._is_closed = False
        threading.Thread(target=self._read, name="etcd3 stream", daemon=True).start()

    async def next(self, timeout_s: float) -> Any:
        """The next answer.

        Raises:
            Silent: none came in time.
            NotSent, Unanswered, TokenRefused, LeaseLost, StoreAuthError, StoreRejected: the stream has ended.
        """
        try:
            async with asyncio.timeout(timeout_s):
                found = await self._queue.get()
        except TimeoutError:
            raise Silent from None
        self._room.release()
        if isinstance(found, self._client.packages.grpc.RpcError):
            self._client.fail(self._endpoint, found)
        if found is None:
            raise Unanswered("etcd has ended the stream")
        return found

    def close(self) -> None:
        """End the stream and its thread."""
        self._is_closed = True
        self._call.cancel()
        self._room.release()

    def _read(self) -> None:
        end: Any = None
        try:
            for answer in self._call:
                self._room.acquire()
                if self._is_closed:
                    return
                self._hand_over(answer)
        except self._client.packages.grpc.RpcError as error:
            end = error
        self._hand_over(end)

    def _hand_over(self, answer: Any) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self._loop.call_soon_threadsafe(self._queue.put_nowait, answer)
