"""The command line's client of a router's inspector. Errors have three lines: what, why, what to do."""

from __future__ import annotations

import json
import os
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Self, TypeAlias

import aiohttp
from yarl import URL

from oncewire.cli import variables
from oncewire.cli.errors import CliError
from oncewire.cli.tls import tls_fault, tls_of_command
from oncewire.cli.token import others_can_read
from oncewire.cli.where import start_one, where_in_use
from topology.inspector.rows_core import MAX_ROWS, Row

TIMEOUT_S = 10.0
PREFIX = "/api/v1"
STATE_PATH = f"{PREFIX}/state"
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""RFC 6750, section 2.1."""
_FIX = "give --url the HTTP address of a running router; its log and `oncewire local` name it"


Authorization: TypeAlias = Callable[[], str]
"""Returns the header that logs somebody in; it is called for each request."""


class Bearer:
    """Logs in with a token (RFC 6750).

    Args:
        token: returns the token that is valid now.
    """

    def __init__(self, token: Callable[[], str]) -> None:
        self._token = token

    def __call__(self) -> str:
        """The header.

        Raises:
            CliError: there is no token.
        """
        try:
            found = self._token()
        except (OSError, ValueError) as error:
            raise CliError("there is no token to log in with", str(error), "check --token-file") from None
        if not _TOKEN.fullmatch(found):
            why = "what the file has is none: letters, digits and . _ ~ + / - ="
            raise CliError("there is no token to log in with", why, "check --token-file")
        return f"Bearer {found}"


class Api:
    """The API of the router at one address."""

    def __init__(self, url: str, session: aiohttp.ClientSession, authorization: Authorization | None = None) -> None:
        self._base = url.rstrip("/")
        self._session = session
        self._authorization = authorization
        self.shown = shown_url(url)
        """The address without a password."""

    @classmethod
    @asynccontextmanager
    async def at(cls, url: str, authorization: Authorization | None = None) -> AsyncIterator[Self]:
        """The router at `url`, which may name a user: `http://ann:secret@host:8672`.

        Args:
            url: its HTTP address.
            authorization: what logs somebody in (see login_cli.py); None = nothing.

        Raises:
            CliError: that is no HTTP address, there are two logins, a token would be sent for everybody to read, or a
                TLS file cannot be used.
        """
        if not url.startswith(("http://", "https://")):
            raise CliError(f"{url!r} is no HTTP address", "it does not begin with http:// or https://", _FIX)
        if authorization is not None and "@" in url.split("/")[2]:
            why = "--url names a user, and another login is given"
            raise CliError("it is not clear who logs in", why, "leave one of them out")
        if isinstance(authorization, Bearer) and others_can_read(url):
            why = "everybody on the way could read it"
            raise CliError(f"no token is sent to {shown_url(url)}", why, "give an https:// address")
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        connector = aiohttp.TCPConnector(ssl=tls_of_command() or True)
        async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
            yield cls(url, session, authorization)

    def _headers(self) -> dict[str, str]:
        return {} if self._authorization is None else {"Authorization": self._authorization()}

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """GET of one path, for example `/api/v1/overview`.

        Raises:
            CliError: no router answers there, or it refuses.
        """
        return await self._ask("GET", path, query, None)

    async def change(self, method: str, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        """PUT, POST or DELETE; returns the reply.

        Raises:
            CliError: see `get`.
        """
        return await self._ask(method, path, None, body)

    async def peek(self, path: str) -> dict[str, Any]:
        """Like `get`, but raises aiohttp's errors: for callers that wait until a router stops."""
        async with self._session.get(self._base + path, headers=self._headers()) as answer:
            found = await answer.json()
        return found if isinstance(found, dict) else {}

    async def _ask(
        self, method: str, path: str, query: Mapping[str, str] | None, body: Mapping[str, object] | None
    ) -> dict[str, Any]:
        try:
            # What is escaped in a path is a part of a name: it goes as it is.
            address = URL(self._base + path, encoded="%" in path)
            async with self._session.request(
                method, address, params=query, json=body, headers=self._headers()
            ) as answer:
                if answer.status != 200:
                    raise await self._refusal(path, answer)
                found = await answer.json()
        except (aiohttp.ClientError, ValueError, TimeoutError) as error:
            raise self._absent(reason_of(error)) from None
        if not isinstance(found, dict):
            raise self._absent(f"{self.shown}{path} is no JSON object")
        return found

    async def table(self, table: str, query: Mapping[str, str], most: int | None) -> dict[str, Any]:
        """Rows of a table, page by page: the reply for the first page with all rows in `items`.

        Args:
            table: its name.
            query: filters.
            most: rows wanted; None = all.

        Raises:
            CliError: see `get`.
        """
        rows: list[Row] = []
        first: dict[str, Any] | None = None
        cursor: str | None = None
        while True:
            limit = MAX_ROWS if most is None else min(MAX_ROWS, most - len(rows))
            asked = {**query, "limit": str(limit)} | ({} if cursor is None else {"cursor": cursor})
            answer = await self.get(f"{PREFIX}/{table}", asked)
            rows += answer["items"]
            first = first or answer
            cursor = answer.get("next")
            if cursor is None or (most is not None and len(rows) >= most):
                return {**first, "items": rows, "next": cursor}

    async def watch(self, wish: Mapping[str, object]) -> AsyncIterator[dict[str, Any]]:
        """Snapshots and changes, until the router stops.

        Raises:
            CliError: see `get`; also when the router has gone.
        """
        try:
            # No limit of the whole: watching lasts as long as somebody looks.
            timeout = aiohttp.ClientWSTimeout(ws_close=TIMEOUT_S)
            async with self._session.ws_connect(
                f"{self._base}{PREFIX}/watch", timeout=timeout, max_msg_size=0, headers=self._headers()
            ) as socket:
                await socket.send_json(wish)
                async for message in socket:
                    if message.type is aiohttp.WSMsgType.TEXT:
                        found = json.loads(message.data)
                        if found.get("type") == "error":
                            raise CliError(f"the router at {self.shown} refuses", found["error"], found["fix"])
                        yield found
        except (aiohttp.ClientError, ValueError, TimeoutError) as error:
            raise self._absent(reason_of(error)) from None
        raise CliError(
            f"the router at {self.shown} has ended the connection",
            "it stops, or nothing was read from it for too long",
            "call it again, or another router of the network",
        )

    async def _refusal(self, path: str, answer: aiohttp.ClientResponse) -> CliError:
        try:
            reported = await answer.json()
            fix = str(reported["fix"])
            if answer.status == 401 and self._authorization is None:
                fix += "; give --user NAME, and the password in ONCEWIRE_PASSWORD or when asked, or --token-file"
            return CliError(f"the router at {self.shown} refuses", str(reported["error"]), fix)
        except (aiohttp.ClientError, ValueError, KeyError, TypeError):
            return self._absent(f"{self.shown}{path} answered HTTP {answer.status}")

    def _absent(self, why: str) -> CliError:
        where = where_in_use()
        if where is not None and where.is_guessed:
            fix = start_one("--url http://HOST:8672", variables.HTTP_URL)
            return CliError(f"no router answers at {self.shown} ({where.source})", why, fix)
        return CliError(f"no router answers at {self.shown}", why, _FIX)


async def read_state(url: str, authorization: Authorization | None = None) -> dict[str, Any]:
    """The complete state of the router at `url`.

    Raises:
        CliError: no router answers there.
    """
    async with Api.at(url, authorization) as api:
        return await api.get(STATE_PATH)


def shown_url(url: str) -> str:
    """An address without user and password."""
    try:
        return str(URL(url).with_user(None)).rstrip("/")
    except ValueError:
        return url.rpartition("@")[2]


def reason_of(error: Exception) -> str:
    """Why there is no reply, in plain words: aiohttp's texts quote its own settings."""
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT_S:g} s"
    if isinstance(error, aiohttp.InvalidURL):
        return "the address cannot be read"
    if isinstance(error, aiohttp.WSServerHandshakeError):
        return f"it takes no WebSocket: HTTP {error.status}"
    if isinstance(error, aiohttp.ContentTypeError | aiohttp.ClientPayloadError | json.JSONDecodeError):
        return "what answers there is no router's HTTP listener"
    if isinstance(error, aiohttp.ClientResponseError | aiohttp.ServerDisconnectedError):
        return "what answers there does not speak HTTP"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"{tls_fault(error.certificate_error)}; see --ca-file"
    if isinstance(error, aiohttp.ClientSSLError) and isinstance(error.os_error, ssl.SSLError):
        return tls_fault(error.os_error)
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else None
    if isinstance(cause, ConnectionError) and cause.errno:
        return os.strerror(cause.errno)
    return str(error) or type(error).__name__
