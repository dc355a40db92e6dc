"""`oncewire pub` and `oncewire sub`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from oncewire.cli import variables
from oncewire.cli.errors import CliError
from oncewire.cli.progress import progress_of
from oncewire.cli.tls import tls_of_command, tls_options
from oncewire.cli.token import token_of_command, token_option
from oncewire.cli.where import (
    CONNECT_S,
    DEFAULT_URL,
    PRECEDENCE,
    amqp_addresses,
    context_option,
    hostname_of,
    require_listener,
)

if TYPE_CHECKING:
    from oncewire.client.cli_publish import Target
    from oncewire.client.opening import Opening
    from oncewire.client.subscriber import Subscriber

_Command = Callable[..., Any]
MAX_REQUIRE = 0xFFFFFFFF
"""Of a uint (I-3c)."""
UNANSWERED = 3
"""Exit code: neither yes nor no, but not known yet."""
MAX_TTL_S = 0xFFFFFFFF / 1000
"""Of a uint, in milliseconds (AMQP 3.2.1)."""
T = TypeVar("T")


def router_options(command: _Command) -> _Command:
    """Options of all commands that connect as a client; they give them to `target_of`."""
    for option in reversed(
        (
            click.option(
                "--url",
                "urls",
                multiple=True,
                envvar=variables.URL,
                metavar="URL",
                help="Address of a router, amqp(s):// or ws(s)://[USER:PASSWORD@]HOST[:PORT]; may be repeated. "
                f"[{PRECEDENCE.format(variable=variables.URL, default=DEFAULT_URL)}]",
            ),
            click.option(
                "--vhost", metavar="NAME", help="Virtual host of the routers. [that of the user, or of the URL]"
            ),
            click.option(
                "--connect-timeout",
                type=click.FloatRange(min=0, min_open=True),
                default=None,
                metavar="SECONDS",
                help=f"How long to try to reach a router at the start. [{CONNECT_S:g}; none at all where no address is "
                "given and nobody listens at the default one]",
            ),
            click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        )
    ):
        command = option(command)
    return context_option(tls_options(token_option(command)))


def _common_options(command: _Command) -> _Command:
    """Options of `pub` and `sub`."""
    for option in reversed(
        (
            click.option("--name", metavar="NAME", help="Name of the link, so that a later run can resume it."),
            click.option(
                "--container-id",
                metavar="ID",
                help="Identity of this program. [the one kept in --journal, else USER@HOST with --name, else random]",
            ),
            click.option(
                "--journal",
                type=click.Path(dir_okay=False),
                metavar="FILE",
                help="Keep unsettled messages in this SQLite file, so that they survive a crash of this program.",
            ),
        )
    ):
        command = option(command)
    return router_options(command)


def target_of(
    topic: str,
    urls: tuple[str, ...],
    vhost: str | None,
    connect_timeout: float | None,
    *,
    name: str | None = None,
    container_id: str | None = None,
    journal: str | None = None,
) -> Target:
    """What `router_options` came to.

    Raises:
        CliError: there is no such context. `Target.connect` raises it, too: no address was given, and nobody listens.
    """
    from oncewire.client.cli_publish import Target

    where = amqp_addresses(urls)
    # Later: what is wrong with the journal is reported first.
    check = partial(require_listener, where) if where.is_guessed and connect_timeout is None else None
    return Target(
        topic,
        list(where.urls),
        name,
        container_id,
        journal,
        CONNECT_S if connect_timeout is None else connect_timeout,
        tls_of_command(),
        token_of_command(),
        hostname_of(where, vhost),
        check,
    )


@click.command("pub", short_help="Send messages, and wait for their outcomes.")
@click.argument("topic")
@click.argument("messages", nargs=-1, metavar="[MESSAGE]...")
@click.option(
    "--file",
    "-f",
    "source",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="Send each line of this file; - is the standard input. [-, where no MESSAGE is given]",
)
@click.option(
    "--settled",
    is_flag=True,
    help="At-most-once: write each message once and wait for no outcome; what a fault hits is lost.",
)
@click.option(
    "--require",
    type=click.IntRange(min=1, max=MAX_REQUIRE),
    metavar="N",
    help="Send a message only if the topic has N subscriptions or more; else it is released, and sent to nobody.",
)
@click.option(
    "--require-processed",
    type=click.IntRange(min=1, max=MAX_REQUIRE),
    metavar="N",
    help="Likewise N subscriptions that process it: those that only store messages, as journals and work queues do, "
    "do not count.",
)
@click.option(
    "--group",
    metavar="ID",
    help="Group-id of all messages: subscribers that share by group get them in order, one subscriber at a time.",
)
@click.option(
    "--ttl",
    type=click.FloatRange(min=0, max=MAX_TTL_S, min_open=True),
    metavar="SECONDS",
    help="How long each message is worth sending; it counts where the policy of the topic has ttl_s.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Stop when the oldest message has waited so long for its outcome; says which subscriptions owe it. "
    "[as long as it takes]",
)
@_common_options
def pub(
    topic: str,
    messages: tuple[str, ...],
    source: str | None,
    settled: bool,
    require: int | None,
    require_processed: int | None,
    group: str | None,
    ttl: float | None,
    timeout: float | None,
    urls: tuple[str, ...],
    name: str | None,
    container_id: str | None,
    journal: str | None,
    vhost: str | None,
    connect_timeout: float | None,
    as_json: bool,
) -> int:
    """Send each MESSAGE, or each line of a file or of the standard input, and wait until all have an outcome.

    The MESSAGE - is the standard input.

    A message counts as accepted when every subscription has processed it, or stored it, as journals and work queues do.
    What was only stored is counted, and so is what had no subscription; with --require-processed or --require it is not
    accepted. With --journal and --file an interrupted run resumes where it stopped. Exit
    code 1: some messages were not accepted; 3: with --timeout, some have no outcome yet.
    """
    from oncewire.client import cli_publish

    if messages and source is not None:
        raise click.UsageError("messages come from the command line or from --file, not from both")
    if "-" in messages and len(messages) > 1:
        raise click.UsageError("- is the standard input, and no message stands beside it")
    given = "-" if messages == ("-",) else tuple(map(os.fsencode, messages)) or source or "-"
    identity = _identity(name, container_id, journal)
    target = target_of(topic, urls, vhost, connect_timeout, name=name, container_id=identity, journal=journal)
    make = cli_publish.maker(group, ttl)
    if settled:
        _refuse_journal(journal, "sent")
        for option, value in (("--require", require), ("--require-processed", require_processed)):
            if value is not None:
                raise click.UsageError(f"{option} needs outcomes, and --settled waits for none")
        if timeout is not None:
            raise click.UsageError("--timeout is about outcomes, and --settled waits for none")
        report = run_client(cli_publish.publish_settled(target, given, make))
    else:
        # Whoever types sees what was typed.
        is_typed = given == "-" and sys.stdin.isatty()
        with progress_of("accepted", None, is_wanted=not is_typed) as show:
            terms = cli_publish.Terms(require or 0, make, timeout, require_processed or 0)
            report = run_client(cli_publish.publish(target, given, show, terms))
    if as_json:
        click.echo(json.dumps(report))
    elif settled:
        click.echo(f"published {report['published']}, settled")
    else:
        left = f", {report['unanswered']} without an outcome" if report["unanswered"] else ""
        accepted = _accepted_text(report)
        click.echo(f"published {report['published']}, {accepted}{left}")
    if report.get("not_accepted", 0):
        return 1
    return UNANSWERED if report.get("unanswered") else 0


def _accepted_text(report: Mapping[str, int]) -> str:
    accepted, by_none, stored = report["accepted"], report["accepted_by_none"], report["accepted_stored"]
    if accepted and by_none == accepted:
        return f"accepted {accepted} by 0 subscriptions"
    if accepted and stored == accepted:
        return f"accepted {accepted}: stored, and not processed yet"
    text = f"accepted {accepted}" + (f", {by_none} of them by 0 subscriptions" if by_none else "")
    return text + (f", {stored} of them stored, and not processed yet" if stored else "")


@click.command("sub", short_help="Print the messages of a topic.")
@click.argument("topic")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Stop after this many messages.")
@click.option("--unsubscribe", is_flag=True, help="At the end delete the subscription, although it has a name.")
@click.option(
    "--settled",
    is_flag=True,
    help="At-most-once: no publisher waits for this subscription; what a fault hits, or has no room here, is lost.",
)
@click.option(
    "--start",
    metavar="START",
    help="Of a journal: first, last, next, a position, or a time such as 2026-01-31T12:00 (UTC). [first]",
)
@click.option(
    "--share", metavar="NAME", help="Share this subscription: each message goes to one of those that share it."
)
@click.option(
    "--by-group", is_flag=True, help="With --share: messages of a publisher with one group-id stay with one, in order."
)
@click.option(
    "--selector",
    metavar="CONDITION",
    help="Only messages for which this is true, such as \"color = 'red' AND size > 3\".",
)
@click.option(
    "--deduplicate",
    is_flag=True,
    help="Print a message once although its publisher sends it again: by user and message-id, 2048 of each user.",
)
@_common_options
def sub(
    topic: str,
    count: int | None,
    unsubscribe: bool,
    settled: bool,
    start: str | None,
    share: str | None,
    by_group: bool,
    selector: str | None,
    deduplicate: bool,
    urls: tuple[str, ...],
    name: str | None,
    container_id: str | None,
    journal: str | None,
    vhost: str | None,
    connect_timeout: float | None,
    as_json: bool,
) -> None:
    """Print the messages of a topic or pattern, or of journal://NAME, one a line, until --count or Ctrl-C.

    In a pattern * matches one word between dots and # matches the rest: orders.*.eu or orders.#

    With --name the subscription is kept for a minute after the end, and a later run gets what was sent meanwhile;
    without one it ends with the command. A message is accepted when it is printed. Of a journal, --name keeps a cursor,
    where a later run goes on.
    """
    from oncewire.client import cli_subscribe

    identity = _identity(name, container_id, journal)
    target = target_of(topic, urls, vhost, connect_timeout, name=name, container_id=identity, journal=journal)
    if settled:
        _refuse_journal(journal, "received")
    terms: dict[str, Any] = {"selector": selector, "share": share, "by_group": by_group, "deduplicate": deduplicate}
    open_on = _reader(topic, start, terms) or (lambda client, **link: client.subscriber(topic, **link, **terms))
    run_client(
        cli_subscribe.subscribe(
            target,
            count=count,
            unsubscribe=unsubscribe,
            as_json=as_json,
            open_on=partial(open_on, name=name, settled=settled),
        )
    )


def _reader(topic: str, start: str | None, terms: Mapping[str, object]) -> Callable[..., Opening[Subscriber]] | None:
    """What opens a reader of a journal; None: the address is a topic."""
    from oncewire.client.errors import UsageError
    from oncewire.client.source_terms import JOURNAL, start_in

    if not topic.startswith(JOURNAL):
        if start is not None:
            raise click.UsageError(f"--start is of a journal, {JOURNAL}NAME; a topic gives what is sent from now on")
        return None
    given = [name.replace("_", "-") for name, value in terms.items() if value]
    if given:
        raise click.UsageError(f"--{given[0]} is of a topic; a reader of a journal gets all of it")
    try:
        begin = "first" if start is None else start_in(start)
    except UsageError as error:
        raise CliError(error.what, error.why, error.fix) from None
    return lambda client, **link: client.journal(topic.removeprefix(JOURNAL), start=begin, **link)


def _refuse_journal(journal: str | None, done: str) -> None:
    if journal is not None:
        raise CliError(
            f"the journal {journal} cannot be used",
            f"with --settled nothing that is {done} is kept",
            "leave out --journal or --settled",
        )


def _identity(name: str | None, container_id: str | None, journal: str | None) -> str | None:
    """The container-id: a named link keeps it from run to run; None = the journal's, or a random one."""
    if journal is not None and name is None:
        raise CliError(
            f"the journal {journal} cannot be used",
            "the link has no name, so the next run could not resume it",
            "add --name NAME",
        )
    if container_id is None and name is not None and journal is None:
        import getpass
        import socket

        return f"{getpass.getuser()}@{socket.gethostname()}"
    return container_id


def run_client(job: Coroutine[Any, Any, T]) -> T:
    """Run it; SIGTERM stops it in order, and the client's errors are shown in the usual shape."""
    import asyncio  # here, because `--help` runs nothing

    from oncewire.client.errors import ClientError

    try:
        return asyncio.run(_until_sigterm(job))
    except ClientError as error:
        raise CliError(error.what, error.why, error.fix) from error
    except asyncio.CancelledError:
        raise click.Abort from None


async def _until_sigterm(job: Awaitable[T]) -> T:
    import asyncio
    import signal

    task = asyncio.ensure_future(job)
    with suppress(NotImplementedError):  # Windows has no such signal
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    return await task
