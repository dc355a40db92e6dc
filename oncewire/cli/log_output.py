"""Writes the logs of a process to stderr: one line an event, as key=value or JSON.

Each line has the name of its event and that of the process, a router or an edge: docs/reference/events.md is the table.
What other loggers of the process report in prose becomes the field `text` of an event; `extra={"event": NAME}` names
it.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

LIBRARY_MESSAGE = "library_message"
"""The event of a line whose logger names none."""


_OF_A_CLIENT = "HttpProcessingError"
"""The name of aiohttp's class of errors that clients make: a client alone has no aiohttp to import it from."""


class _EventFormatter(logging.Formatter):
    """Knows event and fields of each record, of our `EventLog` or not."""

    def __init__(self, name: str = "", kind: str = "router") -> None:
        """`name` is that of the process, which lines of other loggers get, too; `kind` is the field for it."""
        super().__init__()
        self._process = {kind: name}

    def _event(self, record: logging.LogRecord) -> tuple[str, dict[str, object]]:
        fields: dict[str, object] | None = getattr(record, "fields", None)
        if fields is not None:
            return record.getMessage(), fields
        name: str | None = getattr(record, "event", None)
        source = {} if name is not None else {"logger": record.name}
        return name or LIBRARY_MESSAGE, {**self._process, **source, "text": record.getMessage()}


class JsonFormatter(_EventFormatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of one event."""
        event, fields = self._event(record)
        line: dict[str, object] = {"time": _time(record), "level": record.levelname.lower(), "event": event, **fields}
        if getattr(record, "incarnation", ""):
            line["router_rid"] = record.incarnation  # type: ignore[attr-defined]
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class TextFormatter(_EventFormatter):
    """One line of key=value an event; a traceback follows it."""

    def format(self, record: logging.LogRecord) -> str:
        """The line of one event."""
        event, fields = self._event(record)
        words = [_time(record), record.levelname.lower(), event]
        words += [f"{key}={_word(value)}" for key, value in fields.items()]
        line = " ".join(words)
        return line + "\n" + self.formatException(record.exc_info) if record.exc_info else line


def set_up_logging(level: str, form: str, name: str, kind: str = "router") -> None:
    """Send all logs of this process, a router or edge of that name, to stderr in the given form (`text` or `json`)."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(name, kind) if form == "json" else TextFormatter(name, kind))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # What libraries say about single requests is not ours to log.
    logging.getLogger("aiohttp").setLevel(logging.WARNING)
    logging.getLogger("aiohttp.server").addFilter(_is_not_the_clients)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def _is_not_the_clients(record: logging.LogRecord) -> bool:
    """What is no HTTP is answered with 400; anybody can send it, and it is no fault that needs a traceback."""
    error = None if record.exc_info is None else record.exc_info[1]
    return error is None or all(each.__name__ != _OF_A_CLIENT for each in type(error).__mro__)


def set_level(level: str) -> None:
    """Log from this level on: `debug`, `info`, `warning` or `error`."""
    logging.getLogger().setLevel(level.upper())


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _word(value: object) -> str:
    """A value that stays one word of one line: what clients call themselves must not look like a line of its own."""
    text = str(value)
    return text if text and text.isprintable() and not any(c in text for c in ' "=') else json.dumps(text)
