"""What logins wait for, beside the event loop: PBKDF2 in the one thread for it, and somebody else who is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

MAX_WAITING = 32
"""Logins that wait for the thread. At 0.2 s each this is less than a connection may take to open; whoever comes then
gets no answer and tries again."""

_waiting: set[Future[bytes]] = set()
_asked: set[asyncio.Task[bytes]] = set()


@dataclass(frozen=True, slots=True)
class Asking:
    """Work of a `Deferred` that is no computation: it is awaited in the event loop. It raises nothing."""

    ask: Callable[[], Coroutine[None, None, bytes]]

    def __call__(self) -> bytes:
        """Not called: see `start`."""
        raise AssertionError("it is awaited in the event loop")


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "oncewire-logins")


def start(work: Callable[[], bytes], done: Callable[[bytes], object]) -> bool:
    """Compute it behind what waits already; False if too much waits.

    Args:
        work: the computation; raises nothing.
        done: called in the thread with the result; in the event loop where `work` is `Asking`.
    """
    if isinstance(work, Asking):  # whoever made it limits how many there are
        task = asyncio.get_running_loop().create_task(work.ask())
        _asked.add(task)
        task.add_done_callback(lambda ended: _answer(ended, done))
        return True
    if len(_waiting) >= MAX_WAITING:
        return False
    future = _thread().submit(work)
    _waiting.add(future)
    future.add_done_callback(lambda finished: _finish(finished, done))
    return True


def _answer(task: asyncio.Task[bytes], done: Callable[[bytes], object]) -> None:
    _asked.discard(task)
    if not task.cancelled():
        done(task.result())


def _finish(future: Future[bytes], done: Callable[[bytes], object]) -> None:
    _waiting.discard(future)
    if not future.cancelled():
        with suppress(RuntimeError):  # its event loop is closed
            done(future.result())
