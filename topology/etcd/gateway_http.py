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

from topology.etcd import gateway_codec as codec
from topology.etcd.gateway_codec import GatewayFormatError, JsonObject
from topology.etcd.members import (
    CALL_TIMEOUT_S,
    CONNECT_TIMEOUT_S,
    SNAPSHOT_TIMEOUT_S,
    WATCH_SILENCE_S,
    EtcdMembers,
    NotSent,
    NotTrusted,
    Unanswered,
    raise_error,
)


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


class GatewayClient(EtcdMembers):
    """HTTP connections to the members, the member in use, and the login token."""

    def __init__(self, endpoints: Sequence[str], options: GatewayOptions) -> None:
        """See `GatewayStore`."""
        super().__init__(endpoints, options.user)
        self.options = options
        self._session: aiohttp.ClientSession | None = None

    async def post(self, endpoint: URL, path: str, body: JsonObject, timeout_s: float, lease_id: int = 0) -> JsonObject:
        """One request to one member, logged in if a user is configured.

        Raises:
            NotSent, Unanswered: another member may be asked, or not.
            LeaseLost: of `lease_id`.
            StoreAuthError, StoreRejected: see there.
            GatewayFormatError: this is not etcd's gateway.
        """
        return await self.logged_in(endpoint, lambda: self._post(endpoint, path, body, timeout_s, lease_id))

    @asynccontextmanager
    async def stream(self, endpoint: URL, path: str, body: JsonObject) -> AsyncGenerator[aiohttp.StreamReader, None]:
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

    async def _authenticate(self, endpoint: URL) -> str:
        body = {"name": self.options.user, "password": self.options.password}
        answer = await self._post(endpoint, "auth/authenticate", body, self.options.call_timeout_s, 0)
        return str(answer.get("token", ""))

    async def close(self) -> None:
        """Close all connections; running requests and streams fail."""
        self.closed = True
        if self._session is not None:
            await self._session.close()

    async def _post(self, endpoint: URL, path: str, body: JsonObject, timeout_s: float, lease_id: int) -> JsonObject:
        timeout = aiohttp.ClientTimeout(total=timeout_s, sock_connect=min(self.options.connect_timeout_s, timeout_s))
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
        except aiohttp.ClientSSLError as error:
            raise NotTrusted(_describe(error)) from None
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


def _describe(error: BaseException) -> str:
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else None
    if isinstance(cause, ConnectionError) and cause.errno:
        # aiohttp's own text wraps the reason in its settings and a Python list.
        return os.strerror(cause.errno)
    if isinstance(cause, ssl.SSLError):
        return f"TLS is not agreed: {cause.strerror or cause}"
    if isinstance(cause, ConnectionError):
        return "the connection was closed during the handshake"
    return str(error) or type(error).__name__
