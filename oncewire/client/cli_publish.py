"""What `oncewire pub` does."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import ssl
import stat
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from oncewire.client import (
    Client,
    ClientError,
    ClientEvent,
    Connected,
    Disconnected,
    LinkActive,
    Message,
    NotAccepted,
    Properties,
    Publisher,
    SessionExpired,
    SqliteJournal,
    connect,
)
from oncewire.client.bodies import Body
from oncewire.client.cli_patience import patience, unanswered
from oncewire.wire import Header

BATCH = 256
"""Lines stored in one transaction of the journal."""
STEP_S = 0.5
"""Between two looks at how many are accepted."""
LEAVE_S = 3.0
"""After Ctrl-C: a reply takes milliseconds, and the user waits for the prompt."""
LINE_LIMIT = 64 << 20
"""Bytes of the longest line, the routers' limit of a message."""

Source: TypeAlias = str | tuple[bytes, ...]
"""A file's name, `-` for the standard input, or the messages themselves."""
MakeBody: TypeAlias = Callable[[bytes], Body]
"""Makes what is sent of a line."""
_PLACE = "oncewire_cli_place"


def say(text: str) -> None:
    """Print to stderr; the standard output is for results."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


class Reporter:
    """Prints events while the command runs; a repeated failure is printed once."""

    def __init__(self) -> None:
        self._reported: dict[str, str] = {}
        self._router = ""

    def __call__(self, event: ClientEvent) -> None:
        """Print one event."""
        if isinstance(event, Connected):
            self._reported.clear()
            self._router = event.router or event.address
        elif isinstance(event, LinkActive):
            if event.gap_s > 0:  # not the first time
                say(f"resumed at {self._router} after {spoken_time(event.gap_s)}")
        elif isinstance(event, Disconnected):
            if self._reported.get(event.address) != event.cause:
                say(f"{event.address}: {event.cause}; retrying")
            self._reported[event.address] = event.cause
        elif isinstance(event, SessionExpired):
            say(f"the session expired; {event.messages} messages have an unknown outcome")


def spoken_time(seconds: float) -> str:
    """For people: `98 ms`, `2.4 s`."""
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


@dataclass(frozen=True, slots=True)
class Target:
    """Arguments of both commands: topic, routers, identity."""

    topic: str
    urls: list[str]
    name: str | None
    container_id: str | None
    journal: str | None
    connect_timeout: float
    tls: ssl.SSLContext | None = None
    token: Callable[[], str] | None = None
    hostname: str | None = None
    before_connect: Callable[[], None] | None = None

    @contextmanager
    def open_journal(self) -> Iterator[SqliteJournal | None]:
        """The journal, if there is one, while the block runs."""
        store = None if self.journal is None else SqliteJournal(self.journal)
        try:
            yield store
        finally:
            if store is not None:
                store.close()

    def connect(self, on_event: Callable[[ClientEvent], None] | None, journal: SqliteJournal | None = None) -> Client:
        """The client to be entered."""
        if self.before_connect is not None:
            self.before_connect()
        return connect(
            self.urls,
            container_id=self.container_id,
            journal=journal,
            ssl_context=self.tls,
            timeout=self.connect_timeout,
            token=self.token,
            hostname=self.hostname,
            on_event=on_event,
        )


async def leave(closing: Coroutine[Any, Any, None]) -> None:
    """Close a link after Ctrl-C, waiting for the router only briefly."""
    with suppress(ClientError, TimeoutError):
        async with asyncio.timeout(LEAVE_S):
            await closing


def maker(group: str | None, ttl_s: float | None) -> MakeBody:
    """What makes messages of lines: with this group-id, where there is one (SH-6), and this ttl (E-10)."""
    if group is None and ttl_s is None:
        return bytes
    properties = None if group is None else Properties(group_id=group)
    header = None if ttl_s is None else Header(ttl=max(1, round(1000 * ttl_s)))
    return lambda line: Message(line, header=header, properties=properties)


@dataclass(frozen=True, slots=True)
class Terms:
    """How messages are sent, and how long outcomes are waited for.

    Attributes:
        require: subscriptions that each message must have (I-3c).
        make: makes a message of a line.
        timeout: seconds that the oldest message may wait for its outcome; None = as long as it takes.
        require_processed: subscriptions that must process each message, and not only store it (I-3g).
    """

    require: int = 0
    make: MakeBody = bytes
    timeout: float | None = None
    require_processed: int = 0


async def publish(target: Target, source: Source, show: Callable[[int], None], terms: Terms) -> dict[str, Any]:
    """Send the messages and return the report; `show` is called with how many are accepted."""
    with target.open_journal() as store:
        async with target.connect(Reporter(), store) as client:
            publisher = await client.publisher(
                target.topic, name=target.name, require=terms.require, require_processed=terms.require_processed
            )
            if publisher.recovered:
                say(f"resuming {len(publisher.recovered)} messages of an earlier run")
            begins_at = publisher.next_number
            left: dict[str, object] = {"unanswered": 0}
            try:
                async with patience(publisher, terms.timeout):
                    await _send(publisher, store, source, show, terms.make)
            except TimeoutError:
                assert terms.timeout is not None
                found = await unanswered(publisher, begins_at)
                left = found.report()
                for text in found.lines(terms.timeout, _resume(store, source)):
                    say(text)
                await publisher.suspend()
            except asyncio.CancelledError:
                if publisher.unfinished:
                    say(f"stopped before the end; messages without an outcome: {publisher.unfinished}")
                elif target.name is None:
                    await leave(publisher.close())
                raise
            statistics = publisher.statistics
            return {
                "topic": target.topic,
                "published": statistics.messages,
                "accepted": statistics.accepted,
                "accepted_by_none": statistics.accepted_by_none,
                "accepted_stored": statistics.accepted_stored,
                "not_accepted": statistics.not_accepted,
                **left,
                "resumed_links": statistics.resumed_links,
                "longest_gap_ms": round(1000 * statistics.longest_gap_s),
            }


async def publish_settled(target: Target, source: Source, make: MakeBody = bytes) -> dict[str, Any]:
    """Write each message once, at-most-once, and return the report."""
    async with target.connect(Reporter()) as client:
        publisher = await client.settled_publisher(target.topic, name=target.name)
        async for line in _lines(source):
            await publisher.send(make(line))
        return {"topic": target.topic, "published": publisher.statistics.messages}


async def _send(
    publisher: Publisher, store: SqliteJournal | None, source: Source, show: Callable[[int], None], make: MakeBody
) -> None:
    """Send all messages and wait for their outcomes."""
    if store is not None and isinstance(source, str) and source != "-":
        await _send_file(publisher, store, source, show, make)
        return
    async for line in _lines(source):
        try:
            _ = await publisher.submit(make(line))
        except asyncio.CancelledError:
            say(f"message {publisher.statistics.messages + 1} and those behind it were not sent")
            raise
        show(publisher.statistics.accepted)
    await _wait_for_outcomes(publisher, show)


def _resume(store: SqliteJournal | None, source: Source) -> str:
    """How a later run resumes what has no outcome; empty = none can."""
    if store is None:
        return ""
    if isinstance(source, str) and source != "-":
        return "run the same command again: it resumes these messages and the file, and nothing is processed twice"
    return "a later run with the same --name and --journal resumes them, with --file /dev/null without new ones"


async def _send_file(
    publisher: Publisher, store: SqliteJournal, source: str, show: Callable[[int], None], make: MakeBody
) -> None:
    """Send a file's lines; the journal stores the position with them. A finished file starts from the beginning."""
    path = Path(source).resolve()  # noqa: ASYNC240  # a name on a local disk
    store.connection.execute(f"CREATE TABLE IF NOT EXISTS {_PLACE} (file TEXT PRIMARY KEY, offset INTEGER)")
    row = store.connection.execute(
        f"SELECT offset FROM {_PLACE} WHERE file = ?",  # noqa: S608  # our own constant
        (str(path),),
    ).fetchone()
    with path.open("rb") as file:
        if row is not None:
            say(f"resuming {path} at byte {row[0]}")
            file.seek(row[0])
        while batch := _next_lines(file.readline, make):
            await publisher.submit_many(batch, effect=_move_place(path, file.tell()))
            show(publisher.statistics.accepted)
    await _wait_for_outcomes(publisher, show)
    await publisher.submit_many([], effect=_move_place(path, None))


def _next_lines(readline: Callable[[], bytes], make: MakeBody) -> list[Body]:
    lines: list[Body] = []
    while len(lines) < BATCH and (line := readline()):
        lines.append(make(line.rstrip(b"\r\n")))
    return lines


def _move_place(path: Path, offset: int | None) -> Callable[[sqlite3.Connection], None]:
    """The change of the journal that stores the position in a file; None deletes it."""

    def write(database: sqlite3.Connection) -> None:
        if offset is None:
            database.execute(f"DELETE FROM {_PLACE} WHERE file = ?", (str(path),))  # noqa: S608
        else:
            database.execute(f"INSERT OR REPLACE INTO {_PLACE} VALUES (?, ?)", (str(path), offset))  # noqa: S608

    return write


async def _lines(source: Source) -> AsyncIterator[bytes]:
    """What to send; the standard input may be a terminal or a pipe that is slow."""
    if not isinstance(source, str):
        for message in source:
            yield message
        return
    if source != "-":
        with Path(source).open("rb") as file:  # noqa: ASYNC230  # a file on disk does not keep us waiting
            for line in file:
                yield line.rstrip(b"\r\n")
        return
    if sys.stdin.isatty():
        say("each line you type is a message; Ctrl-D ends")
    mode = os.fstat(0).st_mode
    if os.name == "nt":  # an event loop cannot wait for any standard input there
        async for line in _lines_of_a_thread():
            yield line
        return
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(0)):
        # A file, or /dev/null, which an event loop cannot wait for and never has to.
        for line in sys.stdin.buffer:
            yield line.rstrip(b"\r\n")
        return
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(LINE_LIMIT)
    pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(0), "rb"))
    try:
        while line := await reader.readline():
            yield line.rstrip(b"\r\n")
    finally:
        pipe.close()


async def _lines_of_a_thread() -> AsyncIterator[bytes]:
    """The standard input, read by a thread that nobody waits for: Ctrl-C leaves it behind."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[bytes] = asyncio.Queue()
    may_read = threading.Semaphore(BATCH)

    def read() -> None:
        with suppress(RuntimeError):  # the loop has ended
            for line in iter(sys.stdin.buffer.readline, b""):
                may_read.acquire()
                loop.call_soon_threadsafe(lines.put_nowait, line)
            loop.call_soon_threadsafe(lines.put_nowait, b"")

    threading.Thread(target=read, daemon=True).start()
    while line := await lines.get():
        may_read.release()
        yield line.rstrip(b"\r\n")


async def _wait_for_outcomes(publisher: Publisher, show: Callable[[int], None]) -> None:
    """Wait for all outcomes; the report counts what was not accepted. What it waits for is in the client's warnings."""
    while True:
        try:
            await publisher.flush(STEP_S)
        except NotAccepted as error:
            say(f"{error.what}: {error.why}")
            return
        except TimeoutError:
            show(publisher.statistics.accepted)
        else:
            return
