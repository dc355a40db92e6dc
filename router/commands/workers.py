"""The parent process of several workers: starts them and those again that ended, passes signals on, announces all.

It carries no message and answers no request. The first worker starts alone: it reports once
what is wrong with the settings.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oncewire.cli.errors import EXIT_MISUSE, CliError
from oncewire.cli.log_output import set_up_logging
from router.commands.parent_watch import die_with_parent
from router.incarnations.joining import pause
from router.process.listening import reserve
from router.process.logs import EventLog, RouterEvent
from router.settings.config import RouterConfig
from router.settings.config_loading import SETTINGS
from router.settings.worker import name_of

FIRST_AGAIN_S = 0.2
"""Before a worker that died is started again: its sockets are closed by then, and its clients are elsewhere."""
LONGEST_AGAIN_S = 30.0
"""A worker that dies again and again costs a start every so often; the log says each time why it ended."""
STEADY_S = 60.0
"""A worker that ran for so long begins with the shortest pause again."""

LONGEST_FOLDER = 90
"""A Unix socket's path has at most 107 bytes on Linux (unix(7)), the names in the folder up to 9."""


def run_workers(
    config: RouterConfig, file: str | None, given: Mapping[str, str], *, announce: bool, parent_pid: int | None
) -> int:
    """Run all workers until SIGTERM or SIGINT, which drains them; a second signal stops them at once (K-8a).

    Args:
        config: the settings.
        file: that they are from, if there is one; a reload reads it again.
        given: the settings that flags gave, as variables: not everybody on the machine shall read them.
        announce: print one line of JSON on stdout when all workers are ready.
        parent_pid: end with that process; None = live on.

    Returns:
        The exit code: not 0 if the workers could not be started.

    Raises:
        CliError: an address cannot be listened on, or this system cannot share a port.
    """
    if sys.platform != "linux":
        why = "this system does not share the connections of one port out among processes"
        raise CliError(f"{config.workers} workers cannot be started", why, "leave workers out, or run it on Linux")
    if parent_pid is not None:
        die_with_parent(parent_pid)
    set_up_logging(config.log_level, config.log_format, config.node_id)
    with _folder() as folder:
        return asyncio.run(_Workers(config, file, given, Path(folder)).run(announce))


def _folder() -> tempfile.TemporaryDirectory[str]:
    """A folder that nobody else may enter (mode 0700), and that ends with this process.

    Raises:
        CliError: there is none that can be had.
    """
    what, fix = "there is no folder for the sockets between workers", "set TMPDIR to a short path that can be written"
    try:
        found = tempfile.TemporaryDirectory(prefix="oncewire-")
    except OSError as error:
        raise CliError(what, str(error), fix) from None
    if len(os.fsencode(found.name)) > LONGEST_FOLDER:
        found.cleanup()
        raise CliError(what, f"{found.name} is longer than {LONGEST_FOLDER} bytes", fix)
    return found


@dataclass(slots=True)
class _Slot:
    """One worker, over all its processes."""

    number: int
    name: str
    process: asyncio.subprocess.Process | None = None
    announced: dict[str, Any] | None = None
    """What its process printed when it was ready."""
    was_ready: asyncio.Event = field(default_factory=asyncio.Event)


class _Workers:
    def __init__(self, config: RouterConfig, file: str | None, given: Mapping[str, str], folder: Path) -> None:
        self._config = config
        self._file = file
        self._given = dict(given)
        self._folder = folder
        self._log = EventLog(config.node_id)
        self._slots = [_Slot(n, name_of(config.node_id, n)) for n in range(1, config.workers + 1)]
        self._stop_wanted = asyncio.Event()
        self._exit_code = 0

    async def run(self, announce: bool) -> int:
        """Until all of them have ended."""
        config, loop = self._config, asyncio.get_running_loop()
        kept = await self._reserve("listen_port", config.listen_host, config.listen_port)
        if config.http_host:
            kept += await self._reserve("http_port", config.http_host, config.http_port)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        try:
            async with asyncio.TaskGroup() as tasks:
                first, *others = self._slots
                tasks.create_task(self._keep(first))
                if await self._wait_ready([first]):
                    for slot in others:
                        tasks.create_task(self._keep(slot))
                    if await self._wait_ready(others) and announce:
                        self._announce()
        finally:
            for each in kept:
                each.close()
        return self._exit_code

    async def _reserve(self, name: str, host: str, port: int) -> list[socket.socket]:
        """Keep an address of all workers; a port that is any free one is so the same for all, and for later ones."""
        kept = await reserve(host, port, SETTINGS[name].flag)
        if port == 0:
            self._given[SETTINGS[name].variable] = str(kept[0].getsockname()[1])
        return kept

    async def _wait_ready(self, slots: list[_Slot]) -> bool:
        """Whether all of them were ready once; False when they are to stop before that."""
        stopping = asyncio.ensure_future(self._stop_wanted.wait())
        ready = asyncio.gather(*(slot.was_ready.wait() for slot in slots))
        await asyncio.wait((stopping, ready), return_when=asyncio.FIRST_COMPLETED)
        is_ready = ready.done()
        for each in (stopping, ready):
            each.cancel()
        await asyncio.gather(stopping, ready, return_exceptions=True)
        return is_ready

    def _announce(self) -> None:
        first = self._slots[0].announced or {}
        line = {
            "id": self._config.node_id,
            "url": first.get("url"),
            "http": first.get("http"),
            "pid": os.getpid(),
            "workers": [{"id": slot.name, "pid": slot.process.pid} for slot in self._slots if slot.process is not None],
        }
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()

    # --- one worker ---------------------------------------------------------------------------------------------------

    async def _keep(self, slot: _Slot) -> None:
        """Start it again whenever it has ended, until all are to stop."""
        again_s = FIRST_AGAIN_S
        while not self._stop_wanted.is_set():
            began = time.monotonic()
            code = await self._run_once(slot)
            if self._stop_wanted.is_set():
                return
            if code == EXIT_MISUSE and not slot.was_ready.is_set():  # it has said what is wrong
                self._exit_code = code
                self._stop()
                return
            again_s = FIRST_AGAIN_S if time.monotonic() - began > STEADY_S else again_s
            self._log.event(RouterEvent.WORKER_ENDED, worker=slot.name, why=_ending(code), again_s=again_s)
            await pause(self._stop_wanted, again_s)
            again_s = min(2 * again_s, LONGEST_AGAIN_S)

    async def _run_once(self, slot: _Slot) -> int:
        """One process of it, to its end; the exit code."""
        command = [sys.executable, "-P", "-m", "router", f"--parent-pid={os.getpid()}", "--announce"]
        command += [f"--worker={slot.number}", f"--worker-folder={self._folder}"]
        command += [] if self._file is None else [f"--config={self._file}"]
        # A session of its own: Ctrl-C in a terminal is for us, who then stop all of them in good order.
        process = slot.process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            env={**os.environ, **self._given},
            start_new_session=True,
        )
        if self._stop_wanted.is_set():  # while it was started
            process.terminate()
        assert process.stdout is not None
        with suppress(ValueError):
            slot.announced = json.loads(await process.stdout.readline())
            slot.was_ready.set()
            self._log.event(RouterEvent.WORKER_STARTED, worker=slot.name, pid=process.pid)
        code = await process.wait()
        slot.process = slot.announced = None
        return code

    # --- signals ------------------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        """K-8a at all workers: the first time they drain, the second time they stop at once."""
        is_second = self._stop_wanted.is_set()
        self._stop_wanted.set()
        self._signal(signal.SIGINT if is_second else signal.SIGTERM)

    def _reload(self) -> None:
        """As a router does by itself: where there is no file to read the signal means that the terminal is closed."""
        if self._file is None and not self._config.names_files:
            self._stop()
            return
        # One that is starting reads the settings as they are now, and would not survive the signal yet.
        self._signal(signal.SIGHUP, only_ready=True)

    def _signal(self, number: signal.Signals, *, only_ready: bool = False) -> None:
        for slot in self._slots:
            if slot.process is not None and (slot.announced is not None or not only_ready):
                with suppress(ProcessLookupError):
                    slot.process.send_signal(number)


def _ending(code: int) -> str:
    """An exit code for people."""
    if code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return "stopped" if code == 0 else f"exit code {code}"
