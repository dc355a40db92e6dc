"""All operations of the SQL stores: items, and here the history, schedules and statistics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from bridges.workqueue import sql_statements as sql
from bridges.workqueue.items import Ending, HistoryEntry, Page, Schedule, Search, Statistics, decode
from bridges.workqueue.refusals import no_dead_letter, replayed_before, unknown_entry, unknown_schedule
from bridges.workqueue.rules_core import check_payload, check_priority, matches
from bridges.workqueue.sql_links import SqlLinks
from oncewire.store.rules_core import check_count, check_name, check_seconds, to_s, to_us
from oncewire.store.store import Row

SCAN_LIMIT = 5000
"""Entries that one page of a search looks at: a search for rare fields goes on with the next page."""
READ_LIMIT = 200
"""Entries read at once: payloads are up to a megabyte."""
COUNT_LIMIT = 10_000
"""Where statistics stop counting; that takes a millisecond or two."""
RATE_S = 60
END_OF_TIME = 1 << 62
"""Later than any time, and larger than any number of an entry."""


def history_entry(row: Row) -> HistoryEntry:
    """Return a row of ENTRY_COLUMNS as an entry."""
    (entry, item, queue, ending, created, ended, retries, reservation, priority, payload, result, reason, targets) = row
    return HistoryEntry(
        entry,
        item,
        queue,
        Ending(ending),
        to_s(created),
        to_s(ended),
        retries,
        reservation,
        priority,
        payload,
        result,
        reason,
        tuple(name for name, _ in json.loads(targets)),
    )


def is_wanted(entry: HistoryEntry, search: Search) -> bool:
    """Whether an entry has the ending and the payload that a search asks for."""
    if search.ending is not None and entry.ending is not search.ending:
        return False
    if not search.fields:
        return True
    try:
        payload = decode(entry.payload)
    except ValueError:
        return False
    return matches(payload, search.fields)


class SqlOperations(SqlLinks):
    """One transaction of a SQL store with all operations; see Operations."""

    def history(self, search: Search) -> Page:
        """Search ended items; see Operations."""
        self._known(search.queue)
        check_count(search.limit)
        statement = sql.DEAD if search.ending is Ending.DEAD else sql.HISTORY
        since = 0 if search.since is None else to_us(search.since)
        before = (END_OF_TIME if search.until is None else to_us(search.until), 0)
        if search.before is not None:
            before = min(before, search.before)
        found: list[HistoryEntry] = []
        for _ in range(SCAN_LIMIT // READ_LIMIT):
            rows = self.execute(statement, (search.queue, since, *before, self._now_us, READ_LIMIT))
            for row in rows:
                entry = history_entry(row)
                before = (row[5], entry.entry)
                if is_wanted(entry, search):
                    found.append(entry)
                if len(found) == search.limit:
                    return Page(tuple(found), before)
            if len(rows) < READ_LIMIT:
                return Page(tuple(found), None)
        return Page(tuple(found), before)

    def entry(self, number: int) -> HistoryEntry:
        """Return one entry; see Operations."""
        return history_entry(self._entries([number])[0][:-1])

    def _entries(self, numbers: Sequence[int]) -> list[Row]:
        check_count(len(numbers))
        # In `_with_ids` the ids come last; here the time does.
        rows: list[Row] = []
        for number in dict.fromkeys(numbers):
            found = self.execute(sql.ENTRY.replace("/*ids*/", "?"), (number, self._now_us))
            if not found:
                raise unknown_entry(number)
            rows += found
        return rows

    def replay(self, entries: Sequence[int], delay: float = 0.0) -> list[int]:
        """Push payloads again; see Operations."""
        check_seconds("a delay", delay)
        items = []
        for *columns, key in self._entries(entries):
            entry = history_entry(tuple(columns))
            is_dead = entry.ending is Ending.DEAD
            if entry.ending in {Ending.REPLAYED, Ending.DISCARDED}:
                raise replayed_before(entry.entry, entry.ending)
            settings = self._known(entry.queue)
            due = to_us(self.now + delay)
            # W-16: a dead letter comes back as the item it was, with its key; of all else there is one more.
            item = self._insert(entry.queue, entry.priority, due, self._now_us, entry.payload, key if is_dead else None)
            if is_dead:
                self._no_longer_dead(entry, Ending.REPLAYED, settings.history_s)
                if key is not None:
                    self._with_ids("UPDATE oncewire_keys SET item = ? WHERE item IN (/*ids*/)", (item,), [entry.item])
            items.append(item)
        return items

    def discard(self, entries: Sequence[int]) -> None:
        """Give up dead letters; see Operations."""
        for *columns, key in self._entries(entries):
            entry = history_entry(tuple(columns))
            if entry.ending is not Ending.DEAD:
                raise no_dead_letter(entry.entry)
            history_s = self._known(entry.queue).history_s
            self._no_longer_dead(entry, Ending.DISCARDED, history_s)
            if key is not None:
                self._with_ids(sql.EXPIRE_KEYS, (self._now_us + to_us(history_s),), [entry.item])

    def _no_longer_dead(self, entry: HistoryEntry, ending: Ending, history_s: float) -> None:
        expires = self._now_us + to_us(history_s)
        self._with_ids(sql.NO_LONGER_DEAD, (ending.value, expires), [entry.entry])
        self._ended += 1

    def schedule(self, schedule: Schedule) -> Schedule:
        """Add or replace a schedule; see Operations. W-12: one that is there as it is keeps its instance."""
        check_name("schedule", schedule.name)
        check_priority(schedule.priority)
        check_payload(schedule.payload, self._known(schedule.queue).max_payload_bytes)
        for *columns, due, _ in self.execute(sql.SCHEDULE, (schedule.name,)):
            if Schedule(*columns) == replace(schedule, next_at=0.0):
                return replace(schedule, next_at=to_s(due))
        self._delete_instance(schedule.name)
        return self._put_schedule(schedule)

    def unschedule(self, name: str) -> None:
        """Delete a schedule; see Operations."""
        if not self._delete_instance(name):
            raise unknown_schedule(name)
        self.execute(sql.DELETE_SCHEDULE, (name,))

    def _delete_instance(self, name: str) -> bool:
        """W-12: the instance that waits goes; one that a worker has taken already stays with it."""
        rows = self.execute(sql.SCHEDULE, (name,))
        for row in rows:
            self.execute(sql.DELETE_INSTANCE, (row[-1], name))
        return bool(rows)

    def schedules(self, queue: str) -> list[Schedule]:
        """Return a queue's schedules; see Operations."""
        self._known(queue)
        return [
            replace(Schedule(*columns), next_at=to_s(due)) for *columns, due in self.execute(sql.SCHEDULES, (queue,))
        ]

    def statistics(self, queue: str) -> Statistics:
        """Return a queue in numbers; see Operations."""
        self._known(queue)
        now = self._now_us
        levels = self._levels(queue)

        def count(statement: str, *parameters: object, limit: int = COUNT_LIMIT) -> int:
            return int(self.execute(statement, (*parameters, limit))[0][0])

        ready = sum(count(sql.COUNT_READY, queue, level, now) for level in levels)
        later = sum(count(sql.COUNT_LATER, queue, level, now, limit=2 * COUNT_LIMIT) for level in levels)
        reserved = count(sql.COUNT_RESERVED, queue, now)
        oldest = [self.execute(sql.NEXT_OF_LEVEL, (queue, level))[0][0] for level in levels]
        following = [self.execute(sql.NEXT_AFTER, (queue, level, now))[0][0] for level in levels]
        ready_since = [time for time in oldest if time is not None and time <= now]
        next_times = [time for time in following if time is not None]
        return Statistics(
            queue=queue,
            ready=min(ready, COUNT_LIMIT),
            waiting=min(max(later - reserved, 0), COUNT_LIMIT),
            reserved=reserved,
            dead=count(sql.COUNT_DEAD, queue),
            oldest_s=to_s(now - min(ready_since)) if ready_since else None,
            next_s=to_s(min(next_times) - now) if next_times else None,
            ended_last_minute=count(sql.COUNT_ENDED, queue, now - to_us(RATE_S)),
            count_limit=COUNT_LIMIT,
        )
