"""Operations on etcd that wait at the same time go together, and each has its own answer (A-2e)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager

from delivery_records import Records
from delivery_records.model.inputs import (
    Input,
    PublisherAttach,
    StoreHealth,
    SubscriberAttach,
    ViewChanges,
    ViewSnapshot,
)
from delivery_records.model.limits import Limits
from delivery_records.model.outcomes import Decision
from delivery_records.model.tags import link_key
from delivery_records.model.view import Change, Kind, RouterRecord, SubscriptionRecord, router_key, subscription_path
from oncewire.transport.turn import Backlog, Turn
from router.incarnations.lanes import UNDER_WAY
from router.incarnations.store_operations import StoreOperations
from router.process.logs import EventLog
from router.records_driver import RecordsDriver
from tests.support.waiting import eventually
from topology.etcd.memory_store import MemoryEtcd, MemoryStore
from topology.etcd.store import MAX_WRITES, PREFIX, UNCONDITIONAL, Beside, PutResult, Stored, StoreRejected, Write
from topology.keys.attachments import change_of_event, encode_record, readable_changes, store_key
from topology.keys.epochs import last_epoch_of

RID = 1
ROUTER = RouterRecord(node_id="r1", rid=RID)


class SlowStore(MemoryStore):
    """A store whose calls wait while it is held; counts the operations of each. It may refuse large transactions."""

    def __init__(self, etcd: MemoryEtcd) -> None:
        super().__init__(etcd)
        self.calls: list[list[str]] = []
        """The keys of each call, in order."""
        self.most = MAX_WRITES
        self._go = asyncio.Event()
        self._go.set()

    def hold(self) -> None:
        self._go.clear()

    def let_go(self) -> None:
        self._go.set()

    async def _arrive(self, keys: Sequence[str]) -> None:
        self.calls.append([key.removeprefix(PREFIX).partition("/")[0] for key in keys])
        await self._go.wait()

    async def get(self, key: str) -> Stored | None:
        await self._arrive([key])
        return await super().get(key)

    async def get_each(self, keys: Sequence[str]) -> list[Stored | None]:
        await self._arrive(keys)
        return await super().get_each(keys)

    async def compare_and_put(
        self, key: str, value: bytes, expect_mod_revision: int | None, lease_id: int = 0, beside: Beside | None = None
    ) -> PutResult:
        await self._arrive([key])
        return await super().compare_and_put(key, value, expect_mod_revision, lease_id, beside)

    async def compare_and_delete(self, key: str, expect_mod_revision: int) -> PutResult:
        await self._arrive([key])
        return await super().compare_and_delete(key, expect_mod_revision)

    async def write_each(self, writes: Sequence[Write]) -> list[bool]:
        await self._arrive([write.key for write in writes])
        if len(writes) > self.most:
            raise StoreRejected("etcd refuses: too many operations in txn request")
        return await super().write_each(writes)


class Attaches:
    """A record core with a store, whose watch it follows."""

    def __init__(self, read_attaches: int) -> None:
        self.etcd = MemoryEtcd()
        self.store = SlowStore(self.etcd)
        self.core = Records(rid=RID, node_id="r1", nonce=b"abcd", limits=Limits(read_attaches=read_attaches))
        self.faults: list[str] = []
        self.driver = RecordsDriver(
            self.core, EventLog("r1"), lambda _now: True, lambda: self.faults.append("fault"), Backlog(Turn())
        )

    async def follow(self) -> None:
        async with aclosing(self.store.watch(PREFIX, 2)) as batches:
            async for batch in batches:
                changes = readable_changes(change_of_event, batch.events)
                self.driver.submit([ViewChanges(last_epoch_of(batch.revision), changes)])

    def subscribe(self, first: int, count: int = 1, topic: str = "orders") -> None:
        """In one turn."""
        self.driver.submit(
            [
                SubscriberAttach(number, "box", f"s{number}", topic, None, timeout_s=600.0)
                for number in range(first, first + count)
            ]
        )

    def attached(self) -> int:
        return self.core.counts[Decision.SUBSCRIBER_ATTACHED] + self.core.counts[Decision.PUBLISHER_ATTACHED]


@asynccontextmanager
async def attaching(read_attaches: int = 0) -> AsyncIterator[Attaches]:
    """Attaches put over the view, but for the first so many under way."""
    made = Attaches(read_attaches)
    change = Change(Kind.ROUTER, router_key(ROUTER), ROUTER, 1, 1)
    start: list[Input] = [StoreHealth(True), ViewSnapshot(last_epoch_of(1), [change])]
    tasks = asyncio.TaskGroup()
    async with tasks:
        StoreOperations(made.store, made.driver, tasks, EventLog("r1"))
        following = tasks.create_task(made.follow())
        made.driver.submit(start)
        yield made
        made.store.let_go()
        following.cancel()
    made.driver.stop()
    assert made.faults == []
    assert made.driver.waiting_for_store == 0


async def until(condition: Callable[[], bool]) -> None:
    await eventually(condition, "the attaches come to the view")


async def a_few_turns() -> None:
    """Enough for whatever waits for nothing but turns of the loop."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_an_attach_that_comes_alone_waits_for_no_other() -> None:
    async with attaching() as net:
        net.store.hold()
        net.subscribe(1)
        await a_few_turns()
        assert net.store.calls == [["subs"]]
        net.subscribe(2)
        await a_few_turns()
        assert net.store.calls == [["subs"], ["subs"]]


async def test_what_comes_while_calls_are_under_way_goes_in_the_next_one() -> None:
    async with attaching() as net:
        net.store.hold()
        for number in range(UNDER_WAY + 10):
            net.subscribe(number)
            await a_few_turns()
        assert len(net.store.calls) == UNDER_WAY
        assert net.driver.waiting_for_store == 10
        net.store.let_go()
        await until(lambda: net.attached() == UNDER_WAY + 10)
        assert net.store.calls[UNDER_WAY:] == [["subs"] * 10]


async def test_what_one_read_brings_goes_together_at_once() -> None:
    async with attaching() as net:
        net.subscribe(0, 2 * MAX_WRITES + 5)
        await until(lambda: net.attached() == 2 * MAX_WRITES + 5)
        assert [len(call) for call in net.store.calls] == [MAX_WRITES, MAX_WRITES, 5]
        assert len({each.epoch for each in net.core.view.subscriptions.values()}) == 2 * MAX_WRITES + 5


async def test_reads_go_together_too() -> None:
    async with attaching(read_attaches=1000) as net:
        net.subscribe(0, 20)
        await until(lambda: net.attached() == 20)
        assert [len(call) for call in net.store.calls] == [20, 20]


async def test_publishers_subscriptions_and_deletions_share_no_transaction() -> None:
    async with attaching() as net:
        net.subscribe(0, 3)
        await until(lambda: net.attached() == 3)
        net.store.calls.clear()
        net.driver.submit(
            [
                *[PublisherAttach(10 + number, "box", f"p{number}", "orders", None) for number in range(3)],
                *[SubscriberAttach(20 + number, "box", f"new{number}", "orders", None) for number in range(3)],
                *[SubscriberAttach(30 + number, "box", f"s{number}", "another", None) for number in range(3)],
            ]
        )
        await until(lambda: net.core.counts[Decision.SUBSCRIBER_ATTACHED] == 9)
        assert all(len(set(call)) == 1 for call in net.store.calls)
        # Those with another topic are read, deleted, read and put.
        assert sorted(map(len, net.store.calls)) == [3] * 6
        revisions = [event[0].mod_revision for event in net.etcd._history if len(event) == 3]
        assert len(set(revisions)) == 5


async def test_a_failed_compare_is_that_of_its_attach_alone() -> None:
    async with attaching() as net:
        net.store.hold()
        net.subscribe(0, 5)
        await a_few_turns()
        # Another router writes one of the keys, and the view does not show it yet.
        net.etcd.faults.hold_watches = True
        key = store_key(subscription_path(link_key("box", "s2")))
        other = SubscriptionRecord("box", "s2", "orders", RID + 1, "2/1", timeout_s=600.0)
        net.etcd.compare_and_put(key, encode_record(other), UNCONDITIONAL, 0)
        net.store.let_go()
        await until(lambda: len(net.store.calls) == 3)
        net.etcd.faults.hold_watches = False
        net.etcd.wake_watches()
        await until(lambda: net.attached() == 5)
        assert [len(call) for call in net.store.calls] == [5, 1, 1]
        assert net.core.counts[Decision.ATTACH_RETRIED] == 0  # A-2b: the view was late, which is no retry


async def test_without_an_answer_none_is_attached_until_the_watch_shows_it() -> None:
    async with attaching() as net:
        net.etcd.faults.hold_watches = net.etcd.faults.lose_answers = True
        net.subscribe(0, 5)
        await until(lambda: net.core.counts[Decision.ATTACH_UNKNOWN] == 5)
        assert net.attached() == 0
        net.etcd.faults.hold_watches = net.etcd.faults.lose_answers = False
        net.etcd.wake_watches()
        await until(lambda: net.attached() == 5)


async def test_what_etcd_refuses_as_a_whole_is_tried_alone_and_fewer_go_together_then() -> None:
    async with attaching() as net:
        net.store.most = 8
        net.subscribe(0, 40)
        await until(lambda: net.attached() == 40)
        before = len(net.store.calls)
        assert before == 1 + 40
        for first in (100, 200, 300, 400):
            net.subscribe(first, 20)
            count = net.attached() + 20
            await until(lambda count=count: net.attached() == count)  # type: ignore[misc]
        assert [len(call) for call in net.store.calls[-3:]] == [5, 5, 5]
