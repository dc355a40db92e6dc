"""How `oncewire queue` shows items, entries and numbers, and reads what the user typed."""

from __future__ import annotations

import base64
import json
import sys
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from bridges.workqueue.items import HistoryEntry, Json, Schedule, Statistics, Taken, decode
from oncewire.cli.errors import CliError

_LAYOUT = str.maketrans("", "", "\t\n\r")
"""Of characters that cannot be printed, those that stand in texts."""


def payload_words(payload: bytes) -> dict[str, Json]:
    """Return the payload itself where it is JSON or text, and else as base64; `encoding` says which.

    JSON that cannot be written again, as a number beyond those that Python has, is shown as text.
    """
    try:
        value = decode(payload)
        json.dumps(value, allow_nan=False)
        return {"payload": value, "encoding": "json"}
    except (ValueError, RecursionError):
        pass
    with suppress(UnicodeDecodeError):
        text = payload.decode()
        if text.translate(_LAYOUT).isprintable():
            return {"payload": text, "encoding": "text"}
    return {"payload": base64.b64encode(payload).decode(), "encoding": "base64"}


def iso(time: float) -> str:
    """Return a time as people and programs read it."""
    return datetime.fromtimestamp(time, UTC).isoformat(timespec="milliseconds")


def item_words(taken: Taken) -> dict[str, Json]:
    """Return a taken item; `id` is the handle that settles it."""
    return {
        "id": str(taken.handle),
        "item": taken.handle.item,
        "reservation": taken.handle.reservation,
        "queue": taken.queue,
        **payload_words(taken.payload),
        "retries": taken.retries,
        "priority": taken.priority,
        "key": taken.key,
        "created": iso(taken.created),
        "due": iso(taken.due),
        "until": iso(taken.until),
    }


def entry_words(entry: HistoryEntry) -> dict[str, Json]:
    """Return an entry of the history."""
    result = None if entry.result is None else payload_words(entry.result)["payload"]
    return {
        "entry": entry.entry,
        "item": entry.item,
        "queue": entry.queue,
        "ending": entry.ending.value,
        **payload_words(entry.payload),
        "result": result,
        "reason": entry.reason,
        "targets": list(entry.targets),
        "retries": entry.retries,
        "priority": entry.priority,
        "created": iso(entry.created),
        "ended": iso(entry.ended),
    }


def schedule_words(schedule: Schedule) -> dict[str, Json]:
    """Return a schedule."""
    words = asdict(schedule)
    return {**words, **payload_words(schedule.payload), "next_at": iso(schedule.next_at)}


def statistics_words(statistics: Statistics) -> dict[str, Json]:
    """Return a queue in numbers."""
    return asdict(statistics)


def show(words: Json, *, as_json: bool) -> None:
    """Print one result: JSON on a line, or `name: value` pairs."""
    if as_json or not isinstance(words, dict):
        click.echo(json.dumps(words))
    else:
        shown = {name: value for name, value in words.items() if value not in (None, "", [])}
        click.echo("  ".join(f"{name}: {_plain(value)}" for name, value in shown.items()))


def _plain(value: Json) -> str:
    return value if isinstance(value, str) and value.isprintable() else json.dumps(value)


def typed(text: str) -> bytes:
    """Return the bytes of an argument, also where they are no UTF-8."""
    return text.encode(errors="surrogateescape")


def read_body(body: str | None, file: str | None) -> bytes:
    """Return the body that was typed, or that is in a file; in both places ``-`` is the standard input.

    Raises:
        CliError: both or neither is given, or the file cannot be read.
    """
    if (body is None) == (file is None):
        raise CliError(
            "there is no payload", "it takes either BODY or --file", "give one of them; --file - reads stdin"
        )
    if body is not None and body != "-":
        return typed(body)
    file = file or "-"
    try:
        return sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise CliError(f"{file} cannot be read", error.strerror or str(error), "give a file that can be") from None


def read_time(text: str | None) -> float | None:
    """Return a time that was typed: ISO 8601 with a time zone, or Unix seconds.

    Raises:
        CliError: it is neither.
    """
    if text is None:
        return None
    try:
        return float(text)
    except ValueError:
        pass
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise CliError(
            f"{text!r} is no time",
            "it is neither ISO 8601 with a time zone nor Unix seconds",
            "write it like 2026-12-24T18:00:00+01:00",
        )
    return time.timestamp()


def read_fields(texts: tuple[str, ...]) -> dict[str, Any]:
    """Return PATH=VALUE options; a value that is no JSON is a string.

    Raises:
        CliError: there is no equals sign.
    """
    found = {}
    for text in texts:
        path, equals, value = text.partition("=")
        if not equals or not path:
            raise CliError(f"{text!r} is no field", "a field is PATH=VALUE", "write it like order.id=17")
        try:
            found[path] = json.loads(value)
        except ValueError:
            found[path] = value
    return found
