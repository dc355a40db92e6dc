"""Watch faults of etcd's own record (its robustness tests), as they reach the stores that talk to a real etcd.

docs/stores.md says which can be provoked in a real etcd, and which are answered by an endpoint of ours.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, aclosing

import pytest

from tests.support.scripted_etcd import Script, Watch, key_of, scripted_gateway, scripted_grpc
from tests.support.stores import ETCD_STORES, EtcdClientOptions, next_batch
from topology.etcd.store import StoreReplaced

PATIENT = EtcdClientOptions(call_timeout_s=30.0, connect_timeout_s=10.0, watch_silence_s=30.0)
"""Nothing here is to be opened again for want of time."""

Endpoint = Callable[[Script], AbstractAsyncContextManager[str]]
ENDPOINTS: dict[str, Endpoint] = {"gateway": scripted_gateway, "etcd3": scripted_grpc}


@pytest.fixture(params=list(ENDPOINTS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def revisions_reported(kind: str, script: Script, first: int, last: int) -> list[int]:
    """Of the events that a watch from revision `first` on gives, up to `last`."""
    reported: list[int] = []
    async with ENDPOINTS[kind](script) as url:
        store = ETCD_STORES[kind]([url], PATIENT)
        try:
            async with aclosing(store.watch("/t/", first)) as batches:
                while not reported or reported[-1] < last:
                    events = (await next_batch(batches)).events
                    assert [event.key for event in events] == [key_of(event.mod_revision) for event in events]
                    reported += [event.mod_revision for event in events]
        finally:
            await store.close()
    return reported


async def test_a_watch_that_travels_back_in_time_notifies_each_event_once(kind: str) -> None:
    """etcd-io/etcd#15271, #20221: a member that loads a snapshot sends what is older than a watch asked for."""
    script = Script(
        [
            Watch(revision=10, answers=[[8], [10]], ends=True),
            Watch(revision=5, answers=[[6], [7, 8], [9, 10], [11], [8, 9], [12]]),
        ],
        revision=12,
    )
    assert await revisions_reported(kind, script, 8, 12) == [8, 10, 11, 12]


async def test_another_past_behind_older_events_is_still_noticed(kind: str) -> None:
    """K-9: what was reported at revision 10 is not among what comes from there on."""
    script = Script(
        [Watch(revision=10, answers=[[8], [10]], ends=True), Watch(revision=5, answers=[[6], [7, 8], [9, 11]])],
        revision=12,
    )
    with pytest.raises(StoreReplaced, match="another history than before, up to revision 10"):
        await revisions_reported(kind, script, 8, 12)
