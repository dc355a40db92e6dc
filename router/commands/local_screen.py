"""What `oncewire local` prints: for a person on a terminal, for a program elsewhere."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from oncewire.cli import variables
from oncewire.cli.contexts import load_contexts
from oncewire.cli.errors import CliError
from oncewire.cli.program import name_as_typed
from router.commands.local_network import LocalNetwork
from router.settings.config_loading import SETTINGS

_USED = frozenset({SETTINGS["store"].variable, SETTINGS["log_level"].variable})
"""Of settings of a router: `oncewire local` has an option for each of these."""


def note_unused_variables() -> None:
    """Name each variable for a setting of a router that is set here and that a local network does not use."""
    of_router = {each.variable for each in SETTINGS.values()} - set(variables.PURPOSE) | {variables.CONFIG}
    for name in sorted(of_router - _USED):
        if os.environ.get(name):
            click.echo(f"Note: {name} is set. `oncewire local` does not use it; `oncewire router` does", err=True)


@contextmanager
def starting(routers: int, *, as_json: bool) -> Iterator[Callable[[LocalNetwork], None]]:
    """Show that it starts while nothing is ready; what it yields announces that all is."""
    console = Console(highlight=False)
    if as_json or not console.is_terminal:
        yield lambda network: click.echo(json.dumps(network.describe()))
        return
    status = console.status(f"starting etcd and {routers} router{'s' if routers > 1 else ''} ...")

    def announce(network: LocalNetwork) -> None:
        status.stop()
        show(console, network)

    try:
        status.start()
        yield announce
    finally:
        status.stop()


def _etcd_line(network: LocalNetwork) -> str:
    where = f"etcd  {','.join(network.etcd_urls)}"
    # One of our own ends with the network, and its data are not flushed to disk.
    return where if network.etcd is None else f"{where}  {network.etcd.binary.version}, for trying out"


def show(console: Console, network: LocalNetwork) -> None:
    """The network as a table, its page, and what to type next."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("router", "for clients", "page", "process"):
        table.add_column(heading)
    for router in network.routers.values():
        table.add_row(router.id, router.url, router.http, str(router.pid))
    console.print(table)
    first = next(iter(network.routers.values()))
    oncewire = escape(name_as_typed())
    # soft_wrap: whoever copies a command or an address gets it in one piece.
    for line in (
        _etcd_line(network),
        "",
        f"[bold]See it[/]: {first.http}",
        "",
        "[bold]Next[/], type in another terminal:",
        f"  {oncewire} sub orders",
        "and in a third one:",
        f"  {oncewire} pub orders 'two coffees'",
        f"  {oncewire} inspect",
        *_others(oncewire),
        "",
        "Ctrl-C stops it.",
    ):
        console.print(line, soft_wrap=True)


def _others(oncewire: str) -> list[str]:
    """What keeps the commands from finding this network."""
    for variable in (variables.URL, variables.HTTP_URL, variables.CONTEXT):
        if os.environ.get(variable):
            return ["", f"Note: {variable} is set, so these commands go there. To use this network: unset {variable}"]
    try:
        current = load_contexts().current
    except CliError:  # the commands that need them report it
        return []
    note = f"Note: the context {current} is in use, so these commands go there. To use this network: "
    return ["", f"{note}{oncewire} context use --none"] if current else []
