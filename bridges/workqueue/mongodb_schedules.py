"""Queues and recurring schedules of a MongoDB store."""

from __future__ import annotations

from dataclasses import asdict, fields, replace

from bridges.workqueue.errors import NoFurtherTime
from bridges.workqueue.items import QueueSettings, Schedule
from bridges.workqueue.mongodb import MongoConnection
from bridges.workqueue.mongodb_documents import Document, new_document
from bridges.workqueue.refusals import unknown_queue, unknown_schedule
from bridges.workqueue.rules_core import check_payload, check_priority, check_settings
from bridges.workqueue.schedule_core import next_after
from oncewire.store.errors import InvalidRequest
from oncewire.store.rules_core import check_name, to_s, to_us

MAX_DOCUMENT_PAYLOAD = 4 << 20
"""A document has at most 16 MiB, and holds a payload, a result and the payload of the passage before."""
INSTANCE_S = 86400.0
"""How long a schedule's instance stays at least: its document keeps a slow node from planning it again."""
_SETTINGS = tuple(field.name for field in fields(QueueSettings))


class MongoSchedules:
    """Settings of queues, and schedules; see Operations.

    Args:
        connection: to the database.
        now: time of the operation (W-15).
    """

    def __init__(self, connection: MongoConnection, now: float) -> None:
        self.now = now
        self.touched: set[str] = set()
        self._now_us = to_us(now)
        self._db = connection
        self._items = connection.items

    async def configure(self, queue: str, **changes: float) -> QueueSettings:
        """Make or change a queue; see Operations."""
        check_name("queue", queue)
        found = await self._db.queues.find_one({"_id": queue}) or {}
        known = {name: found[name] for name in _SETTINGS if name in found}
        settings = replace(QueueSettings(**known), **changes)  # type: ignore[arg-type]
        settings = replace(
            settings, max_retries=int(settings.max_retries), max_payload_bytes=int(settings.max_payload_bytes)
        )
        check_settings(settings)
        if settings.max_payload_bytes > MAX_DOCUMENT_PAYLOAD:
            raise InvalidRequest(
                f"max_payload_bytes of {settings.max_payload_bytes} cannot be used",
                f"a MongoDB store takes up to {MAX_DOCUMENT_PAYLOAD}",
                "store payloads elsewhere and push their addresses, or use another store",
            )
        await self._db.queues.update_one({"_id": queue}, {"$set": asdict(settings)}, upsert=True)
        return settings

    async def queues(self) -> list[str]:
        """Return the names of all queues; see Operations."""
        return [found["_id"] async for found in self._db.queues.find({}, {"_id": 1}).sort("_id", 1)]

    async def _known(self, queue: str) -> QueueSettings:
        return (await self._queue(queue))[0]

    async def _queue(self, queue: str) -> tuple[QueueSettings, bool]:
        """Return a queue's settings, and whether it ever had schedules."""
        found = await self._db.queues.find_one({"_id": queue})
        if found is None:
            raise unknown_queue(queue)
        return QueueSettings(*(found[name] for name in _SETTINGS)), "schedules" in found

    async def schedule(self, schedule: Schedule) -> Schedule:
        """Add or replace a schedule; see Operations.

        W-12: its document decides. It says which generation of instances counts, so replacing or deleting it is one
        change; an instance of another generation is dropped when it is taken. One that is there as it is keeps its own.
        """
        check_name("schedule", schedule.name)
        check_priority(schedule.priority)
        settings = await self._known(schedule.queue)
        check_payload(schedule.payload, settings.max_payload_bytes)
        found = await self._db.schedules.find_one({"_id": schedule.name})
        if found is not None and replace(known := _schedule_of(found), next_at=schedule.next_at) == schedule:
            return known
        generation = await self._db.number()
        due = to_us(next_after(schedule.cron, schedule.timezone, self.now))
        await self._db.queues.update_one({"_id": schedule.queue}, {"$set": {"schedules": True}})
        await self._insert_instance(schedule, generation, due, f"{schedule.name}\n{generation}")
        words = {**asdict(schedule), "generation": generation, "next_at": due}
        del words["name"]
        await self._db.schedules.update_one({"_id": schedule.name}, {"$set": words}, upsert=True)
        await self._drop_instances(schedule.name, generation)
        return replace(schedule, next_at=to_s(due))

    async def _insert_instance(self, schedule: Schedule, generation: int, due: int, follows: str) -> None:
        """W-12: each instance has one that follows, however many nodes plan it: what it follows is unique."""
        document = new_document(
            await self._db.number(),
            schedule.queue,
            schedule.priority,
            due,
            self._now_us,
            schedule.payload,
            follows=follows,
            plans={"name": schedule.name, "generation": generation},
        )
        await self._db.insert(document)
        self.touched.add(schedule.queue)

    async def _drop_instances(self, name: str, generation: int | None) -> None:
        """Instances that wait and do not count any more; one that a worker has taken already stays with it."""
        await self._items.delete_many({"plans.name": name, "plans.generation": {"$ne": generation}, "reserved": False})

    async def _plan_next(self, instance: Document) -> bool:
        """Push the instance that follows one that was just reserved; returns whether this one still counts.

        W-12: a node that crashes in between leaves `plans` in the document, and whoever takes the instance after its
        reservation ran out goes on here.
        """
        held = {"_id": instance["_id"], "reservation": instance["reservation"]}
        name, generation = instance["plans"]["name"], instance["plans"]["generation"]
        found = await self._db.schedules.find_one({"_id": name, "generation": generation})
        if found is None:  # deleted or replaced meanwhile
            await self._items.delete_one(held)
            return False
        schedule = _schedule_of(found)
        try:
            due = to_us(next_after(schedule.cron, schedule.timezone, self.now))
        except NoFurtherTime:  # there is no further time: it must not keep this instance from its worker
            await self._items.update_one(held, {"$unset": {"plans": ""}})
            await self._db.schedules.delete_one({"_id": name, "generation": generation})
            return True
        await self._insert_instance(schedule, generation, due, f"{name}\n{generation}\n{instance['_id']}")
        await self._db.schedules.update_one({"_id": name, "generation": generation}, {"$max": {"next_at": due}})
        await self._items.update_one(held, {"$unset": {"plans": ""}})
        return True

    async def unschedule(self, name: str) -> None:
        """Delete a schedule; see Operations."""
        if not (await self._db.schedules.delete_one({"_id": name})).deleted_count:
            raise unknown_schedule(name)
        await self._drop_instances(name, None)

    async def schedules(self, queue: str) -> list[Schedule]:
        """Return a queue's schedules; see Operations."""
        await self._known(queue)
        return [_schedule_of(found) async for found in self._db.schedules.find({"queue": queue}).sort("_id", 1)]


def _schedule_of(found: Document) -> Schedule:
    return Schedule(
        found["_id"],
        found["queue"],
        found["cron"],
        found["timezone"],
        bytes(found["payload"]),
        found["priority"],
        to_s(found["next_at"]),
    )
