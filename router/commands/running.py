"""Runs one router in this process: the event loop, signals, logs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import uvloop

from oncewire.cli.log_output import set_up_logging
from oncewire.cli.users_file import is_open_to_others
from router.commands.parent_watch import die_with_parent
from router.node import RouterNode
from router.operator.arguments import ManagementError
from router.process.admission import raise_descriptor_limit
from router.process.logs import EventLog, RouterEvent
from router.settings.config import RouterConfig


def run_router(
    config: RouterConfig,
    version: str,
    *,
    announce: bool,
    parent_pid: int | None,
    load: Callable[[], RouterConfig] | None = None,
    secrets_in: str = "",
) -> None:
    """Run a router until SIGTERM or SIGINT; the first one drains it, a second one stops it at once (K-8a).

    SIGHUP loads the settings again, if there is a file of them, and the files of users, keys and certificates.

    Args:
        config: its settings.
        version: of Oncewire.
        announce: print one line of JSON on stdout when the router is ready.
        parent_pid: end with that process; None = live on.
        load: reads the settings again; None = there is no file to read.
        secrets_in: the file of settings, where it holds passwords.

    Raises:
        CliError: it cannot start.
    """
    if parent_pid is not None:
        die_with_parent(parent_pid)
    raise_descriptor_limit()
    set_up_logging(config.log_level, config.log_format, config.node_id)
    log = EventLog(config.node_id)
    if secrets_in and is_open_to_others(secrets_in):
        log.event(RouterEvent.CONFIG_FILE_OPEN, path=secrets_in, fix=f"chmod 600 {secrets_in}")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_run(config, version, announce, load, log))


async def _run(
    config: RouterConfig, version: str, announce: bool, load: Callable[[], RouterConfig] | None, log: EventLog
) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: _on_loop_error(log, context))
    node = RouterNode(config, version, log, load)
    if config.worker is None:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, node.drain)
    else:  # a service manager may signal us beside the parent process, which passes it on: that is no second signal
        loop.add_signal_handler(signal.SIGTERM, node.operator.controls.drain)
        loop.add_signal_handler(signal.SIGINT, node.stop)
    # Else it means what it means to every program whose terminal is closed: of workers the parent process knows that.
    if node.operator.controls.can_reload or config.worker is not None:
        loop.add_signal_handler(signal.SIGHUP, _reload, node, log)
    announcing = asyncio.ensure_future(_announce(node, config)) if announce else None
    try:
        await node.run()
    finally:
        if announcing is not None:
            announcing.cancel()
            await asyncio.gather(announcing, return_exceptions=True)


def _reload(node: RouterNode, log: EventLog) -> None:
    """SIGHUP: as `oncewire manage reload`; the log says what came of it."""
    try:
        node.operator.controls.reload()
    except ManagementError as error:
        log.event(RouterEvent.CONFIG_REFUSED, why=str(error), fix=error.fix)


async def _announce(node: RouterNode, config: RouterConfig) -> None:
    await node.wait_ready()
    line = {"id": config.node_id, "url": node.amqp_url, "http": node.http_url, "pid": os.getpid()}
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _on_loop_error(log: EventLog, context: dict[str, Any]) -> None:
    """Something raised where nobody could catch it."""
    error = context.get("exception")
    if isinstance(error, BaseException):
        log.internal_error(error, str(context.get("message", "")))
