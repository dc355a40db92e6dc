"""How a MongoDB store keeps items: one document for each, with its place, its reservation, its end and its key.

An item is a document of `oncewire_items`. While it can be taken it has `due`; when it has ended it has `ended`,
`ending` and `entry` instead, and is its own entry of the history. A passage that ended while the item went on (a move,
or a dead letter that was replayed) is in `past`; before the next such passage takes that place it becomes a document of
its own, with `item`. Whatever an operation changes is in one document, and one command of the server changes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from bridges.workqueue.items import Ending, Handle, HistoryEntry, Taken
from oncewire.store.rules_core import to_s

Document: TypeAlias = dict[str, Any]
ITEMS: Final = "oncewire_items"
QUEUES: Final = "oncewire_queues"
SCHEDULES: Final = "oncewire_schedules"
STORE: Final = "oncewire_store"
VERSION: Final = 1

ASCENDING: Final = 1
DESCENDING: Final = -1
ORDER: Final = [("priority", DESCENDING), ("due", ASCENDING), ("_id", ASCENDING)]
"""Ready items in the order in which they are taken (W-3)."""
Indexes: TypeAlias = tuple[tuple[list[tuple[str, int]], dict[str, bool]], ...]
"""Fields with their directions, and options."""
# Sparse: documents without the field are not in the index, so a unique one does not forbid them.
ITEM_INDEXES: Final[Indexes] = (
    ([("queue", ASCENDING), *ORDER], {}),
    ([("queue", ASCENDING), ("due", ASCENDING)], {}),
    ([("queue", ASCENDING), ("reserved", ASCENDING), ("due", ASCENDING)], {}),
    ([("queue", ASCENDING), ("ended", DESCENDING), ("entry", DESCENDING)], {}),
    ([("queue", ASCENDING), ("ending", ASCENDING), ("ended", DESCENDING), ("entry", DESCENDING)], {}),
    ([("past.queue", ASCENDING), ("past.ended", DESCENDING), ("past.entry", DESCENDING)], {"sparse": True}),
    ([("entry", ASCENDING)], {"sparse": True, "unique": True}),
    ([("past.entry", ASCENDING)], {"sparse": True}),
    ([("item", ASCENDING), ("reservation", ASCENDING)], {}),
    ([("claim", ASCENDING)], {"sparse": True, "unique": True}),
    ([("follows", ASCENDING)], {"sparse": True, "unique": True}),
    ([("plans.name", ASCENDING)], {"sparse": True}),
    ([("purge", ASCENDING)], {"sparse": True}),
    ([("past.purge", ASCENDING)], {"sparse": True}),
)
SCHEDULE_INDEXES: Final[Indexes] = (([("queue", ASCENDING)], {}),)


def claim_of(queue: str, key: str) -> str:
    """What is unique about an item with a key (W-11); names have no line feed."""
    return f"{queue}\n{key}"


def new_document(
    number: int, queue: str, priority: int, due: int, created: int, payload: bytes, **more: Any
) -> Document:
    """Return an item that nobody has taken. `tries` counts the reservations that were no item given back untried."""
    return {
        "_id": number,
        "queue": queue,
        "priority": priority,
        "due": due,
        "reserved": False,
        "reservation": 0,
        "tries": 0,
        "created": created,
        "payload": payload,
        "reason": "",
        **more,
    }


def failures(item: Mapping[str, Any]) -> int:
    """How often an item failed: each try, but the one that goes on."""
    return int(item["tries"]) - bool(item["reserved"])


def taken_from(before: Mapping[str, Any], until: float) -> Taken:
    """Return an item as it was taken, from its document right before."""
    claim = before.get("claim")
    return Taken(
        handle=Handle(before["_id"], before["reservation"] + 1),
        queue=before["queue"],
        payload=bytes(before["payload"]),
        # A reservation that ran out is one of its tries, and has failed (W-6).
        retries=before["tries"],
        priority=before["priority"],
        created=to_s(before["created"]),
        due=to_s(before["due"]),
        until=until,
        key=claim and claim.partition("\n")[2],
    )


def passage_of(
    item: Mapping[str, Any], entry: int, ending: Ending, ended: int, expires: int, targets: list[str]
) -> Document:
    """Return a passage that ends while its item goes on."""
    return {
        "item": item["_id"],
        "entry": entry,
        "queue": item["queue"],
        "ending": ending.value,
        "created": item["created"],
        "ended": ended,
        "expires": expires,
        "purge": expires,
        "retries": item["retries"] if "retries" in item else failures(item),
        "reservation": item["reservation"],
        "priority": item["priority"],
        "payload": item["payload"],
        "result": item.get("result"),
        "reason": item["reason"],
        "targets": targets,
    }


def entry_of(ended: Mapping[str, Any]) -> HistoryEntry:
    """Return the entry of an item that has ended, or of a passage."""
    result = ended.get("result")
    return HistoryEntry(
        ended["entry"],
        ended.get("item", ended.get("_id")),
        ended["queue"],
        Ending(ended["ending"]),
        to_s(ended["created"]),
        to_s(ended["ended"]),
        ended.get("retries", ended.get("tries", 0)),
        ended["reservation"],
        ended["priority"],
        bytes(ended["payload"]),
        None if result is None else bytes(result),
        ended["reason"],
        tuple(ended.get("targets", ())),
    )


def is_kept(ended: Mapping[str, Any], now_us: int) -> bool:
    """Whether an entry is still in the history (W-9); a dead letter has no end."""
    expires = ended.get("expires")
    return expires is None or expires > now_us
