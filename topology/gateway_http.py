"""Requests to the members of one etcd cluster over HTTP: which member, logged in how, failed in which way."""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NoReturn

import aiohttp
from yarl import URL

from topology import gateway_codec as codec
from topology.gateway_codec import ErrorClass, GatewayFormatError, JsonObject
from topology.store import RESTORED_ADVICE, LeaseLost, StoreAuthError, StoreRejected, StoreReplaced

CALL_TIMEOUT_S = 3.0
"""For one call over all members: two fit before the fence deadline, two thirds of a 10 s lease (K-3)."""
SNAPSHOT_TIMEOUT_S = 6.0
"""A snapshot may be tens of megabytes; longer is no use, for the fence deadline passes meanwhile (K-4)."""
CONNECT_TIMEOUT_S = 1.0
"""A member that does not even accept a connection is not waited for longer: the next may be well."""
WATCH_SILENCE_S = 3.0
"""A watch without events for so long is opened again, which finds a half-open connection or a frozen member."""


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """How to talk to etcd."""

    user: str = ""
    """Empty: no login."""
    password: str = ""
    tls: ssl.SSLContext | None = None
    """For https endpoints: own certificate, own authorities. None: the system's authorities."""
    call_timeout_s: float = CALL_TIMEOUT_S
    snapshot_timeout_s: float = SNAPSHOT_TIMEOUT_S
    connect_timeout_s: float = CONNECT_TIMEOUT_S
    watch_silence_s: float = WATCH_SILENCE_S


class NotSent(Exception):
    """The request certainly was not handled; another member may handle it."""


class Unanswered(Exception):
    """The request was sent; what became of it is unknown."""


class TokenRefused(Exception):
    """The login token is missing or too old; the request was not looked at."""


class GatewayClient:
    """HTTP connections to the members, the member in use, and the login token."""

    def __init__(self, endpoints: Sequence[str], options: GatewayOptions) -> None:
        """See `GatewayStore`."""
        self._endpoints = [_endpoint_url(endpoint) for endpoint in endpoints]
        if not self._endpoints:
            raise ValueError("no etcd endpoint is given: name at least one, such as http://127.0.0.1:2379")
        self.options = options
        self.cluster_id = 0
        """0 until the first answer."""
        self.highest_revision = 0
        """That any linearizable answer or event told; history went back if a later answer is below it."""
        self.closed = False
        self._current = 0
        self._session: aiohttp.ClientSession | None = None
        self._token = ""

    @property
    def member_count(self) -> int:
        """How many members are configured."""
        return len(self._endpoints)

    @property
    def endpoint(self) -> URL:
        """The member that is asked next."""
        return self._endpoints[self._current]

    def rotate(self, failed: URL) -> None:
        """Ask the next member from now on, unless somebody else has moved on from `failed` already."""
        if self.endpoint == failed:
            self._current = (self._current + 1) % len(self._endpoints)

    async def post(
        self, endpoint: URL, path: str, body: JsonObject, timeout_s: float, lease_id: int = 0
    ) -> JsonObject:
        """One request to one member, logged in if a user is configured.

        Raises:
            NotSent, Unanswered: another member may be asked, or not.
            LeaseLost: of `lease_id`.
            StoreAuthError, StoreRejected, StoreReplaced: see there.
            GatewayFormatError: this is not etcd's gateway.
        """
        await self.log_in_once(endpoint)
        try:
            return await self._post(endpoint, path, body, timeout_s, lease_id)
        except TokenRefused:
            await self.log_in(endpoint)
        try:
            return await self._post(endpoint, path, body, timeout_s, lease_id)
        except TokenRefused as error:
            raise StoreAuthError(f"etcd at {endpoint} refuses its own new login token: {error}") from None

    @asynccontextmanager
    async def stream(
        self, endpoint: URL, path: str, body: JsonObject
    ) -> AsyncGenerator[aiohttp.StreamReader, None]:
        """A request whose answer goes on for ever; the caller bounds how long it waits for each part.

        Raises:
            NotSent, Unanswered, TokenRefused, StoreAuthError, StoreRejected, GatewayFormatError: as `post`.
        """
        await self.log_in_once(endpoint)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self.options.connect_timeout_s)
        try:
            # The gateway sends its response head with the first message, so that may hang, too.
            async with asyncio.timeout(self.options.call_timeout_s):
                response = await self._request(endpoint, path, body, timeout)
        except TimeoutError:
            raise Unanswered(f"nothing came within {self.options.call_timeout_s} s") from None
        async with response:
            if response.status != 200:
                _raise_for_error(response.status, await response.content.read(_ERROR_BYTES), 0)
            yield response.content

    def check_cluster(self, answer: JsonObject) -> codec.Header:
        """The answer's header.

        Raises:
            StoreReplaced: it speaks for another cluster than the first answer to this client did.
        """
        found = codec.header(answer)
        if found.cluster_id and self.cluster_id and found.cluster_id != self.cluster_id:
            raise StoreReplaced(
                f"etcd at {self.endpoint} is cluster {found.cluster_id:x}, before it was {self.cluster_id:x}: "
                "its data was lost or restored, or the endpoints belong to different clusters"
            )
        self.cluster_id = found.cluster_id or self.cluster_id
        return found

    def check_revision(self, revision: int, floor: int) -> None:
        """Of a linearizable answer to a call made when `floor` had been seen.

        Raises:
            StoreReplaced: it is behind, which it can be only if history itself was set back.
        """
        if revision < floor:
            raise StoreReplaced(
                f"etcd at {self.endpoint} is at revision {revision} after it was at {floor}: {RESTORED_ADVICE}"
            )
        self.highest_revision = max(self.highest_revision, revision)

    async def log_in_once(self, endpoint: URL) -> None:
        """Log in if a user is configured and that has not been done."""
        if self.options.user and not self._token:
            await self.log_in(endpoint)

    async def log_in(self, endpoint: URL) -> None:
        """Get a new token.

        Raises:
            StoreAuthError: no user is configured, or etcd does not accept it.
            NotSent: this member cannot be asked now.
        """
        if not self.options.user:
            raise StoreAuthError(f"etcd at {endpoint} wants a login: configure its user and password")
        self._token = ""
        body = {"name": self.options.user, "password": self.options.password}
        try:
            answer = await self._post(endpoint, "auth/authenticate", body, self.options.call_timeout_s, 0)
        except (TokenRefused, StoreAuthError, StoreRejected) as error:
            raise StoreAuthError(
                f"etcd at {endpoint} does not accept user {self.options.user!r}: {error}"
            ) from None
        except Unanswered as error:
            # The login's fate is unknown; the request it was for has not been sent.
            raise NotSent(f"no answer to the login: {error}") from None
        self._token = str(answer.get("token", ""))

    async def close(self) -> None:
        """Close all connections; running requests and streams fail."""
        self.closed = True
        if self._session is not None:
            await self._session.close()

    async def _post(
        self, endpoint: URL, path: str, body: JsonObject, timeout_s: float, lease_id: int
    ) -> JsonObject:
        timeout = aiohttp.ClientTimeout(
            total=timeout_s, sock_connect=min(self.options.connect_timeout_s, timeout_s)
        )
        try:
            async with await self._request(endpoint, path, body, timeout) as response:
                status, data = response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unanswered(_describe(error)) from None
        if status != 200:
            _raise_for_error(status, data, lease_id)
        return codec.parse_object(data)

    async def _request(
        self, endpoint: URL, path: str, body: JsonObject, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        if self.closed:
            raise NotSent("this client is closed")
        if self._session is None:
            connector = aiohttp.TCPConnector(ssl=self.options.tls or True, limit=0)
            self._session = aiohttp.ClientSession(connector=connector)
        # `hasleader`: a member that is cut off from its leader answers with an error instead of falling silent.
        headers = {"Content-Type": "application/json", "Grpc-Metadata-hasleader": "true"}
        if self._token:
            headers["Authorization"] = self._token
        url = endpoint / "v3" / path
        try:
            return await self._session.post(url, data=json.dumps(body), headers=headers, timeout=timeout)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise NotSent(_describe(error)) from None
        except (aiohttp.ClientError, OSError) as error:
            raise Unanswered(_describe(error)) from None


_ERROR_BYTES = 65_536
"""Read of the body of an error answer to a stream; etcd's are some hundred bytes."""


def _raise_for_error(status: int, data: bytes, lease_id: int) -> NoReturn:
    try:
        code, text = codec.parse_error(codec.parse_object(data))
    except GatewayFormatError:
        raise GatewayFormatError(f"HTTP {status}: {data[:80]!r}") from None
    raise_error(code, text, lease_id)


def raise_error(code: int, text: str, lease_id: int = 0) -> NoReturn:
    """Raise what an error answer with this gRPC code and text stands for."""
    kind = codec.classify_error(code, text)
    if kind is ErrorClass.LOGIN:
        raise TokenRefused(text)
    if kind is ErrorClass.AUTH:
        raise StoreAuthError(f"etcd refuses: {text}")
    if kind is ErrorClass.LEASE:
        raise LeaseLost(lease_id)
    if kind is ErrorClass.REJECTED:
        raise StoreRejected(f"etcd refuses: {text}")
    raise NotSent(text) if kind is ErrorClass.NOT_APPLIED else Unanswered(text)


def _describe(error: BaseException) -> str:
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else None
    if isinstance(cause, ConnectionError) and cause.errno:
        # aiohttp's own text wraps the reason in its settings and a Python list.
        return os.strerror(cause.errno)
    return str(error) or type(error).__name__


def _endpoint_url(endpoint: str) -> URL:
    try:
        url = URL(endpoint)
        known = url.scheme in ("http", "https") and bool(url.host)
    except ValueError:
        known = False
    if not known:
        raise ValueError(
            f"{endpoint!r} is not an etcd endpoint: write it as http://HOST:PORT or https://HOST:PORT"
        )
    return url.origin()
