"""History, replay, schedules, statistics and time limits in every store (rules W-8, W-9, W-12, W-16)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from bridges.workqueue import Ending, InvalidRequest, Operations, Page, Schedule, Search, Target, UnknownEntry
from bridges.workqueue.items import HistoryEntry
from tests.store.databases import START
from tests.workqueue.queue_world import World


def end_some(world: World) -> None:
    """Ten orders done, one a second; the last three were popped."""
    for number in range(10):
        world.push(json.dumps({"order": {"id": number}, "tags": ["a", f"t{number % 2}"], "paid": number == 4}).encode())
        if number < 7:
            world.commit(world.take())
        else:
            world.pop()
        world.clock.now += 1


def ids(entries: list[HistoryEntry]) -> list[int]:
    return [json.loads(entry.payload)["order"]["id"] for entry in entries]


def find(search: Search) -> Callable[[Operations], Page]:
    return lambda do: do.history(search)


def test_the_history_is_searched_by_time_ending_and_fields_of_the_payload(world: World) -> None:
    end_some(world)
    world.push(b"no json")
    world.pop()
    assert ids(world.history()[1:]) == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert ids(world.history(ending=Ending.DONE)) == [6, 5, 4, 3, 2, 1, 0]
    assert ids(world.history(since=START + 3, until=START + 6)) == [5, 4, 3]
    assert ids(world.history(fields={"order.id": 3})) == [3]
    assert ids(world.history(fields={"tags.1": "t0", "paid": False}, ending=Ending.POPPED)) == [8]
    assert ids(world.history(fields={"paid": 1})) == []


def test_a_long_history_comes_in_pages(world: World) -> None:
    end_some(world)
    found: list[int] = []
    search = Search("work", ending=Ending.DONE, limit=3)
    for _ in range(3):
        page = world.do(find(search))
        found += ids(list(page.entries))
        search = replace(search, before=page.following)
    assert page.following is None
    assert found == [6, 5, 4, 3, 2, 1, 0]


def test_the_history_forgets_after_its_time_and_the_store_becomes_smaller(world: World) -> None:
    world.configure(history_s=100)
    for _ in range(5):
        world.push(b"x", key=f"k{_}")
        world.pop()
    assert len(world.history()) == 5
    world.clock.now += 100
    assert world.history() == []
    world.push(b"y")
    world.pop()
    assert world.database.count_kept() == (1, 0)


def test_a_queue_without_history_keeps_only_its_dead(world: World) -> None:
    world.configure(history_s=0, max_retries=0)
    world.push(b"x", b"bad")
    world.pop()
    world.rollback(world.take(), reason="no")
    assert [entry.ending for entry in world.history()] == [Ending.DEAD]


def test_what_ended_is_replayed_as_a_new_item_any_number_of_times(world: World) -> None:
    world.push(b"x", priority=7)
    world.commit(world.take())
    (entry,) = world.history()
    first, second = (world.do(lambda do: do.replay([entry.entry])) for _ in range(2))
    taken = world.reserve(9)
    assert [(each.handle.item, each.payload, each.priority, each.retries) for each in taken] == [
        (first[0], b"x", 7, 0),
        (second[0], b"x", 7, 0),
    ]


def test_a_dead_letter_is_replayed_once_with_its_key_and_then_expires(world: World) -> None:
    world.configure(max_retries=0, history_s=100)
    world.push(b"bad", key="k")
    world.rollback(world.take(), reason="no")
    (dead,) = world.history(ending=Ending.DEAD)
    (item,) = world.do(lambda do: do.replay([dead.entry], delay=5))
    assert world.push(b"again", key="k") == [item]
    with pytest.raises(InvalidRequest, match="replayed before"):
        world.do(lambda do: do.replay([dead.entry]))
    world.clock.now += 5
    assert [taken.payload for taken in world.reserve()] == [b"bad"]
    assert world.history(ending=Ending.DEAD) == []
    world.clock.now += 100
    assert world.history() == []


def test_many_are_replayed_or_none(sql_world: World) -> None:
    sql_world.push(b"x")
    sql_world.pop()
    (entry,) = sql_world.history()
    with pytest.raises(UnknownEntry):
        sql_world.do(lambda do: do.replay([entry.entry, 999]))
    assert sql_world.pop() == []


def test_a_dead_letter_that_is_discarded_expires_and_nothing_else_can_be_discarded(world: World) -> None:
    world.configure(max_retries=0, history_s=100)
    world.push(b"bad", b"good")
    world.rollback(world.take())
    world.pop()
    (dead,) = world.history(ending=Ending.DEAD)
    world.do(lambda do: do.discard([dead.entry]))
    assert world.do(lambda do: do.entry(dead.entry)).ending is Ending.DISCARDED
    (popped,) = world.history(ending=Ending.POPPED)
    with pytest.raises(InvalidRequest):
        world.do(lambda do: do.discard([popped.entry]))
    world.clock.now += 100
    assert world.history() == []


def test_a_schedule_fires_once_for_each_time_and_the_next_instance_waits(world: World) -> None:
    planned = world.do(lambda do: do.schedule(Schedule("tick", "work", "*/5 * * * *", payload=b"t")))
    assert planned.next_at % 300 == 0
    for _ in range(3):
        assert world.reserve() == []
        (due,) = {world.do(lambda do: do.next_due("work"))}
        assert due is not None
        world.clock.now = due
        (taken,) = world.reserve(9)  # one, however many nodes ask
        world.commit(taken.handle)
    assert world.clock.now == planned.next_at + 600


def test_instances_that_nobody_took_are_one(world: World) -> None:
    world.do(lambda do: do.schedule(Schedule("tick", "work", "* * * * *", payload=b"t")))
    world.clock.now += 3600
    assert len(world.reserve(9)) == 1
    assert world.do(lambda do: do.schedules("work"))[0].next_at > world.clock.now


def test_an_instance_that_failed_is_tried_again_and_plans_no_second_next_one(world: World) -> None:
    world.do(lambda do: do.schedule(Schedule("tick", "work", "* * * * *", payload=b"t")))
    world.clock.now += 60
    world.rollback(world.take(), delay=0)
    assert len(world.reserve(9)) == 1
    assert world.do(lambda do: do.statistics("work")).waiting == 1


def test_a_schedule_that_is_replaced_or_deleted_leaves_no_instance(world: World) -> None:
    for cron in ("* * * * *", "0 0 * * *"):
        world.do(lambda do: do.schedule(Schedule("tick", "work", cron, "Europe/Berlin", b"t", 9)))  # noqa: B023
    assert world.do(lambda do: do.statistics("work")).waiting == 1
    (schedule,) = world.do(lambda do: do.schedules("work"))
    assert (schedule.cron, schedule.timezone, schedule.priority) == ("0 0 * * *", "Europe/Berlin", 9)
    world.do(lambda do: do.unschedule("tick"))
    assert world.do(lambda do: do.statistics("work")).waiting == 0
    with pytest.raises(UnknownEntry):
        world.do(lambda do: do.unschedule("tick"))


def test_a_schedule_that_is_added_again_as_it_is_keeps_the_instance_that_is_due(world: World) -> None:
    daily = Schedule("daily", "work", "30 2 * * *", "Europe/Berlin", b"t")
    planned = world.do(lambda do: do.schedule(daily))
    world.clock.now = planned.next_at + 60  # as an application does that was down at that time, and starts
    assert world.do(lambda do: do.schedule(daily)) == planned
    assert len(world.reserve(9)) == 1
    following = world.do(lambda do: do.schedules("work"))
    assert following[0].next_at == planned.next_at + 86400
    assert [world.do(lambda do: do.schedule(daily))] == following
    assert world.do(lambda do: do.statistics("work")).waiting == 1


@pytest.mark.parametrize(
    ("cron", "timezone"),
    [("never", "UTC"), ("61 * * * *", "UTC"), ("* * * * *", "Mars/Base"), ("0 0 30 2 *", "UTC"), ("", "UTC")],
)
def test_a_schedule_that_means_nothing_is_refused(world: World, cron: str, timezone: str) -> None:
    with pytest.raises(InvalidRequest):
        world.do(lambda do: do.schedule(Schedule("tick", "work", cron, timezone)))
    assert world.do(lambda do: do.schedules("work")) == []


def test_a_zone_that_a_machine_does_not_know_ends_no_schedule(world: World) -> None:
    world.do(lambda do: do.schedule(Schedule("tick", "work", "* * * * *", payload=b"t")))
    world.database.set_time_zones("Mars/Base")  # as a machine with a newer database of zones writes it
    world.clock.now += 60
    with pytest.raises(InvalidRequest, match="Mars/Base"):
        world.reserve()
    world.database.set_time_zones("UTC")
    world.clock.now += 60  # the reservation of a MongoDB store has run out
    assert len(world.reserve(9)) == 1
    assert world.do(lambda do: do.statistics("work")).waiting == 1


def test_a_schedule_ends_with_its_last_time(world: World) -> None:
    world.do(lambda do: do.schedule(Schedule("once", "work", "0 0 1 1 * 0 2027", payload=b"t")))
    world.clock.now = world.do(lambda do: do.schedules("work"))[0].next_at
    assert len(world.reserve(9)) == 1
    assert world.do(lambda do: do.schedules("work")) == []


def test_statistics_count_what_is_ready_waiting_reserved_and_dead(world: World) -> None:
    world.configure(max_retries=0)
    world.configure("next")
    world.push(b"dead")
    world.rollback(world.take())
    world.push(b"done", b"moved", b"reserved", b"lost")
    world.commit(world.take())
    moved = world.take()
    world.do(lambda do: do.move(moved, [Target("next")]))
    world.take()
    world.clock.now += 20
    world.push(b"ready", priority=1)
    world.push(b"waiting", b"waiting", delay=5)
    found = world.do(lambda do: do.statistics("work"))
    assert (found.ready, found.waiting, found.reserved, found.dead) == (2, 2, 1, 1)
    assert (found.oldest_s, found.next_s, found.ended_last_minute) == (20, 5, 3)


def test_all_that_is_due_next_is_known(world: World) -> None:
    assert world.do(lambda do: do.next_due("work")) is None
    world.push(b"x", delay=60, priority=9)
    world.push(b"y", delay=40)
    assert world.do(lambda do: do.next_due("work")) == START + 40
    world.clock.now += 40
    world.take(timeout=5)
    assert world.do(lambda do: do.next_due("work")) == START + 45


def test_a_schedule_without_a_further_time_ends_and_its_last_instance_is_taken(world: World) -> None:
    world.do(lambda do: do.schedule(Schedule("once", "work", "0 0 1 1 * 0 2027", payload=b"t")))
    world.clock.now += 200 * 86400
    assert [taken.payload for taken in world.reserve(9)] == [b"t"]
    assert world.do(lambda do: do.schedules("work")) == []


@pytest.mark.parametrize("payload", [b"[" * 100_000, b"1\x00", b"NaN", b"\xff", b""])
def test_a_payload_that_is_no_json_is_in_no_search_by_field_and_disturbs_none(world: World, payload: bytes) -> None:
    world.push(payload, b'{"a": 1}')
    world.pop(2)
    assert [entry.payload for entry in world.history(fields={"a": 1})] == [b'{"a": 1}']
