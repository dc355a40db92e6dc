"""Runs one edge in this process: the event loop, signals, logs, the door of operators."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
from contextlib import suppress
from functools import partial
from typing import Any

import uvloop

from bridges.doors.errors import BridgeError
from bridges.doors.garbage import collect_seldom
from bridges.doors.gates import HTTP, Doors
from bridges.doors.http import OperatorDoor
from bridges.doors.logins import Logins
from bridges.doors.tls import listener_context
from bridges.edge.edge import Edge
from bridges.edge.events import EdgeEvent, EdgeLog
from bridges.edge.http import http_of
from bridges.edge.settings_loading import EdgeSettings, Load, address
from oncewire.cli.errors import CliError
from oncewire.cli.log_output import set_up_logging
from oncewire.client.put_off import ended
from oncewire.transport.tls import ALPN_HTTP

_ENDS = (signal.SIGTERM, signal.SIGINT)


def run_edge(settings: EdgeSettings, load: Load, *, announce: bool) -> None:
    """Run an edge until SIGTERM or SIGINT; the first one drains it, a second one stops it at once.

    Args:
        settings: what it is, and what it runs.
        load: reads them again, at SIGHUP and when an operator asks for it.
        announce: print one line of JSON on stdout when it is ready.

    Raises:
        CliError: it cannot start.
    """
    values = settings.values
    set_up_logging(values["log.level"], values["log.format"], values["edge.name"], "edge")
    if values["log.level"] != "debug":  # the trouble of a part says once what the client says at each try
        logging.getLogger("oncewire.client").setLevel(logging.WARNING)
    log = EdgeLog(values["edge.name"])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(settings, load, log, announce))


async def _run(settings: EdgeSettings, load: Load, log: EdgeLog, announce: bool) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: _on_loop_error(log, context))
    edge = Edge(settings, log, load)
    stopping = asyncio.Event()

    def on_signal() -> None:
        stopping.set()
        for number in _ENDS:  # a second one ends the process: what was durable is
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in _ENDS:
        loop.add_signal_handler(number, on_signal)
    reloads: set[asyncio.Task[None]] = set()
    loop.add_signal_handler(signal.SIGHUP, lambda: _begin(reloads, _reload(edge)))
    door, url = await _open_door(edge, log)
    works = [asyncio.create_task(edge.start()), asyncio.create_task(stopping.wait())]
    try:
        await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
        if works[0].done():
            works[0].result()
        if not stopping.is_set():
            collect_seldom()
            log.event(EdgeEvent.EDGE_STARTED, http=url, parts=len(settings.parts))
            if announce:
                _begin(reloads, _announce(edge, url))
        await stopping.wait()
        log.event(EdgeEvent.EDGE_DRAINING)
    finally:
        for task in (*works, *reloads):
            task.cancel()
        await ended(*works, *reloads)
        await edge.stop()
        await door.stop()
        log.event(EdgeEvent.EDGE_STOPPED)


def _begin(tasks: set[asyncio.Task[None]], work: Any) -> None:
    task = asyncio.get_running_loop().create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


async def _reload(edge: Edge) -> None:
    with suppress(CliError):  # it is in the log
        await edge.reload()


async def _announce(edge: Edge, url: str) -> None:
    while await edge.waiting_for():  # noqa: ASYNC110  # what it waits for has no event
        await asyncio.sleep(0.05)
    sys.stdout.write(json.dumps({"edge": edge.name, "http": url, "pid": os.getpid()}) + "\n")
    sys.stdout.flush()


async def _open_door(edge: Edge, log: EdgeLog) -> tuple[OperatorDoor, str]:
    """Listen for operators, from the start on; returns the address, empty = nobody listens.

    Raises:
        CliError: a file of TLS or logins cannot be used, or the address.
    """
    settings, values = edge.settings, edge.settings.values
    doors = Doors(log.logger)
    users = values["http.users_file"]
    logins = Logins(doors, users, settings.tokens) if users is not None or settings.tokens is not None else None
    door = http_of(edge, doors, logins)
    if not values["http.host"]:
        return door, ""
    tls = None
    if values["http.tls"]:
        refused = partial(doors.handshake_failed, HTTP)
        try:
            tls = listener_context(settings.tls, values["http.client_certificates"], ALPN_HTTP, refused)
        except BridgeError as error:
            raise CliError(error.what, error.why, error.fix) from None
    return door, address(values, await door.start(values["http.host"], values["http.port"], tls))


def _on_loop_error(log: EdgeLog, context: dict[str, Any]) -> None:
    """Something raised where nobody could catch it."""
    error = context.get("exception")
    if isinstance(error, BaseException):
        log.fault(error, where=str(context.get("message", "")))
