"""`oncewire bridge`: edges to other worlds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from oncewire.cli.errors import CliError
from oncewire.cli.tls import tls_of_command, tls_options

if TYPE_CHECKING:
    from bridges.node.client import RemoteNode

json_option = click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")


@click.group("bridge", short_help="Run a bridge to another world.")
def bridge() -> None:
    """Bridges between topics and what is no topic."""


@bridge.command("node", short_help="Run a bridge node: journals and outboxes for pipelines.")
@click.option("--config", "-c", "file", metavar="FILE", help="Settings as TOML.")
@click.option("--print-config", is_flag=True, help="Print every setting with what is allowed, and stop.")
@click.option("--announce", is_flag=True, help="Print one line of JSON on stdout when pipelines can connect.")
def node(file: str | None, print_config: bool, announce: bool) -> None:
    """Run a bridge node until SIGTERM or Ctrl-C.

    It receives subscriptions into durable journals, from which pipelines read in batches, and publishes what their
    batches have decided. Needs the extra `node` or `spark`.
    """
    from bridges.node.settings_loading import explain, load

    if print_config:
        click.echo(explain())
        return
    if file is None:
        raise CliError(
            "no bridge node can be run",
            "it has no settings",
            "give --config FILE; `oncewire bridge node --print-config` explains what may be in it",
        )
    from bridges.node.running import run_node

    run_node(load(file), announce=announce)


@bridge.command("status", short_help="Show what a bridge node is doing.")
@click.argument("address", metavar="ADDRESS")
@click.option("--secret-file", required=True, metavar="FILE", help="The node's secret.")
@tls_options
@json_option
def status(address: str, secret_file: str, as_json: bool) -> None:
    """Print the state of the bridge node at ADDRESS (tcp://HOST:PORT, tls://HOST:PORT or unix:///PATH)."""
    from bridges.node.errors import NodeError

    try:
        with _remote(address, secret_file) as remote:
            found = remote.status()
    except NodeError as error:
        raise CliError(error.what, error.why, error.fix) from None
    click.echo(json.dumps(found) if as_json else "\n".join(_lines(found)))


def _remote(address: str, secret_file: str) -> RemoteNode:
    """A client of the node, with the TLS options of the command.

    Raises:
        NodeError: address, secret or files cannot be used.
        CliError: a file of the options cannot be used.
    """
    from bridges.doors.tls import NO_FILES
    from bridges.node.client import RemoteNode, read_secret

    return RemoteNode(address, read_secret(Path(secret_file)), patience_s=0.0, tls=tls_of_command() or NO_FILES)


def _lines(state: Mapping[str, object], depth: int = 0) -> Iterator[str]:
    """One line for each value, below the names of what it belongs to."""
    for name, value in state.items():
        if isinstance(value, Mapping) and value:
            yield f"{'  ' * depth}{name}"
            yield from _lines(value, depth + 1)
        elif isinstance(value, list | Mapping):
            yield f"{'  ' * depth}{name}: {', '.join(map(str, value)) or '-'}"
        else:
            yield f"{'  ' * depth}{name}: {json.dumps(value) if not isinstance(value, str) else value or '-'}"


@bridge.command("release", short_help="End a subscription that a query has left behind.")
@click.argument("address", metavar="ADDRESS")
@click.argument("subscription")
@click.option("--secret-file", required=True, metavar="FILE", help="The node's secret.")
@click.option("--keep", is_flag=True, help="Go on receiving it, for a new query that takes its place.")
@tls_options
@json_option
def release(address: str, subscription: str, secret_file: str, keep: bool, as_json: bool) -> None:
    """Take SUBSCRIPTION of the bridge node at ADDRESS from its query, and end it: its topics no longer wait for it.

    The query that owned it can never read it again: its checkpoint and the journal would not fit any more. A new query
    reads from the oldest message that is kept. Without --keep it misses what is sent until it subscribes. A
    subscription of the node's settings is only taken from its query.
    """
    from bridges.node.errors import NodeError

    try:
        with _remote(address, secret_file) as remote:
            is_ended = remote.release(subscription, ends=not keep)
            ended = remote.status()["ended"]
    except NodeError as error:
        raise CliError(error.what, error.why, error.fix) from None
    released = {"subscription": subscription, "released": True, "ended": subscription in ended, "deleted": is_ended}
    click.echo(json.dumps(released) if as_json else f"{subscription} belongs to no query now; {_after(released)}")


def _after(released: Mapping[str, object]) -> str:
    if released["deleted"]:
        return "it has ended, and no publisher waits for it"
    if released["ended"]:
        return "it has ended; the network did not confirm that it is deleted, and deletes it after its timeout_s"
    return "the node goes on receiving it"
