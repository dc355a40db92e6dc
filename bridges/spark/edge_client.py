"""Journals of an edge, over its HTTP: where they stand, and ranges of their messages. Made for Spark's workers.

Calls block. Nothing is opened when a client is made, and it can be pickled: the connection comes with the first call,
in the process that makes it. Secrets are read there, too, from files or the environment.
"""

from __future__ import annotations

import base64
import http.client
import json
import os
import random
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote, urlencode, urlsplit

from bridges.doors.tls import NO_FILES, TlsFiles, node_context
from bridges.journal.pages import Page, decode_page
from bridges.node.errors import BadRequest, NodeError, NodeUnavailable, NotAuthenticated, RangeNotThere, RangeTrimmed

PASSWORD, TOKEN_FILE = "ONCEWIRE_PASSWORD", "ONCEWIRE_TOKEN_FILE"
"""Variables of the environment, as commands have them."""
PATIENCE_S = 60.0
"""How long edges that do not answer are asked again: one is started anew, or another one takes over."""
ANSWER_S = 60.0
RETRY_FIRST_S, RETRY_CAP_S = 0.1, 2.0


class JournalMissing(NodeError):
    """The edge has no such journal."""

    code: ClassVar[str] = "journal-missing"


@dataclass(frozen=True, slots=True)
class EdgeAddress:
    """Edges over one store, and how to log in there.

    Attributes:
        urls: tried in turn.
        user: None = no login with a password.
        password_file: of the user; None = the environment has it.
        token_file: a JSON Web Token, in place of a user; None = none, or the environment names it.
        tls: for https.
    """

    urls: tuple[str, ...]
    user: str | None = None
    password_file: Path | None = None
    token_file: Path | None = None
    tls: TlsFiles = NO_FILES


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a journal stands.

    Attributes:
        uuid: of the journal.
        trimmed: positions up to it are trimmed.
        last: the newest position.
    """

    uuid: str
    trimmed: int
    last: int


class EdgeClient:
    """See the module. Errors of all calls: `NodeError` and its kinds; not for several threads.

    Args:
        address: of the edges.
        patience_s: how long an edge is waited for.
    """

    def __init__(self, address: EdgeAddress, patience_s: float = PATIENCE_S) -> None:
        self._address = address
        self._patience_s = patience_s
        self._number = 0
        self._connection: http.client.HTTPConnection | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_connection": None}

    def __enter__(self) -> EdgeClient:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next call opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def standing(self, journal: str) -> Standing:
        """Where a journal stands.

        Raises:
            JournalMissing: there is none.
        """
        page = self._page(journal, "next", 1)
        return Standing(page.uuid, page.trimmed, page.last)

    def message_bytes(self, journal: str) -> float:
        """What a message of a journal takes, on average; errors as `standing`."""
        found = json.loads(self._get(_path(journal)))
        kept, kept_bytes = int(found["messages"]), int(found["bytes"])
        return max(1.0, kept_bytes / max(1, kept))

    def names(self) -> list[str]:
        """The journals of the edge's store."""
        return sorted(str(each["journal"]) for each in json.loads(self._get("/api/v1/journals"))["journals"])

    def before(self, journal: str, time_us: int) -> int | None:
        """The position in front of the first message that was stored at a time or later; None = there is none yet."""
        seconds, micros = divmod(time_us, 1_000_000)
        text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{micros:06d}Z"
        messages = self._page(journal, text, 1).messages
        return messages[0].position - 1 if messages else None

    def read(self, journal: str, low: int, high: int) -> Iterator[Page]:
        """The messages of (low, high]; a page has as many as one answer can. A compacted journal has holes.

        Raises:
            RangeTrimmed: the first one was trimmed.
        """
        while low < high:
            page = self._page(journal, str(low + 1), min(high - low, 1 << 30))
            kept = [message for message in page.messages if message.position <= high]
            yield Page(page.uuid, page.trimmed, page.last, kept)
            if not kept:
                return
            low = kept[-1].position

    # --- requests -----------------------------------------------------------------------------------------------------

    def _page(self, journal: str, start: str, count: int) -> Page:
        given = {"from": start} | ({"count": str(count)} if count < MAX_COUNT else {})
        data = self._get(f"{_path(journal)}/pages?{urlencode(given)}")
        try:
            return decode_page(data)
        except ValueError as error:
            raise NodeError("the edge's answer cannot be read", str(error), "use edges of this version") from error

    def _get(self, path: str) -> bytes:
        """What is asked for; edges that cannot be reached, or have no store just now, are asked again in turn."""
        ends_at, pause_s = time.monotonic() + self._patience_s, RETRY_FIRST_S
        while True:
            try:
                return self._ask(path)
            except NodeUnavailable:
                self.close()
                self._number += 1
                if time.monotonic() + pause_s >= ends_at:
                    raise
            time.sleep(pause_s * random.uniform(0.5, 1.0))
            pause_s = min(RETRY_CAP_S, 2 * pause_s)

    def _ask(self, path: str) -> bytes:
        url = self._address.urls[self._number % len(self._address.urls)]
        try:
            if self._connection is None:
                self._connection = _connect(url, self._address.tls)
            self._connection.request("GET", path, headers=_login(self._address))
            answer = self._connection.getresponse()
            data = answer.read()
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, ssl.SSLCertVerificationError):
                raise NotAuthenticated(
                    f"the edge at {url} cannot be used", error.verify_message, "set edge.tls.ca to its authority's file"
                ) from error
            raise NodeUnavailable(
                f"the edge at {url} cannot be reached",
                str(error) or type(error).__name__,
                "see whether `oncewire edge serve` runs there, and whether its http.host can be reached from here",
            ) from error
        if answer.status != http.HTTPStatus.OK:
            raise _error(url, answer.status, data)
        return data


MAX_COUNT = 10_000
"""As many as an edge gives in one page."""


def _path(journal: str) -> str:
    return f"/api/v1/journals/{quote(journal, safe='')}"


def _connect(url: str, tls: TlsFiles) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    if parts.scheme == "https":
        return http.client.HTTPSConnection(parts.netloc, timeout=ANSWER_S, context=node_context(tls))
    return http.client.HTTPConnection(parts.netloc, timeout=ANSWER_S)


def _login(address: EdgeAddress) -> dict[str, str]:
    """The header that logs in; files are read for each request, for they may be replaced."""
    token_file = address.token_file or (None if address.user else os.environ.get(TOKEN_FILE))
    if token_file:
        return {"Authorization": f"Bearer {_secret(Path(token_file))}"}
    if address.user is None:
        return {}
    password = _secret(address.password_file) if address.password_file else os.environ.get(PASSWORD)
    if password is None:
        raise BadRequest(
            f"user {address.user!r} cannot log in at the edge",
            f"there is neither edge.passwordFile nor {PASSWORD} in the environment",
            "set one of them on the driver and on every executor",
        )
    return {"Authorization": "Basic " + base64.b64encode(f"{address.user}:{password}".encode()).decode()}


def _secret(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(
            f"{path} cannot be read", str(error), "put the file there on the driver and on every executor"
        ) from error


def _error(url: str, status: int, data: bytes) -> NodeError:
    try:
        words = json.loads(data)
        why, fix = str(words["error"]), str(words.get("fix", "see the log of the edge"))
    except (ValueError, TypeError, LookupError):
        why, fix = data.decode(errors="replace")[:200].strip() or f"HTTP status {status}", "see the log of the edge"
    what = f"the edge at {url} did not answer"
    kinds: dict[int, type[NodeError]] = {
        400: BadRequest,
        401: NotAuthenticated,
        403: NotAuthenticated,
        404: JournalMissing,
        410: RangeTrimmed,
        416: RangeNotThere,
    }
    return kinds.get(status, NodeUnavailable if status >= 429 else NodeError)(what, why, fix)
