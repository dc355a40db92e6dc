"""Which network a command works on: flag > environment > context > running local network > default.

A context's login goes to its own routers only: where an address is given, the context in use plays no part. Whoever
names a context with --context asks for it, and an address beside it replaces only the context's own.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import click

from oncewire.cli import variables
from oncewire.cli.contexts import NetworkContext, load_contexts
from oncewire.cli.errors import CliError
from oncewire.cli.local_registry import running_network
from oncewire.cli.program import name_as_typed

DEFAULT_URL = "amqp://127.0.0.1:5672"
DEFAULT_HTTP = "http://127.0.0.1:8672"
HTTP_PORT = 8672
PRECEDENCE = "--url, {variable}, the context, a running `oncewire local`, {default}: the first of these that there is."
NEAR_CONNECT_S = 1.0
"""To find a listener at an address of this machine that nobody named: it answers in milliseconds, or there is none."""
CONNECT_S = 30.0
_META = "oncewire.where"


@dataclass(frozen=True, slots=True)
class Where:
    """Addresses, and why these.

    Attributes:
        urls: one or several.
        source: for people: `--url`, `context prod`, `the local network of process 12`, `the default`.
        is_guessed: nobody named them, so that nothing may run there.
        context: what supplies login and TLS; None = the options alone.
    """

    urls: tuple[str, ...]
    source: str
    is_guessed: bool = False
    context: NetworkContext | None = None


def start_one(option: str, variable: str) -> str:
    """What to do where no address was given and nobody listens."""
    name = name_as_typed()
    return f"start a network with `{name} local`, or name a router: {option}, {variable}, or `{name} context add`"


def context_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command `--context`; it asks `amqp_addresses` or `http_address` what it came to."""
    return click.option(
        "--context",
        metavar="NAME",
        envvar=variables.CONTEXT,
        shell_complete=_complete,
        expose_value=False,
        callback=_keep,
        help="Work on this network; see `oncewire context`. [the one in use]",
    )(command)


def amqp_addresses(given: Sequence[str]) -> Where:
    """Where an AMQP client connects; `given` are flag or variable.

    Raises:
        CliError: there is no such context.
    """
    name, context = _context(bool(given))
    if given:
        return _chosen(Where(tuple(given), "the address given", context=context))
    if context is not None:
        urls = tuple(_with_login(url, context) for url in context.urls)
        return _chosen(Where(urls, f"context {name}", context=context))
    local = running_network()
    if local is not None and local.urls:
        return _chosen(Where(local.urls, f"the local network of process {local.pid}", is_guessed=True))
    return _chosen(Where((DEFAULT_URL,), "the default", is_guessed=True))


def hostname_of(where: Where, vhost: str | None) -> str | None:
    """What the open asks for: the virtual host of an option, else that of the context; None = the URL's own host."""
    if vhost is None and where.context is not None:
        vhost = where.context.vhost or None
    return None if vhost is None else f"vhost:{vhost}"


def http_address(given: str | None) -> Where:
    """Where a router's HTTP is; see `amqp_addresses`."""
    name, context = _context(given is not None)
    if given is not None:
        return _chosen(Where((given,), "the address given", context=context))
    if context is not None:
        return _chosen(Where((http_of(context),), f"context {name}", context=context))
    local = running_network()
    if local is not None and local.http:
        # Whoever tries the network kills routers of it: one that runs answers for all.
        at = next(filter(_listens, local.http), local.http[0])
        return _chosen(Where((at,), f"the local network of process {local.pid}", is_guessed=True))
    return _chosen(Where((DEFAULT_HTTP,), "the default", is_guessed=True))


def require_listener(where: Where) -> None:
    """See that somebody listens at one of the addresses, which nobody named.

    Raises:
        CliError: nobody does, so there is nothing to wait for.
    """
    if any(map(_listens, where.urls)):
        return
    places = ", ".join("{}:{}".format(*_place(url)) for url in where.urls)
    fix = start_one("--url amqp://HOST:PORT", variables.URL)
    raise CliError("there is no router to connect to", f"nobody listens at {places} ({where.source})", fix)


def _listens(url: str) -> bool:
    try:
        socket.create_connection(_place(url), NEAR_CONNECT_S).close()
    except OSError:
        return False
    return True


def _place(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 0


def http_of(context: NetworkContext) -> str:
    """Its HTTP address: as added, or the first router's host with the default port."""
    if context.http:
        return context.http
    first = context.urls[0]
    parts = urlsplit(first if "://" in first else f"amqp://{first}")
    host = parts.hostname or ""
    scheme = "https" if parts.scheme in {"amqps", "wss"} else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{HTTP_PORT}"


def context_in_use() -> NetworkContext | None:
    """The context of the command that runs, once it knows its address; None = it has none."""
    running = click.get_current_context(silent=True)
    where: Where | None = None if running is None else running.meta.get(f"{_META}.chosen")
    return None if where is None else where.context


def where_in_use() -> Where | None:
    """What `amqp_addresses` or `http_address` chose for the command that runs."""
    running = click.get_current_context(silent=True)
    return None if running is None else running.meta.get(f"{_META}.chosen")


def _keep(context: click.Context, _option: click.Parameter, value: str | None) -> None:
    context.meta[f"{_META}.name"] = value


def _complete(_context: click.Context, _option: click.Parameter, incomplete: str) -> list[str]:
    try:
        return [name for name in sorted(load_contexts().by_name) if name.startswith(incomplete)]
    except CliError:
        return []


def _context(has_address: bool) -> tuple[str, NetworkContext | None]:
    running = click.get_current_context(silent=True)
    if running is None:  # not called by a command
        return "", None
    name = running.meta.get(f"{_META}.name")
    if name is None and has_address:
        return "", None
    contexts = load_contexts()
    name = name if name is not None else contexts.current
    return (name, contexts.named(name)) if name else ("", None)


def _chosen(where: Where) -> Where:
    running = click.get_current_context(silent=True)
    if running is not None:
        running.meta[f"{_META}.chosen"] = where
    return where


def _with_login(url: str, context: NetworkContext) -> str:
    """The address with the context's user and password, if it has them and the address names nobody."""
    scheme, separator, rest = url.rpartition("://")
    if not context.user or "@" in rest:
        return url
    login = f"{quote(context.user, safe='')}:{quote(context.password(), safe='')}"
    return f"{scheme}{separator}{login}@{rest}"
