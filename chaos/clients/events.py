"""The journal of events: what one client process saw, in its own words, one JSON object per line.

The checker judges an experiment by these journals and by the source data alone. One file per client; a client
that is killed and started again appends to its file. Nothing is fsynced: a SIGKILL of the process loses no line
that was written, and only such kills are survived. A line that was being written when the process died is torn:
the reader drops it.

Times are seconds of the machine's monotonic clock, which all its processes share (or of the simulator's clock).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import ClassVar

DIGEST_BYTES = 8
"""64 bits distinguish an altered body from the right one; only equality with one expected value is ever asked."""


class JournalError(Exception):
    """A journal cannot be read as one: not torn at the end of a life, but malformed."""


_KINDS: dict[str, type[Event]] = {}
"""By the name that lines have."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that a client saw."""

    name: ClassVar[str] = ""
    t: float

    def __init_subclass__(cls) -> None:
        """Name it as its class, in lower case and with hyphens."""
        cls.name = re.sub(r"\B([A-Z])", r"-\1", cls.__name__).lower()
        _KINDS[cls.name] = cls


@dataclass(frozen=True, slots=True)
class Opened(Event):
    """A life of the client begins: the first line of every process."""

    client: str
    pid: int = 0


@dataclass(frozen=True, slots=True)
class Attached(Event):
    """The link is attached at a router, with nothing to resume."""

    router: str


@dataclass(frozen=True, slots=True)
class Resumed(Event):
    """The link is attached again with its state kept; `unsettled` is the size of the map that was presented."""

    router: str
    unsettled: int


@dataclass(frozen=True, slots=True)
class Disconnected(Event):
    """The link was lost; the client looks for another router."""

    reason: str = ""


@dataclass(frozen=True, slots=True)
class Sent(Event):
    """The publisher is about to send its message `seq` for the first time (written before the send)."""

    seq: int
    digest: str


@dataclass(frozen=True, slots=True)
class Accepted(Event):
    """The publisher got *accepted* for its message `seq`."""

    seq: int


@dataclass(frozen=True, slots=True)
class Refused(Event):
    """The publisher got another outcome (rejected, released, modified) for its message `seq`."""

    seq: int
    outcome: str


@dataclass(frozen=True, slots=True)
class OutcomeUnknown(Event):
    """The publisher was notified that its session expired: what became of its message `seq` is unknown (A-5)."""

    seq: int


@dataclass(frozen=True, slots=True)
class Incarnation(Event):
    """A subscription incarnation began: the first, or one after an expiry (a gap is possible, G4)."""

    number: int


@dataclass(frozen=True, slots=True)
class Confirmed(Event):
    """The network confirmed the subscription: what is sent from now on is owed to it (A-6)."""


@dataclass(frozen=True, slots=True)
class Received(Event):
    """The subscriber's application was handed a message; `redelivered` is the network's own mark on it."""

    publisher: str
    seq: int
    digest: str
    redelivered: bool = False


@dataclass(frozen=True, slots=True)
class Processed(Event):
    """The application did its work for the message; durably, in one transaction with the acceptance."""

    publisher: str
    seq: int
    digest: str


@dataclass(frozen=True, slots=True)
class Closed(Event):
    """The client ended in good order."""


_FIELDS: dict[str, tuple[str, ...]] = {
    name: tuple(field.name for field in fields(kind)) for name, kind in _KINDS.items()
}


def digest_of(body: bytes) -> str:
    """Compute the digest a journal carries in place of a message's body."""
    return hashlib.blake2b(body, digest_size=DIGEST_BYTES).hexdigest()


def encode_event(event: Event) -> str:
    """One line, without its newline."""
    record: dict[str, object] = {"event": event.name}
    for field in _FIELDS[event.name]:
        record[field] = getattr(event, field)
    return json.dumps(record, separators=(",", ":"))


def decode_event(line: str) -> Event:
    """Decode the event of one line. Raises JournalError for anything that is not one."""
    try:
        record = json.loads(line)
        kind = _KINDS[record.pop("event")]
        return kind(**record)
    except (ValueError, KeyError, TypeError, AttributeError) as fault:
        raise JournalError(f"not an event: {line[:120]!r} ({type(fault).__name__}: {fault})") from fault


def decode_lines(lines: Iterable[str]) -> Iterator[Event]:
    """Decode a journal in order. A line torn by a kill, the last one of a life, is dropped."""
    torn: JournalError | None = None
    for line in lines:
        if not line.strip():
            continue
        try:
            event = decode_event(line)
        except JournalError as fault:
            if torn is not None:
                raise torn from None
            torn = fault
            continue
        if torn is not None and not isinstance(event, Opened):
            raise torn
        torn = None
        yield event


def read_journal(path: Path) -> list[Event]:
    """All events of the journal at `path`; raises JournalError for a line that no kill explains."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return list(decode_lines(file))
    except JournalError as fault:
        raise JournalError(f"{path}: {fault}") from None


class EventJournal:
    """Appends events to one client's journal, one system call per `write`: a kill can tear one line at most."""

    def __init__(self, path: Path) -> None:
        """Open `path` for appending; a torn line of an earlier life is ended so that it stays alone."""
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        size = os.fstat(self._file).st_size
        if size and os.pread(self._file, 1, size - 1) != b"\n":
            self._append(b"\n")

    def write(self, *events: Event) -> None:
        """Append the events, in order."""
        self._append("".join(encode_event(event) + "\n" for event in events).encode())

    def _append(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._file, data) :]

    def close(self) -> None:
        """Close the file; the journal stays readable."""
        os.close(self._file)

    def __enter__(self) -> EventJournal:
        """Serve as a context manager that closes."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the file."""
        self.close()


class JournalTail:
    """Reads what was added to a growing journal since the last look, for progress while it grows."""

    def __init__(self, path: Path) -> None:
        """Follow `path`, which need not exist yet."""
        self._path = path
        self._offset = 0
        self._rest = b""

    def read(self) -> list[Event]:
        """Read the events of the complete lines added since the last call; torn lines are dropped."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                data = file.read()
        except FileNotFoundError:
            return []
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return list(decode_lines(line.decode("utf-8", errors="replace") for line in lines))
