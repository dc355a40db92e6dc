"""`oncewire inspect`: what a network of routers does, and why anything waits."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import Any

import click

from oncewire.cli.errors import CliError
from oncewire.cli.nouns import Noun
from topology.inspector.ask_cli import Api, Authorization
from topology.inspector.follow_cli import DELIVERY, Wanted, document_of, documents_of
from topology.inspector.login_cli import authorization_of, login_option, network_options, url_of
from topology.inspector.parameters_core import MAX_TEXT, tag_of
from topology.inspector.rows_core import COLLECTIONS, EVENTS, OF_ATTACHMENTS, OVERVIEW, TOPICS, InputError
from topology.inspector.schema.catalogue import STORED

WHAT = (OVERVIEW, *COLLECTIONS, *STORED, DELIVERY, EVENTS)
WITH_TOPICS = (TOPICS, *OF_ATTACHMENTS)
WITHOUT_ROUTERS = (TOPICS, "connections", *STORED)
"""Of the whole network, or of the router that is asked."""
TERMINAL_ROWS = 100
"""Rows shown on a terminal unless asked for otherwise: what scrolls by is read by nobody."""


@click.command("inspect", short_help="Show what the network does, and why anything waits.")
@click.argument("what", default=OVERVIEW, metavar="[WHAT]", type=Noun(WHAT))
@click.argument("tag", default="", metavar="[TAG]")
@network_options
@login_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document; with --watch one line for each change.")
@click.option("--watch", is_flag=True, help="Show changes until Ctrl-C.")
@click.option("--network", is_flag=True, help="Ask all routers: each alone knows how its clients are.")
@click.option("--topic", default="", metavar="TOPIC", help="Only what is of this topic.")
@click.option("--router", default="", metavar="ROUTER", help="Only what is at this router, by its id or rid.")
@click.option("--match", default="", metavar="TEXT", help="Only rows whose name contains this text.")
@click.option("--publisher", default="", metavar="NAME", help="Whose delivery: for tags that publishers gave.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="ROWS",
    help=f"Show at most so many rows. Default: {TERMINAL_ROWS} on a terminal, else all.",
)
def inspect(
    what: str,
    tag: str,
    url: str | None,
    user: str | None,
    as_json: bool,
    watch: bool,
    network: bool,
    topic: str,
    router: str,
    match: str,
    publisher: str,
    limit: int | None,
) -> None:
    """Show the router at URL and the network as it knows it.

    WHAT is routers, links, topics, subscriptions, publishers, waits, channels, neighbours, connections, events, queues
    or journals (of the router's setting queue_store), or delivery with its TAG in hex; without it, an overview and what
    waits and why.
    """
    _check(what, tag, network, {"--topic": topic, "--router": router, "--match": match}, publisher)
    from topology.inspector.show_cli import console

    if limit is None and not as_json and console().is_terminal:
        limit = TERMINAL_ROWS
    wanted = Wanted(what, tag, publisher, topic, router, match, network, limit)
    address = url_of(url)
    login = authorization_of(user)
    asyncio.run(_watch(address, login, wanted, as_json) if watch else _show(address, login, wanted, as_json))


def _check(what: str, tag: str, network: bool, filters: dict[str, str], publisher: str) -> None:
    """Refuse options that would do nothing.

    Raises:
        CliError: one would.
    """
    error = "`oncewire inspect` cannot be run as it was typed"
    if what == DELIVERY and not tag:
        fix = "give the network tag in hex, such as `oncewire inspect waits` names, or a publisher's with --publisher"
        raise CliError(error, "no delivery is named", fix)
    if what == DELIVERY:
        try:
            tag_of(tag)
        except InputError as refused:
            raise CliError(error, str(refused), refused.fix) from None
    if what != DELIVERY and tag:
        raise CliError(error, f"{what} takes no {tag!r}", "use --match to look for names")
    given = [option for option, value in filters.items() if value]
    if given and what in (OVERVIEW, DELIVERY, EVENTS):
        raise CliError(error, f"{what} is not filtered by {given[0]}", "leave it out, or name a table")
    if filters["--topic"] and what not in WITH_TOPICS:
        raise CliError(error, f"{what} have no topic", f"--topic is for {', '.join(WITH_TOPICS)}")
    if filters["--router"] and what in WITHOUT_ROUTERS:
        raise CliError(error, f"{what} are not those of one router", "leave --router out; --url says whom to ask")
    for option, value in {**filters, "--publisher": publisher}.items():
        try:
            if len(value.encode()) > MAX_TEXT:
                raise CliError(error, f"{option} is longer than {MAX_TEXT} bytes", "give a part of the name")
        except UnicodeEncodeError:
            raise CliError(error, f"{option} is not UTF-8", "give it as it is shown") from None
    if network and what in STORED:
        raise CliError(error, f"{what} are those of one store, whoever is asked", "leave --network out")
    if publisher and what != DELIVERY:
        raise CliError(error, f"{what} is not filtered by --publisher", "use --match")


async def _show(url: str, login: Authorization | None, wanted: Wanted, as_json: bool) -> None:
    async with Api.at(url, login) as api:
        document = await document_of(api, wanted)
    _print(wanted, document, as_json)


async def _watch(url: str, login: Authorization | None, wanted: Wanted, as_json: bool) -> None:
    from rich.live import Live

    from topology.inspector.show_cli import console, shown

    out = console()
    async with (
        Api.at(url, login) as api,
        aclosing(documents_of(api, wanted, with_ages=out.is_terminal and not as_json)) as documents,
    ):
        if as_json or not out.is_terminal:
            async for document in documents:
                _print(wanted, document, as_json)
            return
        with Live(console=out, screen=True, auto_refresh=False) as live:
            async for document in documents:
                live.update(shown(wanted.name, document, out.width), refresh=True)


def _print(wanted: Wanted, document: dict[str, Any], as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(document))
        return
    from topology.inspector.show_cli import console, shown

    out = console()
    out.print(shown(wanted.name, document, out.width))
