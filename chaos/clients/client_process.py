"""A publisher or subscriber of an experiment as a process of its own, followed through its journal of events."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections import Counter
from contextlib import suppress
from heapq import merge
from pathlib import Path

from chaos.clients.client_plan import STOP_COMMAND, ClientPlan, encode_plan
from chaos.clients.events import (
    Attached,
    Closed,
    Confirmed,
    Disconnected,
    Event,
    Incarnation,
    JournalTail,
    Opened,
    Received,
    Resumed,
    Sent,
    read_journal,
)
from chaos.clients.processed_table import read_processed

STOP_TIMEOUT_S = 15.0
"""After being asked to stop, before SIGKILL: an orderly end waits for the network's answers."""
LOG_TAIL_BYTES = 2_000


class ClientFailed(Exception):
    """A client process ended by itself in an unexpected way. The text holds its last words."""


class ClientProcess:
    """One client over all its lives: `kill` and `start` again give it another."""

    def __init__(self, plan: ClientPlan, log: Path) -> None:
        """Nothing is started yet; what the process prints goes to the file `log`."""
        self.plan = plan
        self.log = log
        self.counts: Counter[str] = Counter()
        """How often each event happened, by its name; brought up to date by `look`."""
        self.reached: dict[str, int] = {}
        """By publisher, the highest number it has sent (its own name), or this client has received."""
        self.is_attached = False
        self.is_confirmed = False
        self.is_closed = False
        self.router = ""
        """The router it was attached at last."""
        self.may_fail = False
        """An experiment takes from it what it cannot work without: that it ends with an error is meant."""
        self._tail = JournalTail(Path(plan.events))
        self._process: asyncio.subprocess.Process | None = None

    @property
    def name(self) -> str:
        """The client's name."""
        return self.plan.name

    @property
    def pid(self) -> int:
        """Its process id; it must be running."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Begin a life. Returns when the process exists, not when its link is attached."""
        assert self._process is None or self._process.returncode is not None, f"{self.name} runs already"
        self.is_attached = self.is_closed = False
        command = [sys.executable, "-P", "-m", "chaos.clients.load", encode_plan(self.plan)]
        with self.log.open("ab") as log:
            # In a session of its own: a Ctrl-C in the terminal is for the experiment, which then ends its clients.
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
            )

    def look(self) -> list[Event]:
        """Read what the client journaled since the last look, and fold it into the attributes."""
        events = self._tail.read()
        for event in events:
            self._fold(event)
        return events

    def _fold(self, event: Event) -> None:
        self.counts[event.name] += 1
        match event:
            case Attached() | Resumed():
                self.is_attached, self.router = True, event.router
            case Disconnected() | Opened():
                self.is_attached = False
            case Incarnation():
                self.is_confirmed = False
            case Confirmed():
                self.is_confirmed = True
            case Closed():
                self.is_attached, self.is_closed = False, True
            case Sent():
                self._reach(self.name, event.seq)
            case Received():
                self._reach(event.publisher, event.seq)
            case _:
                pass

    def _reach(self, publisher: str, seq: int) -> None:
        self.reached[publisher] = max(seq, self.reached.get(publisher, 0))

    def check(self) -> None:
        """Raise ClientFailed if the process ended otherwise than in good order."""
        if self.may_fail:
            return
        if self._process is not None and self._process.returncode not in (None, 0, -signal.SIGKILL):
            raise ClientFailed(f"{self.name} ended with code {self._process.returncode}: {self.last_words()}")

    @property
    def has_ended(self) -> bool:
        """True when it was started and no longer runs."""
        return self._process is not None and self._process.returncode is not None

    async def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(signal.SIGKILL)
            await self._process.wait()

    def pause(self) -> None:
        """SIGSTOP: it keeps its connections, and does nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    async def notify_to_stop(self) -> None:
        """Ask it to end in good order, and do not wait: a publisher still collects the outcomes it is owed."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        assert process.stdin is not None
        with suppress(BrokenPipeError, ConnectionResetError):
            process.stdin.write(STOP_COMMAND)
            await process.stdin.drain()

    async def stop(self, patience_s: float = STOP_TIMEOUT_S) -> None:
        """Ask it to end in good order and wait so long; a client that does not is killed and reported.

        Raises:
            ClientFailed: it had to be killed or ended with an error.
        """
        process = self._process
        if process is None:
            return
        if process.returncode is None:
            await self.notify_to_stop()
            try:
                await asyncio.wait_for(process.wait(), patience_s)
            except TimeoutError:
                await self.kill()
                raise ClientFailed(f"{self.name} did not end within {patience_s:g} s: {self.last_words()}") from None
        self.look()
        self.check()

    def history(self) -> list[Event]:
        """Read its whole journal, and the effects in its durable one, in the order of their times."""
        path = Path(self.plan.events)
        events = read_journal(path) if path.exists() else []
        if self.plan.journal is not None:
            events = list(merge(events, read_processed(Path(self.plan.journal)), key=lambda event: event.t))
        return events

    def last_words(self) -> str:
        """The end of what the process printed."""
        words = self.log.read_bytes()[-LOG_TAIL_BYTES:] if self.log.exists() else b""
        return words.decode(errors="replace").strip() or "it printed nothing"
