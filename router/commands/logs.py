"""`oncewire logs`: what routers wrote, joined."""

from __future__ import annotations

import gzip
import io
import json
import re
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import BinaryIO, cast

import click

from oncewire.cli.errors import CliError
from router.commands.log_merge_core import LogEntry, merged, parse_time

STDIN = "-"
GZIP_MAGIC = b"\x1f\x8b"
LINE_BYTES = 1 << 20
"""A longer line is cut into several; no router writes one."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


@click.group("logs", short_help="Join the logs of several routers.")
def logs() -> None:
    """Work on what routers have logged."""


@logs.command("merge", short_help="Join several routers' logs to one timeline.")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
@click.option(
    "--since",
    metavar="TIME",
    help="Only from then on: 2026-01-31T12:00:00 (UTC if no zone is said), or 10m, 2h, 1d ago.",
)
@click.option("--router", "routers", multiple=True, metavar="ID", help="Only of this router; may be repeated.")
@click.option("--event", "events", multiple=True, metavar="NAME", help="Only these events; may be repeated.")
def merge(
    files: tuple[str, ...], as_json: bool, since: str | None, routers: tuple[str, ...], events: tuple[str, ...]
) -> None:
    """Join logs of routers to one timeline, in the order of their times.

    FILE is a log in either form (text or JSON), as it is or compressed with gzip; - is the standard input. Lines that
    no router wrote stay behind the line they followed.
    """
    begin = None if since is None else _since(since, datetime.now(UTC))
    if files.count(STDIN) > 1:
        raise CliError("the standard input can be read once", "- is given twice", "give each log once")
    with ExitStack() as stack:
        opened = [(_name(file), _to_the_end(file, _lines(stack, file))) for file in files]
        for entry in merged(opened):
            if _is_wanted(entry, begin, routers, events):
                click.echo(json.dumps(entry.as_data(), default=str) if as_json else entry.as_text())


def _to_the_end(file: str, lines: Iterator[bytes]) -> Iterator[str]:
    try:
        yield from (line.decode("utf-8", "backslashreplace") for line in lines)
    except (OSError, EOFError, zlib.error) as error:
        why = str(error) or type(error).__name__
        raise CliError(f"the log {file} cannot be read to its end", why, "check the file, or leave it out") from None


def _is_wanted(entry: LogEntry, begin: datetime | None, routers: Iterable[str], events: Iterable[str]) -> bool:
    if begin is not None and entry.at < begin:
        return False
    if routers and entry.router not in routers:
        return False
    return not events or entry.event in events


def _since(text: str, now: datetime) -> datetime:
    found = re.fullmatch(r"(\d{1,9})([smhd])", text)
    if found is not None:
        try:
            return now - timedelta(seconds=int(found[1]) * _UNITS[found[2]])
        except OverflowError:
            return datetime.min.replace(tzinfo=UTC)
    at = parse_time(text)
    if at is None:
        raise CliError(
            f"--since {text} cannot be used",
            "it is neither a time nor a time ago",
            "give 2026-01-31T12:00:00, or 30s, 10m, 2h, 1d",
        )
    return at


def _name(file: str) -> str:
    return "stdin" if file == STDIN else Path(file).name


def _lines(stack: ExitStack, file: str) -> Iterator[bytes]:
    """The lines of a file, unpacked if it is packed; opened now, so that a wrong name is reported first."""
    try:
        stream = io.BufferedReader(
            io.FileIO(sys.stdin.fileno(), closefd=False) if file == STDIN else stack.enter_context(io.FileIO(file))
        )
        packed = stream.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC)
    except OSError as error:
        raise CliError(
            f"the log {file} cannot be read", error.strerror or str(error), "give the path of a router's log, or -"
        ) from None
    plain = cast("BinaryIO", stack.enter_context(gzip.GzipFile(fileobj=stream))) if packed else stream
    return iter(lambda: plain.readline(LINE_BYTES), b"")
