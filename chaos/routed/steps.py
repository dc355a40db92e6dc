"""Coroutines of an edge in steps that the simulation chooses: what `bridges.journal.reader_link` takes from asyncio."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Protocol, TypeAlias

Resume: TypeAlias = Callable[..., None]
"""Goes on with a coroutine, with a value or with `error`."""


class Later(Protocol):
    """What can put something off."""

    def put_off(self, key: object, resume: Callable[[], None]) -> None:
        """Resume some time, unless `forget` comes first."""

    def forget(self, key: object) -> None:
        """It was resumed by something else."""


class Waiting:
    """What a coroutine waits for.

    Args:
        begin: called with the edge that runs the coroutine, and with what goes on with it.
    """

    def __init__(self, begin: Callable[[Any, Resume], None]) -> None:
        self.begin = begin

    def __await__(self) -> Generator[Waiting, Any, Any]:
        return (yield self)


def run(edge: Later, work: Coroutine[Any, Any, None], value: Any = None, *, error: Exception | None = None) -> None:
    """Go on with a coroutine until it waits, or ends."""
    try:
        waiting = work.send(value) if error is None else work.throw(error)
    except StopIteration:
        return
    waiting.begin(edge, partial(run, edge, work))


class Event:
    """As asyncio's."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[Resume] = []

    def set(self) -> None:
        """Let go on who waits."""
        self._is_set = True
        waiting, self._waiting = self._waiting, []
        for resume in waiting:
            resume()

    def clear(self) -> None:
        """Who waits from now on waits for the next `set`."""
        self._is_set = False

    async def wait(self) -> None:
        """Until it is set."""
        if not self._is_set:
            await Waiting(lambda _edge, resume: self._waiting.append(resume))

    async def wait_for_some_time(self) -> None:
        """Until it is set, or the time is over, which the simulation decides."""
        if not self._is_set:
            await Waiting(self._begin)

    def _begin(self, edge: Later, resume: Resume) -> None:
        once = _Once(edge, resume)
        self._waiting.append(once)
        edge.put_off(once, once)


class _Once:
    """Goes on with a coroutine that two things may wake, for the first of them."""

    def __init__(self, edge: Later, resume: Resume) -> None:
        self._edge = edge
        self._resume: Resume | None = resume

    def __call__(self) -> None:
        resume, self._resume = self._resume, None
        if resume is not None:
            self._edge.forget(self)
            resume()


async def sleep(_seconds: float) -> None:
    """Until the simulation says so."""
    await Waiting(lambda edge, resume: edge.put_off(object(), resume))


async def until_set(event: Event, _seconds: float) -> None:
    """See `oncewire.store.open_store`."""
    await event.wait_for_some_time()
