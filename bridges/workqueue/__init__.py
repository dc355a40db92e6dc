"""Work queues in SQLite, PostgreSQL or MongoDB: delay, reservations, retries, dead letters, history, moves, schedules.

The rules are in docs/workqueue-reference.md::

    async with Queue.open("sqlite:///work.db", "orders") as queue:
        await queue.push({"order": 17}, delay=5)
        async with queue.reserve(timeout=30) as item:
            print(item.json)
"""

from bridges.store.outbox import NewMessage
from bridges.store.outbox_publisher import OutboxPublisher
from bridges.workqueue import outbox
from bridges.workqueue.errors import (
    AlreadyReassigned,
    NoFurtherTime,
    QueueEmpty,
    QueueError,
    UnknownEntry,
    UnknownQueue,
)
from bridges.workqueue.feed import Feed
from bridges.workqueue.items import (
    Commit,
    Ending,
    Handle,
    HistoryEntry,
    NewItem,
    Page,
    Pushed,
    QueueSettings,
    Rollback,
    Schedule,
    Search,
    Statistics,
    Taken,
    Target,
)
from bridges.workqueue.messages import new_message
from bridges.workqueue.queue import Queue, Reserved
from bridges.workqueue.queue_store import QueueStore
from bridges.workqueue.store import Operations
from oncewire.store.errors import (
    InvalidRequest,
    LinkStolen,
    NeedsTransactions,
    PartMissing,
    PayloadTooLarge,
    StatementFailed,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnreachable,
    StoreVersionUnknown,
    TakenOver,
)

__all__ = [
    "AlreadyReassigned",
    "Commit",
    "Ending",
    "Feed",
    "Handle",
    "HistoryEntry",
    "InvalidRequest",
    "LinkStolen",
    "NeedsTransactions",
    "NewItem",
    "NewMessage",
    "NoFurtherTime",
    "Operations",
    "OutboxPublisher",
    "Page",
    "PartMissing",
    "PayloadTooLarge",
    "Pushed",
    "Queue",
    "QueueEmpty",
    "QueueError",
    "QueueSettings",
    "QueueStore",
    "Reserved",
    "Rollback",
    "Schedule",
    "Search",
    "StatementFailed",
    "Statistics",
    "StoreBusy",
    "StoreCorrupt",
    "StoreError",
    "StoreFull",
    "StoreUnreachable",
    "StoreVersionUnknown",
    "Taken",
    "TakenOver",
    "Target",
    "UnknownEntry",
    "UnknownQueue",
    "new_message",
    "outbox",
]
