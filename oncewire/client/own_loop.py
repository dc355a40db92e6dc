"""A client belongs to the event loop it was started in: calls from elsewhere fail at once."""

from __future__ import annotations

import asyncio
import threading

from oncewire.client.errors import UsageError


def require_loop(loop: asyncio.AbstractEventLoop) -> None:
    """See that this is called in that event loop.

    Raises:
        UsageError: it is called in another thread, or in another loop of this one.
    """
    try:
        if asyncio.get_running_loop() is loop:  # nearly always
            return
        where = "in another event loop"
    except RuntimeError:
        where = "outside its event loop"
    raise UsageError(
        "a client, its publishers and its subscribers cannot be used from here",
        f"thread {threading.current_thread().name} calls {where}: they belong to the loop they were started in",
        "call asyncio.run_coroutine_threadsafe(publisher.send(...), client.loop).result() from another thread, or "
        "connect again in this loop; oncewire.client.sync is for programs without one",
    )
