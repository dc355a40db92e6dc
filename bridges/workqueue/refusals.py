"""Refusals that every store of queues words alike."""

from __future__ import annotations

from collections.abc import Iterable

from bridges.workqueue.errors import AlreadyReassigned, UnknownEntry, UnknownQueue
from bridges.workqueue.items import Ending, Handle
from oncewire.store.errors import InvalidRequest

_ENDED_AS = {
    Ending.DONE: "it was committed",
    Ending.MOVED: "it was moved to another queue",
    Ending.DEAD: "it failed too often and is a dead letter",
    Ending.REPLAYED: "it was a dead letter and was replayed",
    Ending.DISCARDED: "it was a dead letter and was discarded",
    Ending.POPPED: "it was popped",
}


def unknown_queue(name: str) -> UnknownQueue:
    """W-14: a queue that nobody made is a spelling mistake, and items in it would never be found."""
    return UnknownQueue(
        f"the queue {name!r} cannot be used",
        "there is no queue of that name in this store",
        "check the spelling; a first push, `Queue.open` or `oncewire queue configure` makes a queue",
    )


def unknown_entry(number: int) -> UnknownEntry:
    """There is no such entry of the history."""
    return UnknownEntry(
        f"there is no history entry {number}",
        "it never was, or it has expired",
        "look for it with `history`; a queue's history_s says how long entries are kept",
    )


def unknown_schedule(name: str) -> UnknownEntry:
    """There is no such schedule."""
    return UnknownEntry(f"there is no schedule {name!r}", "it never was, or was deleted", "list the queue's schedules")


def replayed_before(number: int, ending: Ending) -> InvalidRequest:
    """W-16: a dead letter is replayed once."""
    return InvalidRequest(
        f"the history entry {number} cannot be replayed",
        f"it was a dead letter, and was {ending} before",
        "look at the item that it became; push the payload anew if that is meant",
    )


def no_dead_letter(number: int) -> InvalidRequest:
    """Only a dead letter can be discarded."""
    return InvalidRequest(
        f"the history entry {number} cannot be discarded", "it is no dead letter", "leave it: it expires by itself"
    )


def past_handle(handle: Handle, newest: int | None, endings: Iterable[Ending]) -> AlreadyReassigned:
    """W-5: the handle settles nothing.

    Args:
        handle: the past one.
        newest: number of the item's newest reservation; None = there is no such item.
        endings: how the reservation of this handle ended, if it did.
    """
    for ending in endings:
        why = _ENDED_AS[ending]
        break
    else:
        if newest is None:
            why = "there is no such item, or none any more"
        elif newest > handle.reservation:
            why = "the reservation ran out and the item was reserved again"
        else:
            why = "the item was given back" if newest == handle.reservation else "it was never reserved so often"
    return AlreadyReassigned(f"the handle {handle} is past", why, "drop the work; reserve anew")
