"""Watches whose reader is slow, at a real etcd behind a relay that takes nothing more from it: etcd-io/etcd#17529.

etcd then keeps what it has not sent as a history that it must read again, and may have compacted. Until 3.5.13 it lost
events there and reported nothing; docs/stores.md says what our stores do.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest

from tests.support.etcd_releases import RELEASES, etcd_of
from tests.support.slow_relay import SlowRelay, slow_relay_to
from tests.support.stores import DEADLINE_S, ETCD_STORES, EtcdClientOptions, post
from tests.support.waiting import eventually
from topology.etcd.server import EtcdServer
from topology.etcd.store import ClusterStore, CompactedError

PATIENT = EtcdClientOptions(call_timeout_s=30.0, connect_timeout_s=10.0, watch_silence_s=DEADLINE_S)
"""The watch that was stalled goes on: it is not opened again for want of time."""
HASTY = EtcdClientOptions(call_timeout_s=1.0, connect_timeout_s=0.5, watch_silence_s=0.5)
"""It is given up, and opened again at the same stalled relay."""
PUTS, VALUE = 48, b"v" * (192 << 10)
"""9 MiB, more than the sockets of a connection hold."""
SMALL_PUTS, SMALL_VALUE = 160, b"v" * 64
"""More events than etcd keeps for a watch whose connection takes no more."""
SLOW_WATCHERS = re.compile(r"^etcd_debugging_mvcc_slow_watcher_total (\S+)$", re.MULTILINE)
PATIENCE = pytest.mark.parametrize("options", [PATIENT, HASTY], ids=["patient", "hasty"])


@pytest.fixture(params=list(ETCD_STORES))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module", params=list(RELEASES))
def release(request: pytest.FixtureRequest) -> Iterator[EtcdServer]:
    """One etcd of each release without the fault."""
    started = EtcdServer(etcd_of(request.param))
    asyncio.run(started.start())
    yield started
    asyncio.run(started.stop())


@dataclass(slots=True)
class Slow:
    """A watch through a relay, and a writer beside it."""

    etcd: EtcdServer
    relay: SlowRelay
    near: ClusterStore
    prefix: str
    written: list[int] = field(default_factory=list)
    """Revisions of the puts."""
    reported: list[int] = field(default_factory=list)
    compacted: int = 0
    """What the watch ended by; 0 = it goes on."""

    async def put(self, value: bytes = VALUE) -> None:
        """One more, past the relay."""
        done = await self.near.compare_and_put(f"{self.prefix}{len(self.written)}", value, None)
        self.written.append(done.revision)

    async def watch(self, store: ClusterStore, first: int) -> None:
        """Note what the watch reports, until it is cancelled or ends by a compaction."""
        try:
            async with aclosing(store.watch(self.prefix, first)) as batches:
                async for batch in batches:
                    self.reported += [event.mod_revision for event in batch.events]
        except CompactedError as error:
            self.compacted = error.compacted_revision

    async def are_reported(self) -> None:
        """Wait until the watch has reported as many events as there were puts."""
        await eventually(lambda: len(self.reported) >= len(self.written), "all events come")

    async def fall_behind(self) -> None:
        """Write until etcd has given up sending to this watch at once."""
        for value in [VALUE] * PUTS + [SMALL_VALUE] * SMALL_PUTS:
            await self.put(value)
        await eventually(self._is_slow, "etcd calls the watch slow")
        assert len(self.reported) < len(self.written)

    async def _is_slow(self) -> bool:
        async with aiohttp.ClientSession() as session, session.get(f"{self.etcd.urls[0]}/metrics") as answer:
            found = SLOW_WATCHERS.search(await answer.text())
        assert found is not None
        return float(found[1]) > 0


@asynccontextmanager
async def slow_watch(etcd: EtcdServer, kind: str, options: EtcdClientOptions) -> AsyncIterator[Slow]:
    """A watch that has reported one event, and is stalled."""
    near, prefix = ETCD_STORES[kind](etcd.urls), f"/slow/{uuid.uuid4().hex}/"
    async with slow_relay_to(int(etcd.urls[0].rpartition(":")[2])) as relay:
        store = ETCD_STORES[kind]([relay.url], options)
        slow = Slow(etcd, relay, near, prefix)
        first, _ = await near.snapshot(prefix)
        watching = asyncio.create_task(slow.watch(store, first + 1))
        try:
            await slow.put(b"first")
            await slow.are_reported()
            relay.stall()
            yield slow
        finally:
            relay.go_on()
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
            await store.close()
            await near.close()


@PATIENCE
async def test_no_event_is_lost_or_repeated_when_a_stalled_watch_goes_on(
    etcd: EtcdServer, kind: str, options: EtcdClientOptions
) -> None:
    async with slow_watch(etcd, kind, options) as slow:
        await slow.fall_behind()
        if options is HASTY:
            before = slow.relay.said
            await eventually(lambda: slow.relay.said > before + 1, "it is opened again, and again")
        slow.relay.go_on()
        await slow.are_reported()
        await slow.put(b"last")
        await slow.are_reported()
        assert slow.reported == slow.written


@pytest.mark.slow
@pytest.mark.needs("etcd-releases")
@PATIENCE
@pytest.mark.parametrize("pause_s", [0.0, 0.005], ids=["at once", "slowly"])
async def test_a_watch_that_etcd_compacts_before_it_is_sent_reports_all_or_says_so(
    release: EtcdServer, kind: str, options: EtcdClientOptions, pause_s: float
) -> None:
    """Whoever gets the error takes a snapshot (K-4); a gap without one is what no store could repair."""
    async with slow_watch(release, kind, options) as slow:
        await slow.fall_behind()
        await post(release.urls[0], "kv/compaction", {"revision": str(slow.written[-1]), "physical": True})
        slow.relay.pause_s = pause_s
        slow.relay.go_on()
        await slow.put(b"last")
        await eventually(lambda: slow.compacted > 0 or len(slow.reported) >= len(slow.written), "it ends or goes on")
        assert slow.reported == slow.written[: len(slow.reported)], "a gap, or an event twice"
        assert slow.compacted in (0, slow.written[-2])
