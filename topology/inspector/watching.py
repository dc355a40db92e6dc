"""The WebSocket of the inspector: snapshots, then changes, at most four times a second.

Without a watcher nothing is noted, collected or compared.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Mapping

from aiohttp import WSCloseCode, WSMsgType, web

from topology.inspector.changes_core import MAX_PUTS, Changes, Shown, ShownAttachments
from topology.inspector.events_core import EventRing
from topology.inspector.paging_core import page_of
from topology.inspector.parameters_core import WatchRequest, watch_request, wish_id
from topology.inspector.rows_core import (
    EVENTS,
    MAX_ROWS,
    OVERVIEW,
    PUBLISHERS,
    SUBSCRIPTIONS,
    TOPICS,
    Head,
    InputError,
    Row,
)
from topology.inspector.source import Rights, Source

PERIOD_S = 0.25
"""Interval between messages of changes: as fast as people see."""
MAX_WATCHERS = 64
"""Data is collected for each one separately."""
MAX_READERS = 48
"""Of those, for callers who may change nothing: operators find a place when these are taken."""
MAX_OF_A_CALLER = 24
"""For one user or address among the readers: others find a place, too."""
SEND_TIMEOUT_S = 30.0
"""A watcher that reads nothing for this long is disconnected."""
HEARTBEAT_S = 20.0
MAX_WISH_BYTES = 8_192
MARKED = frozenset({SUBSCRIPTIONS, PUBLISHERS, TOPICS})
"""Tables of any size, whose changes are noted when they happen."""
WHOLE = frozenset({"routers", "links"})
"""Tables that the source caches: all rows are compared after each update of the cache."""


class Watchers:
    """The watchers of this router; passes the source's changes on to them."""

    def __init__(self, source: Source, events: EventRing) -> None:
        self._source = source
        self._events = events
        self._watchers: set[_Watcher] = set()
        self._readers: dict[str, int] = {}

    @property
    def count(self) -> int:
        """Watchers that are connected."""
        return len(self._watchers)

    def refuses(self, rights: Rights) -> str:
        """Why no further one with these rights is accepted; empty when it is."""
        if len(self._watchers) >= MAX_WATCHERS:
            return f"{MAX_WATCHERS} watch this router already"
        if rights.manage:
            return ""
        if sum(self._readers.values()) >= MAX_READERS:
            return f"{MAX_READERS} who may only read watch this router already"
        if self._readers.get(rights.caller, 0) >= MAX_OF_A_CALLER:
            return f"{MAX_OF_A_CALLER} of this user or address watch this router already"
        return ""

    async def serve(self, request: web.Request, rights: Rights) -> web.WebSocketResponse:
        """Serves one watcher until it disconnects."""
        if rights.manage:
            return await self._serve(request, rights)
        readers, caller = self._readers, rights.caller
        readers[caller] = readers.get(caller, 0) + 1
        try:
            return await self._serve(request, rights)
        finally:
            readers[caller] -= 1
            if not readers[caller]:
                del readers[caller]

    async def _serve(self, request: web.Request, rights: Rights) -> web.WebSocketResponse:
        # No compression: it would cost the router's one thread more than the bytes cost the network.
        socket = web.WebSocketResponse(heartbeat=HEARTBEAT_S, max_msg_size=MAX_WISH_BYTES, compress=False)
        transport = request.transport
        assert transport is not None
        await socket.prepare(request)
        watcher = _Watcher(socket, transport, self._source, self._events, rights)
        if not self._watchers:
            self._source.observe(self)
        self._watchers.add(watcher)
        sending = asyncio.ensure_future(watcher.run())
        try:
            async for message in socket:
                # What is not text is not JSON either.
                watcher.wish(message.data if message.type is WSMsgType.TEXT else "")
        finally:
            self._watchers.discard(watcher)
            if not self._watchers:
                self._source.observe(None)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            if socket.close_code == WSCloseCode.ABNORMAL_CLOSURE:
                transport.abort()  # unread data would keep the connection open
        return socket

    async def stop(self) -> None:
        """Disconnects all watchers: the router stops."""
        closing = [
            watcher.socket.close(code=WSCloseCode.GOING_AWAY, message=b"the router stops") for watcher in self._watchers
        ]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PERIOD_S):
                await asyncio.gather(*closing, return_exceptions=True)

    # --- what the source notes ----------------------------------------------------------------------------------------

    def on_changed(self, table: str, key: str, before: Head | None) -> None:
        """See `Observer`."""
        for watcher in self._watchers:
            watcher.on_changed(table, key, before)

    def on_reset(self) -> None:
        """See `Observer`."""
        for watcher in self._watchers:
            watcher.is_stale = True


class _Watcher:
    """One watcher: what it requests, what it has; one message in flight at a time."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        transport: asyncio.WriteTransport,
        source: Source,
        events: EventRing,
        rights: Rights,
    ) -> None:
        self.socket = socket
        self._transport = transport
        self.is_stale = False
        """It needs new snapshots."""
        self._source = source
        self._events = events
        self._rights = rights
        self._request: WatchRequest | None = None
        self._refused: tuple[str, InputError] | None = None
        self._shown: dict[str, Shown] = {}
        self._compared: dict[str, object] = {}
        """The cached rows at the last comparison of a table of WHOLE."""
        self._seen_event = 0
        self._wake = asyncio.Event()

    def wish(self, text: str) -> None:
        """A request of the watcher."""
        wish: object = None
        try:
            wish = json.loads(text)
            self._request = watch_request(wish)
            self.is_stale = True
        except InputError as error:
            self._refused = wish_id(wish), error
        except (ValueError, RecursionError):
            self._refused = "", InputError("this is no JSON", 'send {"tables": ["overview"]}')
        self._wake.set()

    def on_changed(self, table: str, key: str, before: Head | None) -> None:
        """Note a change."""
        shown = self._shown.get(table)
        if isinstance(shown, ShownAttachments) and not shown.mark(key, before):
            self.is_stale = True

    async def run(self) -> None:
        """Sends changes until the watcher disconnects. A send waits while the watcher reads slowly."""
        try:
            while not self.socket.closed:
                began = time.monotonic()
                has_reported = await self._notify()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(PERIOD_S):
                        await self._wake.wait()
                if has_reported:
                    # A watcher that sends many requests must not get a snapshot for each.
                    await asyncio.sleep(began + PERIOD_S - time.monotonic())
                self._wake.clear()
        except TimeoutError:
            # No close frame: it would wait for the reader, too.
            self._transport.abort()
        except ConnectionError:
            pass  # it has disconnected, and its reader ends

    async def _notify(self) -> bool:
        """Sends the changes; False when there were none."""
        has_refused = self._refused is not None
        if self._refused is not None:
            (watch_id, refused), self._refused = self._refused, None
            await self._send(watch_id, {"type": "error", "error": str(refused), "fix": refused.fix})
        request = self._request
        if request is None:
            return has_refused
        if self.is_stale:
            self.is_stale = False
            self._shown.clear()
            self._compared.clear()
            for table in request.tables:
                await self._send(request.id, self._snapshot(request, table))
            return True
        tables = self._changes(request)
        if tables:
            changed = {name: {"put": each.put, "delete": each.delete} for name, each in tables.items()}
            message = {"type": "changes", "applied": self._source.applied(), "tables": changed}
            await self._send(request.id, message)
        return has_refused or bool(tables)

    async def _send(self, watch_id: str, message: dict[str, object]) -> None:
        if watch_id:
            message["id"] = watch_id
        async with asyncio.timeout(SEND_TIMEOUT_S):
            await self.socket.send_str(json.dumps(message, separators=(",", ":")))

    # --- snapshots ----------------------------------------------------------------------------------------------------

    def _snapshot(self, request: WatchRequest, table: str) -> dict[str, object]:
        following: str | None = None
        if table == EVENTS:
            rows = self._new_events(None)
            total = len(rows)
        elif table == OVERVIEW:
            rows, total = [self._overview()], 1
            self._shown[table] = Shown(rows)
        else:
            wanted = request.filter_of(table)
            heads = self._source.heads(table)
            page = page_of(heads, wanted, None, MAX_ROWS)
            rows, following, total = self._source.rows(table, page.heads), page.next, page.total
            if table in MARKED:
                self._shown[table] = ShownAttachments(table, wanted, rows)
            elif table in WHOLE:
                # The watcher requests the rows after the snapshot by cursor.
                self._shown[table] = Shown(self._source.rows(table, heads))
                self._compared[table] = heads
            else:
                self._shown[table] = Shown(rows)
        return {
            "type": "snapshot",
            "table": table,
            "items": rows,
            "next": following,
            "total": total,
            "applied": self._source.applied(),
        }

    def _overview(self) -> Row:
        return {**self._source.overview(), "key": OVERVIEW, "can": self._rights.as_row()}

    def _new_events(self, after: int | None) -> list[Row]:
        page = self._events.after(after, MAX_ROWS)
        self._seen_event = page.next
        return page.items

    # --- changes ------------------------------------------------------------------------------------------------------

    def _changes(self, request: WatchRequest) -> Mapping[str, Changes]:
        found: dict[str, Changes] = {}
        left = MAX_PUTS
        for table in request.tables:
            changes = self._changes_of(request, table, left)
            if changes:
                found[table] = changes
                left -= len(changes.put)
                if left <= 0:
                    break
        return found

    def _changes_of(self, request: WatchRequest, table: str, most: int) -> Changes:
        if table == EVENTS:
            return Changes(self._new_events(self._seen_event) if self._events.last > self._seen_event else [])
        shown = self._shown[table]
        if table == OVERVIEW:
            return shown.compare([self._overview()], most)
        if isinstance(shown, ShownAttachments):
            return shown.changes(self._source, most)
        heads = self._source.heads(table)
        if table in WHOLE:
            if self._compared.get(table) is heads:
                return Changes()
            changes = shown.compare(self._source.rows(table, heads), most)
            if len(changes.put) < most:
                self._compared[table] = heads
            return changes
        page = page_of(heads, request.filter_of(table), None, MAX_ROWS)
        return shown.compare(self._source.rows(table, page.heads), most)
