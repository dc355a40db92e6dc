"""The processes between the two topics: started, killed and started again."""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from enum import Enum
from pathlib import Path

from chaos.network.trial import TrialFailed

START_S = 60.0
"""How long a process may take until it is at work, on a slow machine."""
LOG_TAIL_BYTES = 2_000


class Kind(Enum):
    """What is killed; the value of all but routers is the role in worker.py."""

    WORKER = "worker"
    FEED = "feed"
    PUBLISHER = "publisher"
    READER = "reader"
    ROUTER = "router"


class RoleProcess:
    """A process of one role.

    Args:
        kind: the role.
        folder: with the store; its log goes there, too.
        routers: URLs.
        number: of several of the same role.
    """

    def __init__(self, kind: Kind, folder: Path, routers: list[str], number: int = 1) -> None:
        self.kind = kind
        self.name = kind.value if number == 1 else f"{kind.value} {number}"
        self._arguments = [kind.value, str(folder), ",".join(routers)]
        self._log = folder / f"{kind.value}-{number}.log"
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        """Start it and wait until it is at work.

        Raises:
            TrialFailed: it ended, or says nothing.
        """
        with self._log.open("ab") as log:
            # In a session of its own: a Ctrl-C in the terminal is for the demo, which then ends its processes.
            process = self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-P",
                "-m",
                "chaos.experiments.queue_demo.worker",
                *self._arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )
        assert process.stdout is not None
        line = b""
        with suppress(TimeoutError):
            line = await asyncio.wait_for(process.stdout.readline(), START_S)
        if not line:
            raise TrialFailed(f"the {self.name} did not start: {self.last_words()}")

    def check(self) -> None:
        """Raise TrialFailed if it ended by itself."""
        if self._process is not None and self._process.returncode is not None:
            raise TrialFailed(f"the {self.name} ended with code {self._process.returncode}: {self.last_words()}")

    def last_words(self) -> str:
        """The end of what it printed."""
        words = self._log.read_bytes()[-LOG_TAIL_BYTES:] if self._log.exists() else b""
        return words.decode(errors="replace").strip() or "it said nothing"

    async def kill(self) -> None:
        """SIGKILL it and wait until it is gone."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
