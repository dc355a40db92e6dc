"""`oncewire drain`: have a router send its clients to other routers, then stop (K-8a)."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import quote

import aiohttp
import click

from oncewire.cli.errors import CliError
from oncewire.cli.progress import waiting_for
from topology.inspector.ask_cli import STATE_PATH, Api, Authorization, read_state
from topology.inspector.login_cli import authorization_of, login_option, network_options, url_of

POLL_S = 0.1
END_S = 10.0
"""From the limit of a drain to the end of the process; a router that is stalled for longer has another problem."""
VERDICT_NO = 1


@dataclass(frozen=True, slots=True)
class Drained:
    """How a drain ended."""

    router: str
    seconds: float
    connections: int
    """Client connections that were there at the beginning."""
    limit_s: float
    within_limit: bool
    """All was settled, so no client has anything in doubt."""
    stopped: bool


@click.command("drain", short_help="Have a router send its clients elsewhere, then stop.")
@click.argument("router", required=False)
@network_options
@login_option
@click.option("--json", "as_json", is_flag=True, help="Print how it ended as one line of JSON.")
def drain(router: str | None, url: str | None, user: str | None, as_json: bool) -> None:
    """Drain the router at URL, or the one with the id ROUTER in its network, and wait for its end.

    Of a router with several workers that is all of them; with ROUTER = ID-NUMBER one of them, which is started again.

    The router takes no more clients and sends those it has to other routers, when what they have sent or were sent is
    settled. SIGTERM does the same. Exit code 0: it has stopped and all was settled; 1: it stopped at its limit with
    deliveries unsettled (clients without a map may get those again, marked), or did not stop.
    """
    address, login = url_of(url), authorization_of(user)
    with waiting_for("draining: clients settle what is in flight, then move to other routers ..."):
        drained = asyncio.run(drain_and_wait(router, address, login))
    if as_json:
        click.echo(json.dumps(asdict(drained)))
    else:
        click.echo(_sentence(drained))
    if not (drained.stopped and drained.within_limit):
        raise SystemExit(VERDICT_NO)


def _sentence(drained: Drained) -> str:
    name, seconds = drained.router, f"{drained.seconds:.1f} s"
    if not drained.stopped:
        return f"{name} drains and has not stopped after {seconds}; see its log, and send it SIGTERM to end it at once"
    if not drained.within_limit:
        return (
            f"{name} has stopped after {seconds}: its limit of {drained.limit_s:g} s was over before all was settled "
            "(limits.drain_limit_s); `oncewire inspect` at another router names who keeps a window waiting"
        )
    return f"{name} has drained and stopped after {seconds}; client connections sent elsewhere: {drained.connections}"


async def drain_and_wait(name: str | None, url: str, login: Authorization | None = None) -> Drained:
    """Ask a router to drain, and follow it to its end.

    Args:
        name: id of the router; None = the one at `url`.
        url: HTTP address of a router.
        login: what logs the operator in.

    Raises:
        CliError: no such router, or it refuses.
    """
    state = await read_state(url, login)
    if name is not None and name not in (state.get("router"), state.get("group")):
        url = _address_of(name, url, state)
        state = await read_state(url, login)
    name = name or str(state.get("group") or state.get("router"))
    connections = await _connections(name, state, login)
    began = time.monotonic()
    async with Api.at(url, login) as api:
        limit_s = await _ask(api, name)
        stopped = await _wait_gone(api, state.get("rid"), began + limit_s + END_S)
    seconds = time.monotonic() - began
    return Drained(name, round(seconds, 3), connections, limit_s, not limit_s or seconds < limit_s, stopped)


async def _connections(name: str, state: dict[str, Any], login: Authorization | None) -> int:
    """Clients of the router that answered; or of all workers, where those are meant."""
    if name != state.get("group"):
        return int(state.get("connections", 0))
    places = [str(row.get("http")) for row in state.get("routers", []) if row.get("group") == name]
    return sum([int((await read_state(place, login)).get("connections", 0)) for place in places])


def _address_of(name: str, url: str, state: dict[str, Any]) -> str:
    """Where the router of that id serves HTTP, as the router at `url` knows from etcd."""
    rows = state.get("routers", [])
    known = {str(row.get("group")): _entry(str(row.get("http") or "")) for row in rows if row.get("group")}
    known |= {str(row.get("id")): str(row.get("http") or "") for row in rows}
    what = f"router {name} cannot be drained from here"
    if name not in known:
        others = ", ".join(sorted(known)) or "none"
        raise CliError(what, f"the router at {url} knows no router of that id (it knows: {others})", "check the id")
    if not known[name]:
        raise CliError(what, "it serves no HTTP (http.host is empty)", "send its process SIGTERM")
    return known[name]


def _entry(http: str) -> str:
    """The address that speaks for all workers, made of that of one of them."""
    return http.partition("/workers/")[0]


async def _ask(api: Api, name: str) -> float:
    """Have it drain; returns its limit in seconds."""
    try:
        reported = await api.change("POST", f"/api/v1/management/router/{quote(name, safe='')}/drain", {})
    except CliError as error:
        fix = f"{error.fix}; or send its process SIGTERM, which does the same"
        raise CliError(f"router {name} cannot be drained from here", error.why, fix) from None
    return float(reported["draining"]["limit_s"])


async def _wait_gone(api: Api, rid: object, ends_at: float) -> bool:
    """Wait until nobody answers there any more, or another incarnation of it does."""
    while time.monotonic() < ends_at:
        try:
            state = await api.peek(STATE_PATH)
        except aiohttp.ClientConnectionError:
            return True
        except (aiohttp.ClientError, ValueError, TimeoutError):
            state = {}  # it is busy, or stalled
        if state.get("rid", rid) != rid and not state.get("draining"):
            return True
        await asyncio.sleep(POLL_S)
    return False
