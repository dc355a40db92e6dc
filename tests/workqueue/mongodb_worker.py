"""A worker on a MongoDB store that is killed (SIGKILL) at one place: ``mongodb_worker.py URL NUMBER``.

It is killed when the server has done its command of that number, counted from the first reservation, and before the
worker does anything with the reply. With number 0 it is not killed. Moves items of `in` that begin with "m" to `out`
and commits all others; ends when nothing but a schedule's next instance is left.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from pymongo import monitoring

from bridges.workqueue import Queue

TIMEOUT_S = 0.2
"""Of a reservation: the next worker takes over soon."""
SOON_S = 5.0
"""What is due later is the next instance of the schedule, once a year."""


class Killer(monitoring.CommandListener):  # type: ignore[misc]
    """Counts commands, and ends this process at its place."""

    def __init__(self, number: str) -> None:
        self._number = int(number)
        self._commands = 0
        self.is_counting = False

    def started(self, _: monitoring.CommandStartedEvent) -> None:
        """The reply counts."""

    def succeeded(self, _: monitoring.CommandSucceededEvent) -> None:
        self._commands += self.is_counting
        if self.is_counting and self._commands == self._number:
            os.kill(os.getpid(), signal.SIGKILL)

    failed = succeeded


async def work(url: str, killer: Killer) -> None:
    """Work until nothing is left."""
    async with Queue.open(url, "in", max_retries=1000) as queue:
        killer.is_counting = True
        while True:
            found = await queue.reserve_many(1, TIMEOUT_S)
            if found:
                (item,) = found
                if item.payload.startswith(b"m"):
                    await item.move("out")
                else:
                    await item.commit(result=b"done")
                continue
            due_s = await queue.store.seconds_to_due("in")
            if due_s is None or due_s > SOON_S:
                return
            await asyncio.sleep(max(due_s, 0))


def main(url: str, number: str) -> None:
    """Run with a killer listening."""
    killer = Killer(number)
    monitoring.register(killer)
    asyncio.run(work(url, killer))


if __name__ == "__main__":
    main(*sys.argv[1:])
