"""An event loop in a thread of its own, for programs without one: calls of other threads wait for what runs in it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from oncewire.client.errors import ClientClosed, UsageError

T = TypeVar("T")


class LoopThread:
    """Runs from `start` to `stop`. A process that ends without `stop` is not held up by it.

    Any thread may call, several at the same time.
    """

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stopped: asyncio.Event | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the thread, unless it runs."""
        with self._lock:
            if self._thread is None:
                running = threading.Event()
                self._thread = threading.Thread(
                    target=asyncio.run, args=(self._run(running),), name="oncewire-client", daemon=True
                )
                self._thread.start()
                running.wait()

    async def _run(self, running: threading.Event) -> None:
        self._loop, self._stopped = asyncio.get_running_loop(), asyncio.Event()
        running.set()
        await self._stopped.wait()

    def call(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run `work` in the loop and return what it returns. An exception here, as of Ctrl-C, cancels it there.

        Raises:
            UsageError: it is called in the loop's own thread, which would wait for itself.
            ClientClosed: the thread was stopped, or was not started.
            BaseException: what the work raises.
        """
        self._check_thread()
        with self._lock:  # not while it stops: nobody would run it
            if self._loop is None:
                raise _closed()
            running = asyncio.run_coroutine_threadsafe(_awaited(work), self._loop)
        try:
            return running.result()
        except concurrent.futures.CancelledError:
            raise _closed() from None
        finally:
            running.cancel()  # without effect when it is done

    @property
    def is_running(self) -> bool:
        """Whether calls are taken."""
        return self._loop is not None

    def stop(self) -> None:
        """End the loop and its thread; calls that wait end with ClientClosed. Raises UsageError, as `call`."""
        self._check_thread()
        with self._lock:
            if self._loop is None:
                return
            assert self._stopped is not None
            self._loop.call_soon_threadsafe(self._stopped.set)
            self._loop = None  # no call is taken from now on
        assert self._thread is not None
        self._thread.join()

    def _check_thread(self) -> None:
        if threading.current_thread() is self._thread:
            raise UsageError(
                "this client cannot be used from here",
                "a callback of the client runs in the thread that would do the work",
                "hand what it has to do to another thread",
            )


async def _awaited(work: Callable[[], Awaitable[T]]) -> T:
    return await work()


def _closed() -> ClientClosed:
    return ClientClosed("the client is closed", "this program closed it", "connect again with a new client")
