"""Carries out what the record core asks of etcd: reads and proposals of attachment keys.

Success of a proposal is not reported: the watch delivers it (K-2). Failures are distinguished by whether the write may
have been applied (K-2a).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from delivery_records.model.effects import Propose, Read, SharedPut
from delivery_records.model.inputs import Input, ReadDone, StoreFailed, StoreFailure
from delivery_records.model.view import Kind, PublisherRecord, SubscriptionRecord
from router.process.logs import EventLog, RouterEvent
from router.records_driver import RecordsDriver
from topology.etcd.members import FULL_ADVICE
from topology.etcd.store import Beside, ClusterStore, StoreError, StoreFull, StoreTimeout
from topology.keys.attachments import MalformedValue, decode_record, encode_record, store_key

PARALLEL = 64
"""Operations under way at once: enough to fill etcd's batches, few enough to keep its queue short in a storm."""
STARTS_PER_TURN = 2
"""Operations that start in one turn of the event loop, some 1 ms of work: others have theirs in between."""


class Starts:
    """Lets operations start, in order: `PARALLEL` are under way at most, and few start in one turn of the loop."""

    def __init__(self) -> None:
        """None is under way."""
        self._loop = asyncio.get_running_loop()
        self._free = PARALLEL
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_scheduled = False

    async def acquire(self) -> None:
        """Wait until one may start; then `release` is called when it has ended."""
        start = self._loop.create_future()
        self._waiting.append(start)
        self._schedule()
        try:
            await start
        except asyncio.CancelledError:
            if not start.cancelled():  # both came in one turn of the loop
                self.release()
            raise

    def release(self) -> None:
        """One has ended."""
        self._free += 1
        self._schedule()

    def _schedule(self) -> None:
        if self._waiting and self._free and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._start)

    def _start(self) -> None:
        self._is_scheduled = False
        started = 0
        while self._waiting and self._free and started < STARTS_PER_TURN:
            start = self._waiting.popleft()
            if not start.done():  # else it was cancelled while it waited
                start.set_result(None)
                self._free -= 1
                started += 1
        self._schedule()


class StoreOperations:
    """Runs the operations of one incarnation as tasks of its task group."""

    def __init__(self, store: ClusterStore, driver: RecordsDriver, tasks: asyncio.TaskGroup, log: EventLog) -> None:
        self._store = store
        self._driver = driver
        self._tasks = tasks
        self._log = log
        self._slots = Starts()
        driver.register(Read, self._start_read)
        driver.register(Propose, self._start_proposal)

    def _start_read(self, effect: Read) -> None:
        self._tasks.create_task(self._read(effect), name=f"read {effect.key}")

    def _start_proposal(self, effect: Propose) -> None:
        self._tasks.create_task(self._propose(effect), name=f"propose {effect.key}")

    @asynccontextmanager
    async def _slot(self) -> AsyncIterator[None]:
        """Wait until there is room for one more operation."""
        self._driver.waiting_for_store += 1
        try:
            await self._slots.acquire()
        finally:
            self._driver.waiting_for_store -= 1
        try:
            yield
        finally:
            self._slots.release()

    async def _read(self, effect: Read) -> None:
        answer: Input
        try:
            async with self._slot():
                stored = await self._store.get(store_key(effect.key))
            if stored is None:
                answer = ReadDone(effect.nonce, None)
            else:
                kind, _, key = effect.key.partition("/")
                record = decode_record(Kind(kind), key, stored.value)
                assert isinstance(record, PublisherRecord | SubscriptionRecord)
                answer = ReadDone(effect.nonce, record, stored.create_revision, stored.mod_revision)
        except MalformedValue as error:
            self._log.event(RouterEvent.KEY_MALFORMED, key=effect.key, why=str(error))
            self._driver.fail_in_store(StoreFailed(effect.nonce, StoreFailure.UNAVAILABLE), _MALFORMED)
            return
        except StoreError as error:
            self._failed(effect, StoreFailure.UNAVAILABLE, error)
            return
        self._driver.submit([answer])

    async def _propose(self, effect: Propose) -> None:
        key = store_key(effect.key)
        try:
            async with self._slot():
                if effect.record is None:
                    result = await self._store.compare_and_delete(key, effect.expect)
                else:
                    result = await self._store.compare_and_put(
                        key, encode_record(effect.record), effect.expect, beside=_beside(effect.shared)
                    )
        except StoreTimeout as error:
            self._failed(effect, StoreFailure.UNKNOWN, error)
        except StoreError as error:
            self._failed(effect, StoreFailure.UNAVAILABLE, error)
        else:
            if not result.succeeded:
                self._driver.submit([StoreFailed(effect.nonce, StoreFailure.CONFLICT)])

    def _failed(self, effect: Read | Propose, failure: StoreFailure, error: StoreError) -> None:
        doing = "read" if isinstance(effect, Read) else "write"
        self._log.event(RouterEvent.STORE_FAILED, doing=f"{doing} {effect.key}", why=str(error), outcome=failure.value)
        is_full = isinstance(error, StoreFull)
        reported = FULL_ADVICE if is_full else _NO_STORE
        self._driver.fail_in_store(StoreFailed(effect.nonce, failure), reported, same_everywhere=is_full)


_NO_STORE = (
    "etcd has no leader or cannot be reached from this router (its log: store_failed; see `etcdctl endpoint status`):"
    " attach again later, or at another router"
)
_MALFORMED = "etcd holds something else under the key of this link; the router's log names the key (key_malformed)"


def _beside(shared: SharedPut | None) -> Beside | None:
    """SH-1: a member's put writes its shared subscription, too."""
    return None if shared is None else Beside(store_key(shared.key), encode_record(shared.record), shared.created)
