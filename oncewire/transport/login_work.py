"""The one thread of a process that computes PBKDF2 for logins: a login must not hold up the event loop."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache

MAX_WAITING = 32
"""Logins that wait for the thread. At 0.2 s each this is less than a connection may take to open; whoever comes then
gets no answer and tries again."""

_waiting: set[Future[bytes]] = set()


@cache
def _thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, "oncewire-logins")


def start(work: Callable[[], bytes], done: Callable[[bytes], object]) -> bool:
    """Compute it behind what waits already; False if too much waits.

    Args:
        work: the computation; raises nothing.
        done: called in the thread with the result.
    """
    if len(_waiting) >= MAX_WAITING:
        return False
    future = _thread().submit(work)
    _waiting.add(future)
    future.add_done_callback(lambda finished: _finish(finished, done))
    return True


def _finish(future: Future[bytes], done: Callable[[bytes], object]) -> None:
    _waiting.discard(future)
    if not future.cancelled():
        with suppress(RuntimeError):  # its event loop is closed
            done(future.result())
