"""Readers and consumers beside a web service, in its lifespan (FastAPI, Starlette, any ASGI server).

A server does not look at what a lifespan has started: a reader that fails in a bare ``create_task`` is lost, and the
service goes on answering requests without it. Nothing of ASGI ends a service from inside, so this ends it as its
operator would, by SIGTERM. No package of the web is imported.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from oncewire.client.errors import UsageError

logger = logging.getLogger("oncewire.client")

LEAVE_S = 10.0
"""How long the end waits for what is under way: uvicorn and Kubernetes allow three times as much."""
CANCELLED_S = 2.0
"""What has not ended by then is cancelled, and has so long to leave its blocks."""


@dataclass(frozen=True, slots=True)
class _Work:
    """Something that runs, and how it ends in good order; None = by its cancellation."""

    task: asyncio.Task[Any]
    stop: Callable[[], object] | None


class Background:
    """Runs readers and consumers as long as a web service: ``async with Background() as background`` in its lifespan.

    At the end of the block all of it is stopped and awaited. One that fails ends the service: the error is logged at
    once, the server gets SIGTERM, finishes its requests, and the block raises the error. Where no server handles
    SIGTERM, as in a test, the block is cancelled instead, as that of a TaskGroup.

    Args:
        leave_timeout: seconds that the end of the block waits; what has not ended by then is cancelled.
    """

    def __init__(self, *, leave_timeout: float = LEAVE_S) -> None:
        self._leave_s = leave_timeout
        self._owner: asyncio.Task[Any] | None = None
        self._work: list[_Work] = []
        self._failure: BaseException | None = None
        self._is_leaving = False
        self._has_cancelled = False

    def start(self, work: Coroutine[Any, Any, object], *, stop: Callable[[], object] | None = None) -> None:
        """Run a coroutine in the background.

        Args:
            work: such as ``read(subscriber)``, or ``consumer.run(process)``. That it returns ends nothing.
            stop: called at the end of the block to let it return, such as ``consumer.stop``; None = it is cancelled.

        Raises:
            UsageError: outside of the block.
        """
        if self._owner is None or self._is_leaving:
            work.close()
            raise UsageError(
                "nothing can be started in the background",
                "the block has ended" if self._is_leaving else "it is not entered",
                "write `async with Background() as background:` around it, in the lifespan",
            )
        task = asyncio.get_running_loop().create_task(work)
        self._work.append(_Work(task, stop))
        task.add_done_callback(self._ended)

    async def __aenter__(self) -> Background:
        self._owner = asyncio.current_task()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop all, and wait for it. Raises what failed first."""
        self._is_leaving = True
        try:
            await self._stop_all()
        finally:
            if self._has_cancelled and self._owner is not None and isinstance(error, asyncio.CancelledError):
                self._owner.uncancel()
        if self._failure is not None:
            raise self._failure

    async def _stop_all(self) -> None:
        tasks = {each.task for each in self._work if not each.task.done()}
        for each in self._work:
            (each.stop or each.task.cancel)()
        if tasks:
            try:
                _, tasks = await asyncio.wait(tasks, timeout=self._leave_s)
            finally:
                for task in tasks:
                    task.cancel()
        if tasks:
            logger.warning("%d of the service's readers have not ended in %g s", len(tasks), self._leave_s)
            await asyncio.wait(tasks, timeout=CANCELLED_S)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            return
        logger.error("the service ends, for what runs beside it has failed: %s", error, exc_info=error)
        if self._failure is None:
            self._failure = error
            if not self._is_leaving:
                self._end_service()

    def _end_service(self) -> None:
        if signal.getsignal(signal.SIGTERM) not in {signal.SIG_DFL, signal.SIG_IGN, None}:
            signal.raise_signal(signal.SIGTERM)
        elif self._owner is not None:
            self._has_cancelled = self._owner.cancel()
