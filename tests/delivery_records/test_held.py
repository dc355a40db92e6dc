"""What an egress holds while a publisher is to send a large delivery again (L-6, L-7)."""

from __future__ import annotations

from delivery_records.model.endpoint import Endpoint
from delivery_records.model.messages import Sync
from delivery_records.subscriber.entries import HELD, Entry, Origin, SyncState
from delivery_records.subscriber.held import HeldQueue


def held(queue: HeldQueue, sync: SyncState, number: int) -> Entry:
    entry = Entry(b"%d" % number, HELD)
    entry.sync, entry.number = sync, number
    queue.append(entry, False)
    return entry


def test_what_is_older_than_a_needed_delivery_goes_back_to_where_it_was() -> None:  # L-6, L-7
    queue = HeldQueue()
    sync = SyncState(Endpoint("k", 1, "s"), Sync(1, (1,), (), ()), Origin(1, 1, b""), {}, [])
    needed = held(queue, sync, 4)
    queue.set_aside(sync, needed)
    older = held(queue, sync, 2)
    assert queue.first is older, "it does not wait behind a younger one"
    queue.remove(older)  # it begins, and is aborted
    queue.put_first(older)
    assert queue.first is older
    younger = held(queue, sync, 5)
    queue.bring_back(sync, needed)
    queue.remove(older)
    assert queue.of(sync) == [needed, younger]
