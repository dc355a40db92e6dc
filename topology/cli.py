"""`oncewire inspect`: what one router knows of the network and what it holds, as tables."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from typing import Any

import aiohttp
import click
from rich.console import Console
from rich.table import Table

from oncewire.cli.errors import CliError

DEFAULT_URL = "http://127.0.0.1:8672"
"""Where a router serves HTTP unless its settings say otherwise."""
TIMEOUT_S = 10.0
WIDE = 500
"""Columns of output that goes to no terminal: the two longest names and an address fit."""
STATE_PATH = "/api/v1/state"

_COLUMNS: dict[str, tuple[str, Sequence[str]]] = {
    "routers": ("Routers", ("id", "rid", "amqp", "http", "draining", "leaving")),
    "links": ("Links between routers", ("from", "to", "cost")),
    "subscriptions": (
        "Subscriptions",
        ("name", "topic", "router", "epoch", "incarnation", "mode", "timeout_s", "peer"),
    ),
    "publishers": ("Publishers", ("name", "topic", "router", "epoch", "session", "peer")),
    "windows": (
        "Windows of publishers at this router",
        ("publisher", "topic", "phase", "unsettled", "unreceived", "told", "bytes", "credit", "waiting_for"),
    ),
    "endpoints": (
        "Subscriptions attached to this router",
        ("subscription", "confirmed", "entries", "held", "credit"),
    ),
    "channels": (
        "Channels to other routers",
        ("router", "state", "generation", "sent", "received", "waiting"),
    ),
}
"""Tables in the order they are shown: key in the state, title, columns."""


@click.command("inspect", short_help="Show what a router knows of the network, and what it holds.")
@click.option(
    "--url", default=DEFAULT_URL, show_default=True, metavar="URL", help="The HTTP address of a router."
)
@click.option("--json", "as_json", is_flag=True, help="Print the state as one JSON document.")
def inspect(url: str, as_json: bool) -> None:
    """Show routers, links with their cost, subscriptions with place and epoch, and windows."""
    state = asyncio.run(read_state(url))
    if as_json:
        click.echo(json.dumps(state))
        return
    console = Console()
    if not console.is_terminal:
        # What reads it is a program such as grep, and a folded name is found by none.
        console.width = WIDE
    for table in tables_of(state):
        console.print(table.title, style="italic", soft_wrap=True)
        table.title = None
        console.print(table)


async def read_state(url: str) -> dict[str, Any]:
    """The state of the router at `url`.

    Raises:
        CliError: no router answers there.
    """
    address = url.rstrip("/") + STATE_PATH
    fix = "give --url the HTTP address of a running router; its log and `oncewire local` name it"
    if not url.startswith(("http://", "https://")):
        raise CliError(f"{url!r} is no HTTP address", "it does not begin with http:// or https://", fix)
    try:
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_S)
        async with aiohttp.ClientSession(timeout=timeout) as session, session.get(address) as answer:
            if answer.status != 200:
                raise CliError(f"no router answers at {url}", f"{address} answered HTTP {answer.status}", fix)
            state = await answer.json()
    except (aiohttp.ClientError, ValueError, TimeoutError) as error:
        raise CliError(f"no router answers at {url}", _reason(error), fix) from None
    if not isinstance(state, dict):
        raise CliError(f"no router answers at {url}", f"{address} is no JSON object", fix)
    return state


def _reason(error: Exception) -> str:
    """Why there is no state, in words for people: aiohttp's quote its own settings."""
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT_S:g} s"
    if isinstance(error, aiohttp.InvalidURL):
        return "the address cannot be read"
    if isinstance(error, aiohttp.ContentTypeError | aiohttp.ClientPayloadError | json.JSONDecodeError):
        return "what answers there is no router's HTTP listener"
    if isinstance(error, aiohttp.ClientResponseError | aiohttp.ServerDisconnectedError):
        return "what answers there does not speak HTTP"
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else None
    if isinstance(cause, ConnectionError) and cause.errno:
        return os.strerror(cause.errno)
    return str(error) or type(error).__name__


def tables_of(state: dict[str, Any]) -> list[Table]:
    """One table for each part of the state; a part without rows is shown empty."""
    missing = state.get("waiting_for") or []
    status = f"waits for {', '.join(missing)}" if missing else "ready"
    tables = [_head(state, status)]
    for key, (title, columns) in _COLUMNS.items():
        table = Table(title=title, title_justify="left")
        for column in columns:
            table.add_column(column.replace("_", " "), overflow="fold")
        for row in state.get(key, []):
            table.add_row(*(_cell(column, row.get(column)) for column in columns))
        tables.append(table)
    return tables


def _head(state: dict[str, Any], status: str) -> Table:
    table = Table(title="Router", title_justify="left", show_header=False)
    applied = str(state.get("applied", "-"))
    for name, value in (
        ("id", state.get("router")),
        ("incarnation", _cell("rid", state.get("rid"))),
        ("version", state.get("version")),
        ("status", status),
        ("applied revision", applied),
        ("client connections", state.get("connections")),
    ):
        table.add_row(name, str(value))
    return table


def _cell(column: str, value: object) -> str:
    if column == "rid" and isinstance(value, int):
        return f"{value:x}"
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    if isinstance(value, bool):
        return "yes" if value else ""
    return "" if value is None else str(value)
