"""Carries out what the record core asks of etcd: reads and proposals of attachment keys.

Success of a proposal is not reported: the watch delivers it (K-2). Failures are distinguished by whether the write may
have been applied (K-2a). What waits at the same time goes together, by its sort (A-2e): reads, puts of subscriptions,
puts of publishers, and deletions. A put of two keys (SH-1) goes alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from delivery_records.model.effects import Propose, Read
from delivery_records.model.inputs import ReadDone, StoreFailed, StoreFailure
from delivery_records.model.view import Kind, PublisherRecord, SubscriptionRecord
from router.incarnations.lanes import Lane
from router.process.logs import EventLog, RouterEvent
from router.records_driver import RecordsDriver
from topology.etcd.members import FULL_ADVICE
from topology.etcd.store import (
    MAX_WRITE_BYTES,
    MAX_WRITES,
    Beside,
    ClusterStore,
    Stored,
    StoreError,
    StoreFull,
    StoreRejected,
    StoreTimeout,
    Write,
)
from topology.keys.attachments import MalformedValue, change_of_stored, encode_record, store_key
from topology.keys.epochs import revision_of


class StoreOperations:
    """Runs the operations of one incarnation as tasks of its task group."""

    def __init__(self, store: ClusterStore, driver: RecordsDriver, tasks: asyncio.TaskGroup, log: EventLog) -> None:
        self._store = store
        self._driver = driver
        self._log = log
        self._most = MAX_WRITES
        """Operations in one transaction; fewer where etcd has refused as many."""
        self._reads = Lane(tasks, self._take_reads, self._read)
        self._alone = Lane(tasks, self._take_one, self._put_two)
        self._deletions, self._subscriptions, self._publishers = (
            Lane(tasks, self._take_writes, self._write) for _ in range(3)
        )
        driver.register(Read, self._start_read)
        driver.register(Propose, self._start_proposal)

    def _start_read(self, effect: Read) -> None:
        self._driver.waiting_for_store += 1
        self._reads.add(effect)

    def _start_proposal(self, effect: Propose) -> None:
        self._driver.waiting_for_store += 1
        if effect.record is None:
            self._deletions.add(effect)
        elif effect.shared is not None:
            self._alone.add(effect)
        elif effect.key.startswith(_OF_SUBSCRIPTION):
            self._subscriptions.add(effect)
        else:
            self._publishers.add(effect)

    # --- what goes together

    def _take_reads(self, waiting: deque[Read]) -> list[Read]:
        taken = [waiting.popleft() for _ in range(min(self._most, len(waiting)))]
        self._driver.waiting_for_store -= len(taken)
        return taken

    def _take_writes(self, waiting: deque[Propose]) -> list[tuple[Propose, Write]]:
        """As many as one transaction may have, each key once."""
        taken: dict[str, tuple[Propose, Write]] = {}
        size = 0
        while waiting and len(taken) < self._most and waiting[0].key not in taken:
            effect = waiting[0]
            value = None if effect.record is None else encode_record(effect.record, ordinal=len(taken))
            size += len(effect.key) + len(value or b"")
            if taken and size > MAX_WRITE_BYTES:
                break
            taken[effect.key] = effect, Write(store_key(effect.key), value, revision_of(effect.expect))
            waiting.popleft()
        self._driver.waiting_for_store -= len(taken)
        return list(taken.values())

    def _take_one(self, waiting: deque[Propose]) -> Propose:
        self._driver.waiting_for_store -= 1
        return waiting.popleft()

    # --- calls

    async def _read(self, effects: list[Read]) -> None:
        keys = [store_key(effect.key) for effect in effects]
        try:
            if len(keys) == 1:
                found = [await self._store.get(keys[0])]
            else:
                found = await self._store.get_each(keys)
        except StoreRejected as error:
            if not self._is_too_much(effects, error):
                self._failed(effects, StoreFailure.UNAVAILABLE, error)
                return
            for effect in effects:
                await self._read([effect])
        except StoreError as error:
            self._failed(effects, StoreFailure.UNAVAILABLE, error)
        else:
            self._driver.submit(
                [
                    answer
                    for effect, stored in zip(effects, found, strict=True)
                    if (answer := self._answer(effect, stored)) is not None
                ]
            )

    def _answer(self, effect: Read, stored: Stored | None) -> ReadDone | None:
        if stored is None:
            return ReadDone(effect.nonce, None)
        try:
            change = change_of_stored(stored)
        except MalformedValue as error:
            self._log.event(RouterEvent.KEY_MALFORMED, key=effect.key, why=str(error))
            self._driver.fail_in_store(StoreFailed(effect.nonce, StoreFailure.UNAVAILABLE), _MALFORMED)
            return None
        assert change is not None, "the record core asks for attachments only"
        assert isinstance(change.record, PublisherRecord | SubscriptionRecord)
        return ReadDone(effect.nonce, change.record, change.create_revision, change.mod_revision)

    async def _write(self, proposals: list[tuple[Propose, Write]]) -> None:
        effects, writes = [effect for effect, _ in proposals], [write for _, write in proposals]
        try:
            if len(writes) == 1:
                done = [await self._write_one(writes[0])]
            else:
                done = await self._store.write_each(writes)
        except StoreRejected as error:
            if not self._is_too_much(effects, error):
                self._failed(effects, StoreFailure.UNAVAILABLE, error)
                return
            for proposal in proposals:
                await self._write([proposal])
        except StoreError as error:
            self._failed(effects, _fate(error), error)
        else:
            self._refuse([effect for effect, is_done in zip(effects, done, strict=True) if not is_done])

    async def _write_one(self, write: Write) -> bool:
        if write.value is None:
            return (await self._store.compare_and_delete(write.key, write.expect_mod_revision)).succeeded
        return (await self._store.compare_and_put(write.key, write.value, write.expect_mod_revision)).succeeded

    async def _put_two(self, effect: Propose) -> None:
        """SH-1: a member's put writes its shared subscription, too."""
        record, shared = effect.record, effect.shared
        assert record is not None
        assert shared is not None
        beside = Beside(store_key(shared.key), encode_record(shared.record), revision_of(shared.created))
        try:
            result = await self._store.compare_and_put(
                store_key(effect.key), encode_record(record), revision_of(effect.expect), beside=beside
            )
        except StoreError as error:
            self._failed([effect], _fate(error), error)
        else:
            self._refuse([] if result.succeeded else [effect])

    # --- failures

    def _refuse(self, effects: list[Propose]) -> None:
        """Their compares failed."""
        if effects:
            self._driver.submit([StoreFailed(effect.nonce, StoreFailure.CONFLICT) for effect in effects])

    def _is_too_much(self, effects: list[Any], error: StoreError) -> bool:
        """Whether etcd may take each of these alone; fewer go together from now on."""
        if len(effects) == 1:
            return False
        self._most = max(1, len(effects) // 2)
        self._log.event(RouterEvent.STORE_FAILED, doing=_doing(effects), why=str(error), outcome=_EACH_ALONE)
        return True

    def _failed(self, effects: list[Any], failure: StoreFailure, error: StoreError) -> None:
        self._log.event(RouterEvent.STORE_FAILED, doing=_doing(effects), why=str(error), outcome=failure.value)
        is_full = isinstance(error, StoreFull)
        reported = FULL_ADVICE if is_full else _NO_STORE
        for effect in effects:
            self._driver.fail_in_store(StoreFailed(effect.nonce, failure), reported, same_everywhere=is_full)


_OF_SUBSCRIPTION = f"{Kind.SUBSCRIPTION.value}/"
_EACH_ALONE = "each alone"
_NO_STORE = (
    "etcd has no leader or cannot be reached from this router (its log: store_failed; see `etcdctl endpoint status`):"
    " attach again later, or at another router"
)
_MALFORMED = "etcd holds something else under the key of this link; the router's log names the key (key_malformed)"


def _fate(error: StoreError) -> StoreFailure:
    return StoreFailure.UNKNOWN if isinstance(error, StoreTimeout) else StoreFailure.UNAVAILABLE


def _doing(effects: list[Any]) -> str:
    """Of these operations, for the log."""
    what = f"{'read' if isinstance(effects[0], Read) else 'write'} {effects[0].key}"
    return what if len(effects) == 1 else f"{what} and {len(effects) - 1} more"
