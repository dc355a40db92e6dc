"""Keeps one lease alive from a thread of its own, so that a stall of the router's loop does not cost it (K-3a).

The thread has its own event loop and its own connection to the store. It only reports; whether the router may go on is
decided by `LeaseClock.vet`, on the router's loop.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable

from topology.etcd.store import ClusterStore, LeaseLost, StoreError
from topology.members.lease_clock import LeaseClock

RETRY_S = 0.2
"""After a keep-alive that failed: some ten tries fit before the fence deadline."""
STALL_LIMIT_S = 30.0
"""A router whose loop is stalled for so long loses its lease: while that lasts, no joiner is confirmed (A-6)."""
STOP_S = 5.0
"""How long the owner waits for the thread; it needs milliseconds."""

_log = logging.getLogger(__name__)


class KeepAliveThread:
    """The thread of one lease."""

    def __init__(
        self,
        open_store: Callable[[], ClusterStore],
        lease_id: int,
        clock: LeaseClock,
        now: Callable[[], float],
        on_health: Callable[[bool], None],
    ) -> None:
        """Start keeping the lease alive, from a coroutine of the loop to report to.

        Args:
            open_store: makes the thread's own client of the store.
            lease_id: a lease that was just granted.
            clock: hears of every keep-alive, and of the loss of the lease.
            now: the clock of `clock`; called in the thread.
            on_health: called in the owner's loop when keep-alives begin to fail, and when they work again.
        """
        self._open_store = open_store
        self._lease_id = lease_id
        self._clock = clock
        self._now = now
        self._on_health = on_health
        self._owner = asyncio.get_running_loop()
        self._is_healthy = True
        self._pulse_at = now()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_stopping = threading.Event()
        self._wake = asyncio.Event()
        self._thread = threading.Thread(target=self._main, name="lease keep-alive", daemon=True)
        self._thread.start()

    def pulse(self) -> None:
        """The owner's loop runs. To be called at least every few seconds."""
        self._pulse_at = self._now()

    async def stop(self) -> None:
        """End the thread and close its connection; the lease stays as it is."""
        self._is_stopping.set()
        loop = self._loop
        if loop is not None and not loop.is_closed():
            try:
                loop.call_soon_threadsafe(self._wake.set)
            except RuntimeError:
                _log.debug("the keep-alive thread has ended by itself", extra={"event": "keep_alive_ended"})
        await asyncio.to_thread(self._thread.join, STOP_S)

    def _main(self) -> None:
        try:
            asyncio.run(self._run())
        except Exception:  # noqa: BLE001  (whatever it is, it must not go unseen)
            # Without keep-alives the fence deadline passes: the router ends this incarnation by itself.
            _log.exception("keeping the lease alive failed", extra={"event": "keep_alive_crashed"})

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        store = self._open_store()
        keeping = asyncio.create_task(self._keep(store))
        stopping = asyncio.create_task(self._wake.wait())
        try:
            if not self._is_stopping.is_set():
                await asyncio.wait((keeping, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (keeping, stopping):
                task.cancel()
            await asyncio.gather(keeping, stopping, return_exceptions=True)
            await store.close()
        if not keeping.cancelled():
            keeping.result()

    async def _keep(self, store: ClusterStore) -> None:
        while True:
            await asyncio.sleep(max(0.0, self._clock.next_keep_alive - self._now()))
            sent_at = self._now()
            if sent_at - self._pulse_at > STALL_LIMIT_S:
                _log.error(
                    "the router is stalled for more than %.0f s: its lease is no longer kept",
                    STALL_LIMIT_S,
                    extra={"event": "keep_alive_stopped"},
                )
                self._clock.lose()
                return
            self._clock.keep_alive_sent(sent_at)
            try:
                await store.keep_alive(self._lease_id)
            except LeaseLost:
                self._clock.lose()
                self._report(healthy=False)
                return
            except StoreError as error:
                if self._is_healthy:
                    _log.warning("a keep-alive failed: %s", error, extra={"event": "keep_alive_failed"})
                self._report(healthy=False)
                await asyncio.sleep(RETRY_S)
                self._clock.keep_alive_due(self._now())
            else:
                self._clock.keep_alive_succeeded(sent_at)
                self._report(healthy=True)

    def _report(self, *, healthy: bool) -> None:
        if healthy is self._is_healthy:
            return
        self._is_healthy = healthy
        try:
            self._owner.call_soon_threadsafe(self._on_health, healthy)
        except RuntimeError:
            _log.debug("the router's loop is closed", extra={"event": "keep_alive_ended"})
