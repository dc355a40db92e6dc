"""Items in a MongoDB store: pushed, taken, settled. Each operation is one change of one document (W-1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from bridges.store.links import LinkState
from bridges.store.outbox import NewMessage
from bridges.workqueue.errors import QueueError
from bridges.workqueue.items import Commit, Ending, Handle, NewItem, Pushed, QueueSettings, Rollback, Taken, Target
from bridges.workqueue.mongodb_documents import (
    ORDER,
    Document,
    claim_of,
    failures,
    is_kept,
    new_document,
    passage_of,
    taken_from,
)
from bridges.workqueue.mongodb_schedules import INSTANCE_S, MongoSchedules
from bridges.workqueue.one_operation import refused
from bridges.workqueue.refusals import past_handle
from bridges.workqueue.rules_core import (
    RAN_OUT,
    REJECTED,
    backoff,
    check_payload,
    check_priority,
    dead_letter_reason,
    due_at,
    is_dead,
)
from oncewire.store.rules_core import MAX_COUNT, check_count, check_name, check_seconds, to_s, to_us

T = TypeVar("T")

PURGE_COUNT = 500
"""Expired entries that one operation deletes at most."""
POP_HOLD_S = 30.0
"""Reservation of an item that is popped in two steps."""


def the_one(things: Sequence[T], what: str) -> T:
    """Return the only one.

    Raises:
        NeedsTransactions: there are several.
    """
    check_count(len(things))
    if len(things) > 1:
        raise refused(f"{what} of {len(things)} items")
    return things[0]


class MongoItems(MongoSchedules):
    """Push, reserve, pop, extend, commit, rollback, move; see Operations."""

    async def push(self, queue: str, items: Sequence[NewItem]) -> list[Pushed]:
        """Add an item; see Operations."""
        item = the_one(items, "a push")
        settings = await self._known(queue)
        check_payload(item.payload, settings.max_payload_bytes)
        check_priority(item.priority)
        if item.key is not None:
            check_name("key", item.key)
        due = to_us(due_at(self.now, item.delay, item.when))
        document = new_document(await self._db.number(), queue, item.priority, due, self._now_us, item.payload)
        if item.key is not None:
            document["claim"] = claim_of(queue, item.key)
        while not await self._db.insert(document):
            # W-11: the key is unique inside the document of the item that has it.
            holder = await self._items.find_one({"claim": document["claim"]}, {"expires": 1})
            if holder is not None and is_kept(holder, self._now_us):
                return [Pushed(holder["_id"], is_new=False)]
            if holder is not None:
                await self._items.update_one(
                    {"_id": holder["_id"], "expires": {"$lte": self._now_us}}, {"$unset": {"claim": ""}}
                )
        self.touched.add(queue)
        return [Pushed(document["_id"])]

    async def resume_link(self, link: str, tags: Sequence[bytes]) -> LinkState:
        """AMQP access needs transactions (W-17)."""
        raise refused("the link")

    async def push_delivery(self, queue: str, item: NewItem, link: str, generation: int, tag: bytes) -> Pushed:
        """AMQP access needs transactions (W-17)."""
        raise refused("the delivery")

    async def settle_deliveries(self, link: str, generation: int, tags: Sequence[bytes]) -> None:
        """AMQP access needs transactions (W-17)."""
        raise refused("the settlement")

    async def reserve(self, queue: str, count: int, timeout: float) -> list[Taken]:
        """Reserve ready items, one after the other; see Operations."""
        check_seconds("a timeout", timeout, zero=False)
        check_count(count)
        settings = await self._known(queue)
        until = self.now + timeout
        taken: list[Taken] = []
        while len(taken) < count:
            try:
                before = await self._reserve_one(queue, settings, until)
            except Exception:
                if taken:  # what is reserved already is the caller's
                    return taken
                raise
            if before is None:
                break
            taken.append(taken_from(before, until))
        return taken

    async def _reserve_one(self, queue: str, settings: QueueSettings, until: float) -> Document | None:
        """Reserve the next item; returns its document right before (W-3, W-4). Too often failed ones die here."""
        change = {"$set": {"due": to_us(until), "reserved": True}, "$inc": {"reservation": 1, "tries": 1}}
        for _ in range(MAX_COUNT):
            before = await self._items.find_one_and_update(
                {"queue": queue, "due": {"$lte": self._now_us}}, change, sort=ORDER
            )
            if before is None:
                return None
            held = {**before, "reserved": True, "reservation": before["reservation"] + 1, "tries": before["tries"] + 1}
            if "plans" in before and not await self._plan_next(held):
                continue
            # W-6: whoever takes an item whose reservation ran out counts a failure.
            if not (before["reserved"] and is_dead(before["tries"], settings)):
                return dict(before)
            reason = dead_letter_reason(before["tries"], RAN_OUT)
            await self._end(held, Ending.DEAD, settings, reason=reason, retries=before["tries"])
        return None

    async def pop(self, queue: str, count: int) -> list[Taken]:
        """Take ready items for good, one after the other; see Operations."""
        check_count(count)
        settings, has_schedules = await self._queue(queue)
        taken: list[Taken] = []
        while len(taken) < count:
            try:
                if has_schedules or not settings.history_s:
                    before = await self._pop_in_two_steps(queue, settings)
                else:
                    before = await self._pop_one(queue, settings)
            except Exception:
                if taken:  # they have ended, so the caller must have them
                    break
                raise
            if before is None:
                break
            taken.append(taken_from(before, self.now))
        if taken:
            await self._purge()
        return taken

    async def _pop_one(self, queue: str, settings: QueueSettings) -> Document | None:
        expires = self._now_us + to_us(settings.history_s)
        ended = {
            "ended": self._now_us,
            "ending": Ending.POPPED.value,
            "entry": await self._db.number(),
            "expires": expires,
            "purge": expires,
        }
        before: Document | None = await self._items.find_one_and_update(
            {
                "queue": queue,
                "due": {"$lte": self._now_us},
                # Not what is dead (W-8), which `_pop_in_two_steps` buries.
                "$or": [{"reserved": False}, {"tries": {"$lte": settings.max_retries}}],
            },
            {"$set": ended, "$unset": {"due": ""}, "$inc": {"reservation": 1}},
            sort=ORDER,
        )
        return before if before is not None else await self._pop_in_two_steps(queue, settings)

    async def _pop_in_two_steps(self, queue: str, settings: QueueSettings) -> Document | None:
        """Where taking an item is more than its own document: it is reserved, and then it ends."""
        before = await self._reserve_one(queue, settings, self.now + POP_HOLD_S)
        if before is None:
            return None
        held = {**before, "reserved": True, "reservation": before["reservation"] + 1, "tries": before["tries"] + 1}
        await self._end(held, Ending.POPPED, settings)
        return before

    async def next_due(self, queue: str) -> float | None:
        """Return when something can be taken; see Operations."""
        await self._known(queue)
        first = await self._items.find_one({"queue": queue, "due": {"$gte": 0}}, {"due": 1}, sort=[("due", 1)])
        return None if first is None else to_s(first["due"])

    async def extend(self, handles: Sequence[Handle], timeout: float) -> float:
        """Extend a reservation; see Operations."""
        check_seconds("a timeout", timeout, zero=False)
        item = await self._held(the_one(handles, "an extension"), frozenset())
        assert item is not None
        until = self.now + timeout
        if not await self._change(item, {"$set": {"due": to_us(until)}}):
            return await self.extend(handles, timeout)
        self.touched.add(item["queue"])
        return until

    async def commit(self, commits: Sequence[Commit]) -> None:
        """End an item as done; see Operations."""
        commit = the_one(commits, "a commit")
        if commit.messages:
            raise refused("a commit with messages")
        item = await self._held(commit.handle, frozenset({Ending.DONE}))
        if item is None:  # repeated
            return
        settings = await self._known(item["queue"])
        check_payload(commit.payload, settings.max_payload_bytes)
        check_payload(commit.result, settings.max_payload_bytes)
        if not await self._end(item, Ending.DONE, settings, result=commit.result, payload=commit.payload):
            await self.commit(commits)
        await self._purge()

    async def rollback(self, rollbacks: Sequence[Rollback]) -> None:
        """Give an item back; see Operations."""
        rollback = the_one(rollbacks, "a rollback")
        if rollback.delay is not None:
            check_seconds("a delay", rollback.delay)
        item = await self._held(rollback.handle, frozenset({Ending.DEAD}), may_be_given_back=True)
        if item is None:  # repeated
            return
        settings = await self._known(item["queue"])
        tries = item["tries"] - (not rollback.is_failure)
        if rollback.is_final:
            reason = rollback.reason or REJECTED
            changed = await self._end(item, Ending.DEAD, settings, reason=reason, retries=tries)
        elif rollback.is_failure and is_dead(tries, settings):  # W-8
            reason = dead_letter_reason(tries, rollback.reason)
            changed = await self._end(item, Ending.DEAD, settings, reason=reason, retries=tries)
        else:
            delay = rollback.delay
            if delay is None:
                # W-7: what was given back untried is as ready as it was.
                delay = backoff(tries, settings, self._db.chance()) if rollback.is_failure else 0.0
            back = {"due": to_us(self.now + delay), "reserved": False, "tries": tries}
            changed = await self._change(item, {"$set": {**back, "reason": rollback.reason or item["reason"]}})
            self.touched.add(item["queue"])
        if not changed:
            await self.rollback(rollbacks)

    async def publish(self, messages: Sequence[NewMessage]) -> None:
        """Refused: the outbox is part of a transaction (W-21); see Operations."""
        raise refused("the publishing of messages")

    async def move(self, handle: Handle, targets: Sequence[Target], messages: Sequence[NewMessage] = ()) -> list[int]:
        """Move an item: its queue changes, and the passage stays in the document (W-10); see Operations."""
        check_count(len(targets))
        if messages:
            raise refused("a move with messages")
        if len(targets) > 1:
            raise refused(f"a fork into {len(targets)} queues")
        (target,) = targets
        limit = (await self._known(target.queue)).max_payload_bytes
        check_payload(target.payload, limit)
        if target.priority is not None:
            check_priority(target.priority)
        item = await self._held(handle, frozenset({Ending.MOVED}))
        if item is None:  # repeated
            return [handle.item]
        payload = item["payload"] if target.payload is None else target.payload
        check_payload(payload, limit)
        keeps_s = (await self._known(item["queue"])).history_s
        there = {
            "queue": target.queue,
            "due": to_us(due_at(self.now, target.delay, target.when)),
            "payload": payload,
            "priority": item["priority"] if target.priority is None else target.priority,
            "reserved": False,
            "tries": 0,
            "reason": "",
        }
        change: Document = {"$set": there}
        await self._give_past_a_document(item)
        if keeps_s:
            expires = self._now_us + to_us(keeps_s)
            entry = await self._db.number()
            there["past"] = passage_of(item, entry, Ending.MOVED, self._now_us, expires, [target.queue])
        else:
            change["$unset"] = {"past": ""}
        if not await self._change(item, change):
            return await self.move(handle, targets)
        self.touched.add(target.queue)
        await self._purge()
        return [handle.item]

    async def _change(self, item: Document, change: Document) -> bool:
        """Change an item as long as it is reserved as it was read; returns whether it was."""
        held = {"_id": item["_id"], "reservation": item["reservation"], "reserved": True, "due": {"$gte": 0}}
        return bool((await self._items.update_one(held, change)).matched_count)

    async def _end(
        self,
        item: Document,
        ending: Ending,
        settings: QueueSettings,
        *,
        result: bytes | None = None,
        payload: bytes | None = None,
        reason: str = "",
        retries: int | None = None,
    ) -> bool:
        """W-9: a reserved item becomes history, or nothing where none is kept; returns whether it did."""
        is_dead_letter = ending is Ending.DEAD
        if not settings.history_s and not is_dead_letter and "follows" not in item:
            await self._give_past_a_document(item)
            held = {"_id": item["_id"], "reservation": item["reservation"], "reserved": True, "due": {"$gte": 0}}
            return bool((await self._items.delete_one(held)).deleted_count)
        expires = self._now_us + to_us(settings.history_s)
        ended: Document = {
            "ended": self._now_us,
            "ending": ending.value,
            "entry": await self._db.number(),
            "result": result,
            "reason": reason or item["reason"],
            "retries": failures(item) if retries is None else retries,
        }
        if payload is not None:
            ended["payload"] = payload
        if not is_dead_letter:  # W-8: nobody has seen to a dead letter yet, so neither it nor its key expires
            lasts_s = max(settings.history_s, INSTANCE_S) if "follows" in item else settings.history_s
            ended.update(expires=expires, purge=self._now_us + to_us(lasts_s))
        return await self._change(item, {"$set": ended, "$unset": {"due": "", "plans": ""}})

    async def _give_past_a_document(self, item: Document) -> None:
        """The passage before leaves its place in the document; a second time changes nothing."""
        past = item.get("past")
        if past is not None and past["purge"] > self._now_us:
            await self._db.insert({**past, "_id": past["entry"]})

    async def _purge(self) -> None:
        """Delete what has expired. The operation is done: what fails here is done by the next one (W-9)."""
        try:
            async with self._db.explained():
                await self._purge_some()
        except QueueError:
            return

    async def _purge_some(self) -> None:
        expired = {"$lte": self._now_us}
        found = self._items.find({"purge": expired}, {"past": 1}).limit(PURGE_COUNT)
        gone = []
        async for item in found:
            await self._give_past_a_document(item)
            gone.append(item["_id"])
        if gone:
            await self._items.delete_many({"_id": {"$in": gone}, "purge": expired})
        await self._items.update_many({"past.purge": expired}, {"$unset": {"past": ""}})

    async def _held(
        self, handle: Handle, repeated: frozenset[Ending], *, may_be_given_back: bool = False
    ) -> Document | None:
        """Return the item that this handle still holds; None = the same operation has settled it before (W-5).

        Raises:
            AlreadyReassigned: the handle is past.
        """
        item: Document | None = await self._items.find_one({"_id": handle.item})
        if item is not None and "item" in item:  # a passage
            item = None
        is_newest = item is not None and item["reservation"] == handle.reservation
        goes_on = item is not None and "due" in item
        if item is not None and is_newest and goes_on and item["reserved"]:
            return item
        wanted = {"item": handle.item, "reservation": handle.reservation}
        passages: list[Any] = [each async for each in self._items.find(wanted, {"ending": 1})]
        if item is not None:
            past = item.get("past", {})
            passages += [past] if past.get("reservation") == handle.reservation else []
            passages += [item] if is_newest and not goes_on else []
        endings = {Ending(each["ending"]) for each in passages}
        if endings & repeated or (may_be_given_back and is_newest and goes_on and not endings):
            return None
        raise past_handle(handle, None if item is None else item["reservation"], endings)
