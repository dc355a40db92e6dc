"""Items in the SQL stores: pushed, taken, settled."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from bridges.store.outbox import NewMessage
from bridges.workqueue import sql_statements as sql
from bridges.workqueue.errors import NoFurtherTime
from bridges.workqueue.items import (
    Commit,
    Ending,
    Handle,
    NewItem,
    Pushed,
    QueueSettings,
    Rollback,
    Schedule,
    Taken,
    Target,
)
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
from bridges.workqueue.schedule_core import next_after
from bridges.workqueue.sql_base import Ended, ItemRow, SqlQueues
from oncewire.store.errors import InvalidRequest
from oncewire.store.rules_core import MAX_COUNT, check_count, check_name, check_seconds, to_s, to_us
from oncewire.store.store import Row
from oncewire.store.transaction import chunks


class SqlItems(SqlQueues):
    """Push, reserve, pop, extend, commit, rollback, move; see Operations."""

    def push(self, queue: str, items: Sequence[NewItem]) -> list[Pushed]:
        """Add items; see Operations."""
        check_count(len(items))
        settings = self._known(queue)
        for item in items:
            check_payload(item.payload, settings.max_payload_bytes)
            check_priority(item.priority)
            if item.key is not None:
                check_name("key", item.key)
        self.check_room()
        self.touched.add(queue)
        if all(item.key is None for item in items):
            return [Pushed(number) for number in self._push_many(queue, items)]
        return [self._push(queue, item) for item in items]

    def _push_many(self, queue: str, items: Sequence[NewItem]) -> list[int]:
        """Items without keys. The databases number the rows of a statement in the order of its values."""
        numbers: list[int] = []
        for some in chunks(items):
            values = [
                value
                for item in some
                for value in (
                    queue,
                    item.priority,
                    to_us(due_at(self.now, item.delay, item.when)),
                    self._now_us,
                    item.payload,
                    None,
                    None,
                )
            ]
            statement = sql.INSERT_ITEM.replace(sql.ITEM_ROW, ", ".join([sql.ITEM_ROW] * len(some)))
            numbers += sorted(number for (number,) in self.execute(statement, values))
        return numbers

    def _push(self, queue: str, item: NewItem) -> Pushed:
        # W-11: whoever claims the key adds the item; the other transactions wait for it and see its id.
        if item.key is not None and not self.execute(sql.CLAIM_KEY, (queue, item.key, self._now_us)):
            return Pushed(self.execute(sql.KEY, (queue, item.key))[0][0], is_new=False)
        due = to_us(due_at(self.now, item.delay, item.when))
        number = self._insert(queue, item.priority, due, self._now_us, item.payload, item.key)
        if item.key is not None:
            self.write(sql.NAME_KEY, (number, queue, item.key))
        return Pushed(number)

    def _insert(
        self,
        queue: str,
        priority: int,
        due: int,
        created: int,
        payload: bytes,
        key: str | None = None,
        schedule: str | None = None,
    ) -> int:
        self.touched.add(queue)
        row = self.execute(sql.INSERT_ITEM, (queue, priority, due, created, payload, key, schedule))[0]
        return int(row[0])

    def reserve(self, queue: str, count: int, timeout: float) -> list[Taken]:
        """Reserve ready items; see Operations."""
        check_seconds("a timeout", timeout, zero=False)
        found = self._reserved_ahead.pop((queue, count, timeout), None)
        if found is not None:
            return self._reserved_first(queue, timeout, found)
        rows = self._take(queue, count)
        until = self.now + timeout
        self._write_ids(sql.RESERVE, (to_us(until),), [row.id for row in rows])
        return [self._taken(row, until, reservation=row.reservation + 1) for row in rows]

    def _reserved_first(self, queue: str, timeout: float, found: Sequence[Row]) -> list[Taken]:
        """Return what was reserved at the beginning of the transaction, and others for those that die here."""
        rows = [ItemRow(*columns) for *columns, _ in found]
        alive = self._bury(rows, self._known(queue))
        for row in alive:
            self._plan_next(row)
        taken = [self._taken(row, to_s(found[0][-1]), reservation=row.reservation + 1) for row in alive]
        missing = len(rows) - len(alive)
        return taken + (self.reserve(queue, missing, timeout) if missing else [])

    def pop(self, queue: str, count: int) -> list[Taken]:
        """Take ready items for good; see Operations."""
        rows = self._take(queue, count)
        self._end([Ended(row, Ending.POPPED) for row in rows])
        return [self._taken(row, self.now, reservation=row.reservation) for row in rows]

    def _taken(self, row: ItemRow, until: float, reservation: int) -> Taken:
        return Taken(
            handle=Handle(row.id, reservation),
            queue=row.queue,
            payload=row.payload,
            retries=row.retries + row.reserved,
            priority=row.priority,
            created=to_s(row.created),
            due=to_s(row.due),
            until=until,
            key=row.key,
        )

    def _levels(self, queue: str) -> list[int]:
        return [level for (level,) in self.execute(sql.LEVELS, (queue, queue))]

    def _take(self, queue: str, count: int) -> list[ItemRow]:
        """Return ready items in order: by priority, then by due time (W-2, W-3). Too often failed ones die here."""
        check_count(count)
        taken = self._search(queue, count, self._known(queue))
        for row in taken:
            self._plan_next(row)
        return taken

    def _search(self, queue: str, count: int, settings: QueueSettings) -> list[ItemRow]:
        taken: list[ItemRow] = []
        buried = 0
        for level in self._levels(queue):
            while len(taken) < count and buried < MAX_COUNT:
                wanted = count - len(taken)
                found = [
                    ItemRow(*row) for row in self.execute(sql.READY, (queue, level, self._now_us, wanted + len(taken)))
                ]
                # A row that this call has taken is still there: it is reserved when all are known.
                known = {row.id for row in taken}
                new = [row for row in found if row.id not in known][:wanted]
                alive = self._bury(new, settings)
                taken += alive
                if len(alive) == len(new):
                    break
                buried += len(new) - len(alive)
        return taken

    def _bury(self, rows: Sequence[ItemRow], settings: QueueSettings) -> list[ItemRow]:
        """W-6: whoever takes an item whose reservation ran out raises its retries. Returns those that do not die."""
        dead = [row for row in rows if row.reserved and is_dead(row.retries + 1, settings)]
        for row in dead:
            row.retries += 1
        self._end([Ended(row, Ending.DEAD, reason=dead_letter_reason(row.retries, RAN_OUT)) for row in dead])
        gone = {row.id for row in dead}
        return [row for row in rows if row.id not in gone]

    def _plan_next(self, row: ItemRow) -> None:
        """W-12: the transaction that takes an instance pushes the next one, so there is always exactly one."""
        if row.schedule is None:
            return
        for *columns, _, item in self.execute(sql.SCHEDULE, (row.schedule,)):
            if item != row.id:  # the schedule was replaced meanwhile
                continue
            try:
                self._put_schedule(Schedule(*columns))
            except NoFurtherTime:  # there is no further time: it must not keep this instance from its worker
                self.execute(sql.DELETE_SCHEDULE, (row.schedule,))

    def _put_schedule(self, schedule: Schedule) -> Schedule:
        """Push the next instance and note it; instances whose time passed while nobody took any are one (W-12)."""
        next_at = next_after(schedule.cron, schedule.timezone, self.now)
        due = to_us(next_at)
        item = self._insert(schedule.queue, schedule.priority, due, self._now_us, schedule.payload, None, schedule.name)
        self.execute(
            sql.PUT_SCHEDULE,
            (
                schedule.name,
                schedule.queue,
                schedule.cron,
                schedule.timezone,
                schedule.payload,
                schedule.priority,
                item,
                due,
            ),
        )
        return replace(schedule, next_at=next_at)

    def next_due(self, queue: str) -> float | None:
        """Return when something can be taken; see Operations."""
        self._known(queue)
        times = [self.execute(sql.NEXT_OF_LEVEL, (queue, level))[0][0] for level in self._levels(queue)]
        return min((to_s(time) for time in times if time is not None), default=None)

    def extend(self, handles: Sequence[Handle], timeout: float) -> float:
        """Extend reservations; see Operations."""
        check_seconds("a timeout", timeout, zero=False)
        rows = self._held(handles, frozenset())
        until = self.now + timeout
        self._write_ids(sql.EXTEND, (to_us(until),), [row.id for row in rows.values()])
        self.touched.update(row.queue for row in rows.values())
        return until

    def commit(self, commits: Sequence[Commit]) -> None:
        """End items as done; see Operations."""
        rows = self._held([each.handle for each in commits], frozenset({Ending.DONE}))
        ended = []
        for each in commits:
            row = rows.pop(each.handle, None)
            if row is None:  # repeated
                continue
            limit = self._known(row.queue).max_payload_bytes
            check_payload(each.payload, limit)
            check_payload(each.result, limit)
            if each.payload is not None:
                row.payload = each.payload
            ended.append(Ended(row, Ending.DONE, result=each.result))
            if each.messages:
                self.publish(each.messages)
        self._end(ended)

    def rollback(self, rollbacks: Sequence[Rollback]) -> None:
        """Give items back; see Operations."""
        rows = self._held([each.handle for each in rollbacks], frozenset({Ending.DEAD}), may_be_given_back=True)
        dead = []
        for each in rollbacks:
            if each.delay is not None:
                check_seconds("a delay", each.delay)
            row = rows.pop(each.handle, None)
            if row is None:  # repeated
                continue
            settings = self._known(row.queue)
            row.retries += each.is_failure
            if each.is_final:
                dead.append(Ended(row, Ending.DEAD, reason=each.reason or REJECTED))
                continue
            if each.is_failure and is_dead(row.retries, settings):  # W-8
                dead.append(Ended(row, Ending.DEAD, reason=dead_letter_reason(row.retries, each.reason)))
                continue
            delay = each.delay
            if delay is None:
                # W-7: what was given back untried is as ready as it was.
                delay = backoff(row.retries, settings, self._chance()) if each.is_failure else 0.0
            due = to_us(self.now + delay)
            self.write(sql.GIVE_BACK, (due, row.retries, each.reason or row.reason, row.id))
            self.touched.add(row.queue)
        self._end(dead)

    def move(self, handle: Handle, targets: Sequence[Target], messages: Sequence[NewMessage] = ()) -> list[int]:
        """Move an item; see Operations."""
        check_count(len(targets))
        for target in targets:
            limit = self._known(target.queue).max_payload_bytes
            check_payload(target.payload, limit)
            if target.priority is not None:
                check_priority(target.priority)
        row = self._held([handle], frozenset({Ending.MOVED})).get(handle)
        if row is None:  # repeated: it stands in the history where the items went
            found = self.execute(sql.MOVED_TO, (handle.item, handle.reservation))
            return [item for _, item in json.loads(found[0][0])]
        if messages:
            self.publish(messages)
        for target in targets:
            if target.payload is None:
                check_payload(row.payload, self._known(target.queue).max_payload_bytes)
        if len(targets) == 1:
            return self._move(row, targets[0])
        # W-10: a fork ends the item, and each branch is an item of its own.
        items = [self._insert(*self._branch(row, target)) for target in targets]
        self._end([Ended(row, Ending.MOVED, targets=self._places(targets, items))])
        self._write_ids(sql.DELETE_ITEMS, (), [row.id])
        if row.key is not None:
            keeps_s = self._known(row.queue).history_s
            self._write_ids(sql.EXPIRE_KEYS, (self._now_us + to_us(keeps_s),), [row.id])
        return items

    def _move(self, row: ItemRow, target: Target) -> list[int]:
        self._end([Ended(row, Ending.MOVED, targets=self._places([target], [row.id]))])
        queue, priority, due, _, payload = self._branch(row, target)
        self.write(sql.MOVE, (queue, due, priority, payload, row.id))
        self.touched.add(queue)
        return [row.id]

    def _branch(self, row: ItemRow, target: Target) -> tuple[str, int, int, int, bytes]:
        return (
            target.queue,
            row.priority if target.priority is None else target.priority,
            to_us(due_at(self.now, target.delay, target.when)),
            row.created,
            row.payload if target.payload is None else target.payload,
        )

    @staticmethod
    def _places(targets: Sequence[Target], items: Sequence[int]) -> tuple[tuple[str, int], ...]:
        return tuple((target.queue, item) for target, item in zip(targets, items, strict=True))

    def _held(
        self, handles: Sequence[Handle], repeated: frozenset[Ending], *, may_be_given_back: bool = False
    ) -> dict[Handle, ItemRow]:
        """Return the rows that these handles still hold, without those that the same operation has settled before.

        W-5: a worker whose connection broke before the reply repeats the operation, and gets the same reply.

        Raises:
            AlreadyReassigned: one of them is past.
        """
        check_count(len(handles))
        if len(set(handles)) < len(handles):
            raise InvalidRequest("the items were not settled", "one handle is there twice", "name each handle once")
        ids = [handle.item for handle in handles]
        found = {row[0]: ItemRow(*row) for row in self._committed_ahead.pop(tuple(ids), ())}
        others = [number for number in ids if number not in found]
        found |= {row[0]: ItemRow(*row) for row in self._with_ids(sql.ITEMS, (), others)}
        held: dict[Handle, ItemRow] = {}
        for handle in handles:
            row = found.get(handle.item)
            is_newest = row is not None and row.reservation == handle.reservation
            if row is not None and is_newest and row.reserved:
                held[handle] = row
                continue
            endings = {Ending(name) for (name,) in self.execute(sql.ENDINGS, (handle.item, handle.reservation))}
            if endings & repeated or (may_be_given_back and is_newest and not endings):
                continue
            raise past_handle(handle, None if row is None else row.reservation, endings)
        return held
