"""Runs one node in this process: the event loop, signals, logs, listeners."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

import uvloop

from bridges.doors.garbage import collect_seldom
from bridges.doors.logins import Logins
from bridges.doors.tls import listener_context
from bridges.node.arrow_bodies import arrow
from bridges.node.errors import NodeError
from bridges.node.http import http_of
from bridges.node.node import BridgeNode
from bridges.node.server import Server
from bridges.node.settings_loading import DaemonSettings, open_secret
from oncewire.cli.errors import CliError
from oncewire.client import ClientError
from oncewire.transport.tls import ALPN_HTTP

ALPN_NODE = "oncewire-node"
"""The name of what nodes speak; clients need not ask for it."""
Described = dict[str, object]
"""Where a node listens, as `--announce` prints it."""
LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s %(message)s"


class LogFormatter(logging.Formatter):
    """Times as routers write them, in UTC: a local one is shown twice where clocks are put back."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's
        """One line, in which names of others stand as they are written, with no control of the terminal in them."""
        line = super().formatMessage(record)
        return line if line.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in line)

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 - logging's
        """The record's time; see logging.Formatter."""
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def run_node(settings: DaemonSettings, *, announce: bool) -> None:
    """Run a node until SIGTERM or SIGINT.

    Args:
        settings: what it is and where it listens.
        announce: print one line of JSON on stdout when pipelines can connect.

    Raises:
        CliError: it cannot start, or its files cannot be used any more.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogFormatter(LOG_FORMAT))
    logging.basicConfig(level=settings.values["log.level"].upper(), handlers=[handler], force=True)
    logging.getLogger("aiohttp").setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
    try:
        arrow()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(settings, announce))
    except (NodeError, ClientError) as error:
        raise CliError(error.what, error.why, error.fix) from None


async def _run(settings: DaemonSettings, announce: bool) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    serving = asyncio.create_task(serve(settings, partial(_started, announce)))
    waiting = asyncio.create_task(stopping.wait())
    await asyncio.wait([serving, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    serving.cancel()
    await asyncio.wait([serving])
    if not serving.cancelled():
        serving.result()


def _started(announce: bool, node: BridgeNode, described: Described) -> None:
    collect_seldom()
    logging.getLogger("oncewire.bridge").info("the node is started: %s", described)
    if announce:
        sys.stdout.write(json.dumps(described) + "\n")
        sys.stdout.flush()


async def serve(settings: DaemonSettings, on_started: Callable[[BridgeNode, Described], None]) -> None:
    """Run a node with its doors in this event loop, until cancelled.

    Args:
        settings: what it is and where it listens.
        on_started: gets the node and where it listens when pipelines can connect.

    Raises:
        NodeError, ClientError: it cannot start, or its files cannot be used any more.
        CliError: an address of the settings cannot be listened on.
    """
    node = BridgeNode(settings.node)
    secret, secret_path = open_secret(settings)
    server = Server(node, secret)
    values, users = settings.values, settings.values["users_file"]
    logins = None if users is None and settings.tokens is None else Logins(server.doors, users, settings.tokens)
    http = http_of(node, server, logins)
    tls = {
        name: listener_context(settings.tls, certificates, alpn, partial(server.doors.handshake_failed, name))
        for name, is_used, certificates, alpn in (
            ("pipeline", values["listen.tls"], values["tls.client_certificates"], ALPN_NODE),
            ("http", values["http.tls"], values["http.client_certificates"], ALPN_HTTP),
        )
        if is_used
    }
    running = asyncio.create_task(node.run())
    try:
        await _until_started(node, running)
        described: dict[str, object] = {"node": settings.node.name, "pid": os.getpid(), "secret": str(secret_path)}
        if host := values["listen.host"]:
            port = await server.listen_tcp(host, values["listen.port"], tls.get("pipeline"))
            described["tcp"] = f"{'tls' if values['listen.tls'] else 'tcp'}://{host}:{port}"
        if (unix := values["listen.unix"]) is not None:
            await server.listen_unix(unix)
            described["unix"] = f"unix://{unix.absolute()}"
        if host := values["http.host"]:
            port = await http.start(host, values["http.port"], tls.get("http"))
            described["http"] = f"http{'s' if values['http.tls'] else ''}://{host}:{port}"
        on_started(node, described)
        await asyncio.wait([running])
        running.result()  # it ends by an error only
    except BaseExceptionGroup as group:  # of the node's tasks: what one of them met is the error
        first = group.exceptions[0]
        if isinstance(first, NodeError | ClientError):
            raise first from None
        raise
    finally:
        await server.stop()
        await http.stop()
        running.cancel()
        await asyncio.wait([running])


async def _until_started(node: BridgeNode, running: asyncio.Task[None]) -> None:
    while not node.started.count and not running.done():
        await node.started.wait(0, 0.5)
    if running.done():
        running.result()
