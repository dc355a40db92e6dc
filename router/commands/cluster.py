"""`oncewire cluster`: the network as etcd holds it, and a new nonce after a restore."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import click

from oncewire.cli import variables
from oncewire.cli.errors import CliError
from oncewire.cli.progress import waiting_for
from oncewire.settings.options_cli import setting_options
from router.incarnations.store_setup import store_factory
from router.settings.config import RouterConfig
from router.settings.config_loading import SETTINGS, SHORT_FLAGS, load
from topology.etcd.store import ClusterStore, StoreError
from topology.members.cluster import ChangedMeanwhile, ClusterState, RoutersLive, begin_new_life, read_cluster

WAIT_S = 15.0
"""Longer than the default lease: router keys out of a backup end by themselves within it."""
SHOWN_ROUTERS = 8
"""Named in an error; the number is always stated."""
_STORE_SETTINGS = {name: each for name, each in SETTINGS.items() if name.startswith(("etcd_", "store"))}

_NEXT = """\
Start the routers now. Then
- a publisher with unfinished deliveries is refused once with oncewire:session-expired: the outcome of exactly these is
  unknown, and its application decides whether to send them again, marked as in doubt;
- a subscriber gets a new incarnation; what its map holds of before stays until its application ends it;
- what is sent from now on is neither lost nor processed twice."""


@click.group("cluster", short_help="Show the network as etcd holds it; give it a new nonce after a restore.")
def cluster() -> None:
    """Work on the network as a whole, at its etcd. No router needs to run."""


def _common(command: Callable[..., object]) -> Callable[..., object]:
    for option in (
        setting_options(_STORE_SETTINGS, SHORT_FLAGS),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
        click.option("--config", "-c", "file", envvar=variables.CONFIG, metavar="FILE", help="A router's settings."),
    ):
        command = option(command)
    return command


@cluster.command("show", short_help="Show routers, nonce and counts.")
@_common
def show(file: str | None, as_json: bool, **flags: Any) -> None:
    """Show what etcd holds of this network: nonce, routers, and how many links."""
    config = load(file, flags, os.environ).config
    _print(_run(config, read_cluster), as_json)


@cluster.command("new-nonce", short_help="After etcd was restored from a backup, before routers are started.")
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0, 3600),
    default=WAIT_S,
    show_default=True,
    metavar="SECONDS",
    help="Wait so long for router keys to end; those of the backup do by themselves.",
)
@click.option(
    "--force",
    is_flag=True,
    help="Write it although router keys are there. Their routers end what they do at once and begin anew.",
)
@_common
def new_nonce(wait_s: float, force: bool, file: str | None, as_json: bool, **flags: Any) -> None:
    """Give the network a new nonce, so that nothing of before the restore is taken for something of after it.

    To be run after etcd was restored from a backup, with all routers stopped. Every publisher session of before ends.
    """
    config = load(file, flags, os.environ).config
    try:
        with waiting_for("waiting for the keys of routers to end ..."):
            state = _run(config, lambda store: begin_new_life(store, wait_s=wait_s, force=force))
    except RoutersLive as found:
        raise CliError(
            "the cluster nonce is not changed",
            f"routers are at work: {_named(found)}. They have keys in etcd, also after {wait_s:g} s",
            "stop all routers and run this again; --force changes it all the same, and ends what they are doing",
        ) from None
    except ChangedMeanwhile:
        raise CliError(
            "the cluster nonce is not changed by this command",
            "somebody else changed it at the same time",
            "look with `oncewire cluster show`; once is enough",
        ) from None
    _print(state, as_json)
    if not as_json:
        click.echo(_NEXT)


def _run(config: RouterConfig, work: Callable[[ClusterStore], Awaitable[ClusterState]]) -> ClusterState:
    async def run() -> ClusterState:
        store = store_factory(config)()
        try:
            return await work(store)
        finally:
            await store.close()

    try:
        return asyncio.run(run())
    except StoreError as error:
        raise CliError(
            f"the network at {', '.join(config.etcd_endpoints)} cannot be read or changed",
            str(error),
            "give --etcd the URLs of the etcd its routers use, or --config one of their files",
        ) from None


def _named(found: RoutersLive) -> str:
    names = sorted({record.node_id for record in found.routers.values()})
    more = "" if len(names) <= SHOWN_ROUTERS else f" and {len(names) - SHOWN_ROUTERS} more"
    return ", ".join(names[:SHOWN_ROUTERS]) + more


def described(state: ClusterState) -> Mapping[str, object]:
    """The state as a JSON document."""
    return {
        "etcd_id": f"{state.etcd_id:x}",
        "revision": state.revision,
        "nonce": None if state.life is None else state.life.nonce.hex(),
        "era": None if state.life is None else state.life.era,
        "nonce_revision": state.life_revision,
        "needs_new_nonce": bool(state.why_restored),
        "why": state.why_restored,
        "routers": [
            {"id": record.node_id, "rid": rid, "version": record.version, "amqp": record.amqp, "http": record.http}
            for rid, record in sorted(state.routers.items(), key=lambda item: item[1].node_id)
        ],
        "subscriptions": state.subscriptions,
        "publishers": state.publishers,
        "ended_sessions": state.ended_sessions,
    }


def _print(state: ClusterState, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(described(state)))
        return
    if state.life is None:
        nonce = "unreadable" if state.life_revision else "none: no router was ever here"
    else:
        nonce = f"{state.life.nonce.hex()}, written at revision {state.life_revision}"
    ended = f", {state.ended_sessions} of them with a session of before the nonce" if state.ended_sessions else ""
    click.echo(f"etcd cluster   {state.etcd_id:x} at revision {state.revision}")
    click.echo(f"cluster nonce  {nonce}")
    click.echo(f"subscriptions  {state.subscriptions}")
    click.echo(f"publishers     {state.publishers}{ended}")
    click.echo(f"routers        {len(state.routers)}")
    for record in sorted(state.routers.values(), key=lambda record: record.node_id):
        click.echo(f"  {record.node_id}  {record.rid:x}  {record.version}  {record.amqp}")
    if state.why_restored:
        click.echo(f"These data need a new nonce: {state.why_restored}.")
