"""What can be asked of a node over the wire: each operation checks its fields and asks the node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import asdict, astuple
from typing import Any

from bridges.node.arrow_bodies import count_topics, encode_batches, range_batch, range_schema
from bridges.node.errors import BadRequest
from bridges.node.journal_tables import JournalMarks
from bridges.node.model import Chunk, Publishing, StagedPart, Writer
from bridges.node.node import BridgeNode
from bridges.node.retention import RELEASED
from bridges.node.snapshots import MAX_SNAPSHOT_TEXT
from oncewire.client.isolation import Isolation
from oncewire.client.put_off import in_thread

MAX_TEXT = 1024
"""Of a name or id in a request."""
MAX_POSITION = (1 << 63) - 1
"""What SQLite can hold."""

_LEVELS = tuple(level.value for level in Isolation)

Header = Mapping[str, Any]
Answer = tuple[dict[str, object], bytes]


def text(header: Header, name: str, limit: int = MAX_TEXT) -> str:
    """A field that is a text.

    Raises:
        BadRequest: it is missing or something else.
    """
    value = header.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= limit:
        raise _bad(name, f"a text of 1 to {limit} characters", value)
    return value


def optional_text(header: Header, name: str) -> str | None:
    """As `text`; None when it is not there."""
    return None if header.get(name) is None else text(header, name)


def number(header: Header, name: str) -> int:
    """A field that is a whole number from 0.

    Raises:
        BadRequest: it is missing or something else.
    """
    value = header.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_POSITION:
        raise _bad(name, "a whole number from 0", value)
    return value


def optional_number(header: Header, name: str) -> int | None:
    """As `number`; None when it is not there."""
    return None if header.get(name) is None else number(header, name)


def seconds(header: Header, name: str) -> float:
    """A field that is a number of seconds, 0.0 when it is not there.

    Raises:
        BadRequest: it is something else.
    """
    value = header.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e9:
        raise _bad(name, "a number of seconds", value)
    return float(value)


def yes_or_no(header: Header, name: str, default: bool = False) -> bool:
    """A field that is true or false; when it is not there, the default.

    Raises:
        BadRequest: it is something else.
    """
    value = header.get(name, default)
    if not isinstance(value, bool):
        raise _bad(name, "true or false", value)
    return value


def texts(header: Header, name: str) -> list[str]:
    """A field that is a list of texts.

    Raises:
        BadRequest: it is something else.
    """
    value = header.get(name)
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise _bad(name, "a list of texts", value)
    return value


def parts(header: Header, name: str) -> list[StagedPart]:
    """A field that is a list of [partition, attempt, chunks, rows].

    Raises:
        BadRequest: it is something else.
    """
    value = header.get(name)
    if not isinstance(value, list):
        raise _bad(name, "a list of [partition, attempt, chunks, rows]", value)
    found = []
    for item in value:
        if not isinstance(item, list) or len(item) != 4:
            raise _bad(name, "a list of [partition, attempt, chunks, rows]", item)
        fields = dict(zip(("partition", "attempt", "chunks", "rows"), item, strict=True))
        found.append(
            StagedPart(
                number(fields, "partition"), text(fields, "attempt"), number(fields, "chunks"), number(fields, "rows")
            )
        )
    return found


def _bad(name: str, wanted: str, value: object) -> BadRequest:
    shown = repr(value)
    return BadRequest(
        f"the field {name!r} of the request cannot be used",
        f"it is {shown if len(shown) <= 80 else shown[:80] + '...'}",
        f"give {wanted}",
    )


def writer(header: Header) -> Writer:
    """Who stages or commits."""
    marks = [yes_or_no(header, name) for name in ("takeover", "repeats", "stands_alone")]
    return Writer(text(header, "query"), text(header, "run"), *marks)


def publishing(header: Header) -> Publishing:
    """How a batch is to be published."""
    return Publishing(
        yes_or_no(header, "resends_in_doubt", default=True),
        yes_or_no(header, "is_atomic"),
        optional_number(header, "require") or 0,
    )


class Operations:
    """The operations by name; each takes the header and body of a request."""

    def __init__(self, node: BridgeNode) -> None:
        self._node = node
        self._storage = node.storage
        self.single: dict[str, Callable[[Header, bytes], Awaitable[Answer]]] = {
            "subscribe": self._subscribe,
            "offsets": self._offsets,
            "initial": self._initial,
            "end": self._end,
            "trim": self._trim,
            "release": self._release,
            "snapshot": self._snapshot,
            "stage": self._stage,
            "commit": self._commit,
            "discard": self._discard,
            "finished": self._finished,
            "status": self._status,
        }

    async def range(self, header: Header) -> AsyncIterator[bytes]:
        """The bodies that answer RANGE, one for each chunk of the range."""
        subscription, low, high = text(header, "subscription"), number(header, "low"), number(header, "high")
        uuid, query = optional_text(header, "journal"), optional_text(header, "query")
        self._node.asked(subscription)
        schema = range_schema()
        chunks = self._storage.read(subscription, low, high, uuid=uuid, query=query)

        def next_body() -> bytes | None:
            chunk: Chunk | None = next(chunks, None)
            return None if chunk is None else encode_batches([range_batch(chunk)], schema)

        try:
            while (body := await in_thread(None, next_body)) is not None:  # its file is closed behind it
                yield body
        finally:
            chunks.close()

    def _marks(self, subscription: str) -> JournalMarks:
        return self._storage.journal(subscription).marks()

    async def _subscribe(self, header: Header, _body: bytes) -> Answer:
        subscription = text(header, "subscription")
        level = optional_text(header, "isolation")
        if level is not None and level not in _LEVELS:
            raise _bad("isolation", " or ".join(_LEVELS), level)
        isolation = None if level is None else Isolation(level)
        await self._node.subscribe(subscription, texts(header, "topics"), isolation)
        marks = await asyncio.to_thread(self._marks, subscription)
        return {"journal": marks.uuid}, b""

    async def _offsets(self, header: Header, _body: bytes) -> Answer:
        subscription = text(header, "subscription")
        low = optional_number(header, "low")
        limits = optional_number(header, "max_rows"), optional_number(header, "max_bytes")
        self._node.asked(subscription)

        found = await asyncio.to_thread(
            lambda: self._storage.offsets(subscription, low, max_rows=limits[0], max_bytes=limits[1])
        )
        ended = self._node.ended.get(subscription, "")
        return {**asdict(found), "gaps": [astuple(gap) for gap in found.gaps], "ended": ended}, b""

    async def _end(self, header: Header, _body: bytes) -> Answer:
        places = number(header, "start"), number(header, "stop")
        subscription = text(header, "subscription")
        stop = await asyncio.to_thread(lambda: self._storage.journal(subscription).choose_end(*places))
        return {"stop": stop}, b""

    async def _initial(self, header: Header, _body: bytes) -> Answer:
        start = header.get("start")
        subscription = text(header, "subscription")
        chosen = number(header, "start") if isinstance(start, int) else text(header, "start")
        position = await asyncio.to_thread(lambda: self._storage.journal(subscription).initial_offset(chosen))
        marks = await asyncio.to_thread(self._marks, subscription)
        return {"journal": marks.uuid, "position": position}, b""

    async def _trim(self, header: Header, _body: bytes) -> Answer:
        subscription, position = text(header, "subscription"), number(header, "position")
        await asyncio.to_thread(self._storage.trim, subscription, position, optional_text(header, "query"))
        self._node.trimmed(subscription)
        return {}, b""

    async def _release(self, header: Header, _body: bytes) -> Answer:
        subscription = text(header, "subscription")
        await asyncio.to_thread(lambda: self._storage.journal(subscription).release())
        is_ended = yes_or_no(header, "ends") and await self._node.end(subscription, RELEASED)
        return {"is_ended": is_ended}, b""

    async def _snapshot(self, header: Header, _body: bytes) -> Answer:
        ends = [text(header, name, MAX_SNAPSHOT_TEXT) for name in ("start", "stop")]
        sink = text(header, "sink")
        stop = await asyncio.to_thread(lambda: self._storage.outbox(sink).choose_snapshot(*ends))
        return {"stop": stop}, b""

    async def _stage(self, header: Header, body: bytes) -> Answer:
        sink, who, batch = text(header, "sink"), writer(header), number(header, "batch")
        part = StagedPart(number(header, "partition"), text(header, "attempt"), 0, 0)
        chunk = number(header, "chunk")

        def stage() -> bool:
            return self._storage.outbox(sink).stage(who, batch, part, chunk, count_topics(body), body)

        return {"is_needed": await asyncio.to_thread(stage)}, b""

    async def _commit(self, header: Header, _body: bytes) -> Answer:
        sink, who, batch = text(header, "sink"), writer(header), number(header, "batch")
        wait_s = seconds(header, "wait_s")
        staged, how = parts(header, "parts"), publishing(header)
        decided = await asyncio.to_thread(lambda: self._storage.outbox(sink).commit(who, batch, staged, how))
        found = await self._node.finished(sink, decided.number, wait_s)
        return {**asdict(found), "is_first": decided.is_first}, b""

    async def _discard(self, header: Header, _body: bytes) -> Answer:
        sink, who, batch = text(header, "sink"), writer(header), number(header, "batch")
        if not who.stands_alone:
            raise _bad("stands_alone", "true: another batch may be run again", False)
        await asyncio.to_thread(lambda: self._storage.outbox(sink).discard(who, batch))
        return {}, b""

    async def _finished(self, header: Header, _body: bytes) -> Answer:
        sink, manifest_number = text(header, "sink"), number(header, "number")
        return asdict(await self._node.finished(sink, manifest_number, seconds(header, "wait_s"))), b""

    async def _status(self, _header: Header, _body: bytes) -> Answer:
        return {"state": await asyncio.to_thread(self._node.state)}, b""
