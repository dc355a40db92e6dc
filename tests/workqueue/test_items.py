"""Items in every store: delay, order, reservations, failures, moves (W-1 to W-11 of docs/workqueue-reference.md)."""

from __future__ import annotations

from contextlib import suppress

import pytest

from bridges.workqueue import (
    AlreadyReassigned,
    Commit,
    Ending,
    Handle,
    InvalidRequest,
    NewItem,
    Operations,
    PayloadTooLarge,
    QueueError,
    Rollback,
    Target,
    UnknownQueue,
)
from bridges.workqueue.merging_core import CommitJob, ReserveJob
from oncewire.store.rules_core import to_us
from tests.store.databases import START
from tests.workqueue.queue_world import World


def test_an_item_is_taken_when_its_time_has_come_and_not_before(world: World) -> None:
    world.push(b"later", delay=10)
    world.push(b"at", when=START + 5)
    assert world.pop() == []
    world.clock.now += 5
    assert world.pop(9) == [b"at"]
    world.clock.now += 5
    assert world.pop(9) == [b"later"]
    assert world.pop(9) == []


def test_waiting_items_never_block_ready_ones_whatever_their_priority(world: World) -> None:
    world.push(*[b"waiting"] * 50, delay=60, priority=255)
    world.push(b"ready", priority=0)
    assert world.pop() == [b"ready"]


def test_ready_items_come_by_priority_then_by_time_then_in_the_order_of_their_pushes(world: World) -> None:
    world.push(b"d", when=START - 1, priority=1)
    world.push(b"b", b"c", when=START - 5)
    world.push(b"a", when=START - 9)
    world.push(b"first", priority=9)
    assert world.pop(9) == [b"first", b"a", b"b", b"c", b"d"]


def test_many_workers_never_get_the_same_item(world: World) -> None:
    items = world.push(*[b"x"] * 10)
    taken = [each.handle.item for _ in range(5) for each in world.reserve(3)]
    assert taken == items


def test_a_reserved_item_is_nobody_elses_until_its_time_is_over(world: World) -> None:
    (item,) = world.push(b"x")
    first = world.take()
    assert first == Handle(item, 1)
    world.clock.now += 29
    assert world.reserve() == []
    world.clock.now += 1
    (again,) = world.reserve()
    assert (again.handle, again.retries) == (Handle(item, 2), 1)


def test_a_past_handle_is_refused_and_changes_nothing(world: World) -> None:
    world.configure("other")
    world.push(b"x")
    old = world.take()
    world.clock.now += 30
    new = world.take()
    for operation in (
        lambda do: do.commit([Commit(old)]),
        lambda do: do.rollback([Rollback(old)]),
        lambda do: do.extend([old], 60),
        lambda do: do.move(old, [Target("other")]),
    ):
        with pytest.raises(AlreadyReassigned, match="reserved again"):
            world.do(operation)
    world.commit(new)
    assert [entry.reservation for entry in world.history()] == [2]


def test_a_commit_after_the_time_is_over_counts_as_long_as_nobody_else_has_the_item(world: World) -> None:
    world.push(b"x")
    handle = world.take()
    world.clock.now += 3600
    world.commit(handle)
    assert [entry.ending for entry in world.history()] == [Ending.DONE]


def test_a_commit_and_a_reservation_of_one_transaction_take_no_item_twice(sql_world: World) -> None:
    world = sql_world
    items = world.push(b"a", b"b", b"c", b"d", b"e")
    held = world.take()
    world.clock.now += 3600  # W-6: its reservation has run out, and nobody else has taken it
    commit, reserve = CommitJob((Commit(held),)), ReserveJob("work", 2, 30.0)
    results, _ = world.store.transact(
        [commit, reserve, ReserveJob("work", 1, 60.0), lambda do: do.reserve("work", 2, 30.0), commit]
    )
    taken = [each.handle for some in results[1:4] for each in some]
    assert taken == [Handle(item, 1) for item in items[1:]]
    assert [entry.ending for entry in world.history()] == [Ending.DONE]


@pytest.mark.parametrize("history_s", [60.0, 0.0])
def test_what_is_committed_in_advance_leaves_what_others_leave(sql_world: World, history_s: float) -> None:
    world = sql_world
    world.configure(history_s=history_s)

    def left_by(key: str, is_first: bool) -> list[list[tuple[object, ...]]]:
        world.push(b"plain", b"result", b"payload")
        world.push(b"key", key=key)
        world.rollback(world.take(), delay=0.0, reason="once")
        world.clock.now += 1
        items = sorted(world.reserve(4), key=lambda taken: taken.payload)
        changes: list[tuple[bytes | None, bytes | None]] = [(None, None), (b"", b"new"), (None, None), (b"3", None)]
        commits = tuple(Commit(taken.handle, *change) for taken, change in zip(items, changes, strict=True))
        for _ in range(2 if history_s else 1):  # repeated: without effect, where the history shows the first
            world.store.transact([CommitJob(commits)] if is_first else [lambda do: do.commit(commits)])
        now_us = to_us(world.clock.now)
        kept = world.do(lambda do: do.execute("SELECT * FROM oncewire_history ORDER BY item"))
        keys = world.do(lambda do: do.execute("SELECT expires - ? FROM oncewire_keys", (now_us,)))
        for table in ("history", "keys"):
            world.do(lambda do: do.execute(f"DELETE FROM oncewire_{table}"))  # noqa: B023
        # Without numbers, the first two columns, and the key.
        times = [(*row[2:4], *(time - now_us for time in row[4:7]), *row[7:-1]) for row in kept]
        return [times, keys]

    first, later = left_by("first", True), left_by("later", False)
    assert first == later
    assert len(first[0]) == (4 if history_s else 0)
    assert first[1] == [(to_us(history_s),)]


def test_a_past_handle_among_those_committed_in_advance_is_refused_and_changes_nothing(sql_world: World) -> None:
    world = sql_world
    world.push(b"a", b"b")
    held, past = world.take(), world.take()
    world.rollback(past, delay=0.0)
    newest = world.take()
    for _ in range(2):
        with pytest.raises(AlreadyReassigned):
            world.store.transact([CommitJob((Commit(held), Commit(past))), ReserveJob("work", 1, 30.0)])
    assert world.history() == []
    world.commit(held)
    world.commit(newest)


def test_reserved_items_that_are_dead_are_found_in_advance_too(sql_world: World) -> None:
    world = sql_world
    world.configure(max_retries=0)
    items = world.push(b"a", b"b")
    world.take()
    world.clock.now += 3600
    ((taken,),), _ = world.store.transact([ReserveJob("work", 2, 30.0)])
    assert taken.handle == Handle(items[1], 1)
    assert [entry.ending for entry in world.history()] == [Ending.DEAD]


def test_ready_items_of_several_priorities_are_found_in_order_in_advance(sql_world: World) -> None:
    world = sql_world
    for priority in (1, 9, 5):
        world.push(b"%d" % priority, b"%d" % priority, priority=priority)
        world.push(b"later", priority=255, delay=60)
    (found,), _ = world.store.transact([ReserveJob("work", 5, 30.0)])
    assert [each.payload for each in found] == [b"9", b"9", b"5", b"5", b"1"]


def test_an_operation_that_is_repeated_with_its_handle_has_no_second_effect(world: World) -> None:
    world.configure("other")
    world.push(b"a", b"b", b"c", b"d")
    done, back, moved, forked = (world.take() for _ in range(4))
    for _ in range(2):
        world.commit(done)
        world.rollback(back, delay=5)
        assert world.do(lambda do: do.move(moved, [Target("other")])) == [moved.item]
    targets = [Target("other"), Target("work")]
    if world.has_transactions:
        once = world.do(lambda do: do.move(forked, targets))
        assert world.do(lambda do: do.move(forked, targets)) == once
    else:
        for target in targets:
            world.do(lambda do: do.push(target.queue, [NewItem(b"d")]))  # noqa: B023  # it is done at once
        world.commit(forked)
    assert len(world.history()) == 3
    assert len(world.pop(9, "other")) == 2
    world.clock.now += 5
    assert [(taken.payload, taken.retries) for taken in world.reserve(9)] == [(b"d", 0), (b"b", 1)]


@pytest.mark.parametrize("first", ["commit", "rollback", "move", "pop"])
def test_an_item_that_was_settled_is_not_settled_otherwise(world: World, first: str) -> None:
    world.configure("other")
    world.push(b"x")
    handle = world.take()
    settle = {
        "commit": lambda do: do.commit([Commit(handle)]),
        "rollback": lambda do: do.rollback([Rollback(handle)]),
        "move": lambda do: do.move(handle, [Target("other")]),
    }
    if first == "pop":
        world.clock.now += 30
        assert world.pop() == [b"x"]
    else:
        world.do(settle[first])
    for name, operation in settle.items():
        if name != first:
            with pytest.raises(AlreadyReassigned):
                world.do(operation)


def test_an_extension_gives_more_time_from_now(world: World) -> None:
    world.push(b"x")
    handle = world.take()
    world.clock.now += 20
    assert world.do(lambda do: do.extend([handle], 30)) == START + 50
    world.clock.now += 29
    assert world.reserve() == []
    world.clock.now += 1
    assert len(world.reserve()) == 1


def test_a_rollback_counts_the_failure_and_waits_as_long_as_is_said(world: World) -> None:
    world.push(b"x")
    world.rollback(world.take(), delay=7)
    world.clock.now += 6
    assert world.reserve() == []
    world.clock.now += 1
    assert world.reserve()[0].retries == 1


def test_the_back_off_doubles_up_to_its_bound(world: World) -> None:
    world.configure(backoff_s=2, backoff_max_s=8)
    world.push(b"x")
    waits = []
    for _ in range(5):
        world.rollback(world.take())
        due = world.do(lambda do: do.next_due("work"))
        assert due is not None
        waits.append(due - world.clock.now)
        world.clock.now = due
    assert waits == [2, 4, 8, 8, 8]


def test_an_item_that_is_given_back_untried_has_not_failed(world: World) -> None:
    world.push(b"x")
    world.rollback(world.take(), is_failure=False)
    assert world.reserve()[0].retries == 0


def test_an_item_that_fails_too_often_is_dead_with_its_reason_and_stays(world: World) -> None:
    world.configure(max_retries=2, history_s=60)
    world.push(b"bad")
    for attempt in range(3):
        world.rollback(world.take(), delay=0, reason=f"attempt {attempt}")
    assert world.reserve() == []
    world.clock.now += 3600  # a dead letter does not expire
    world.push(b"y")
    world.pop()
    (dead,) = world.history(ending=Ending.DEAD)
    assert (dead.payload, dead.retries, dead.reason) == (b"bad", 3, "failed 3 times; the last time: attempt 2")


def test_an_item_whose_workers_vanish_dies_too_and_the_next_one_is_taken(world: World) -> None:
    world.configure(max_retries=1)
    world.push(b"poison")
    world.push(b"good", delay=2)
    for _ in range(2):
        assert [taken.payload for taken in world.reserve(1, timeout=1)] == [b"poison"]
        world.clock.now += 1
    assert [taken.payload for taken in world.reserve(1)] == [b"good"]
    (dead,) = world.history(ending=Ending.DEAD)
    assert (dead.payload, dead.retries) == (b"poison", 2)
    assert "its reservation ran out" in dead.reason


def test_a_commit_may_change_the_payload_and_note_a_result(world: World) -> None:
    world.push(b"x")
    world.commit(world.take(), result=b"42", payload=b"y")
    (entry,) = world.history()
    assert (entry.ending, entry.payload, entry.result) == (Ending.DONE, b"y", b"42")


def test_a_move_is_one_step_with_a_new_payload_and_retries_from_zero(world: World) -> None:
    world.configure("next")
    (item,) = world.push(b"raw")
    world.rollback(world.take(), delay=0)
    handle = world.take()
    world.do(lambda do: do.move(handle, [Target("next", b"cooked", delay=5)]))
    assert world.reserve() == []
    assert world.reserve(queue="next") == []
    world.clock.now += 5
    (taken,) = world.reserve(queue="next")
    assert (taken.handle.item, taken.payload, taken.retries) == (item, b"cooked", 0)
    (entry,) = world.history()
    assert (entry.ending, entry.payload, entry.targets) == (Ending.MOVED, b"raw", ("next",))


def test_a_fork_ends_the_item_and_every_branch_is_an_item(sql_world: World) -> None:
    sql_world.configure("a")
    sql_world.configure("b")
    sql_world.push(b"x", key="once")
    handle = sql_world.take()
    items = sql_world.do(lambda do: do.move(handle, [Target("a", b"1"), Target("b", b"2"), Target("a")]))
    assert len(set(items)) == 3
    assert handle.item not in items
    assert (sql_world.pop(9, "a"), sql_world.pop(9, "b"), sql_world.pop(9)) == ([b"1", b"x"], [b"2"], [])
    assert sql_world.history()[0].targets == ("a", "b", "a")


def test_a_move_to_a_queue_that_nobody_made_is_refused_and_the_item_stays(world: World) -> None:
    world.push(b"x")
    handle = world.take()
    targets = [Target("work"), Target("wrok")]
    with pytest.raises(UnknownQueue):
        world.do(lambda do: do.move(handle, targets if world.has_transactions else targets[1:]))
    world.commit(handle)


def test_a_key_adds_an_item_once_through_commit_and_move_until_the_history_forgets_it(world: World) -> None:
    world.configure(history_s=100)
    world.configure("next", history_s=100)
    (item,) = world.push(b"1", key="order-1")
    assert world.push(b"2", key="order-1") == [item]
    handle = world.take()
    assert world.push(b"3", key="order-1") == [item]
    world.do(lambda do: do.move(handle, [Target("next")]))
    assert world.push(b"4", key="order-1") == [item]
    world.commit(world.take("next"))
    world.clock.now += 99
    assert world.push(b"5", key="order-1") == [item]
    world.clock.now += 1
    assert world.push(b"6", key="order-1") != [item]
    assert world.pop(9) == [b"6"]


def test_one_push_with_the_same_key_twice_adds_one_item(sql_world: World) -> None:
    first, second = sql_world.do(lambda do: do.push("work", [NewItem(b"1", key="k"), NewItem(b"2", key="k")]))
    assert (first.is_new, second.is_new, first.item) == (True, False, second.item)
    assert sql_world.pop(9) == [b"1"]


def test_several_operations_are_one_transaction_with_the_applications_own_tables(sql_world: World) -> None:
    sql_world.configure("out")
    sql_world.do(lambda do: do.execute("CREATE TABLE effects (item BIGINT PRIMARY KEY)"))
    sql_world.push(b"x")
    handle = sql_world.take()

    def work(do: Operations) -> None:
        do.execute("INSERT INTO effects VALUES (?)", (handle.item,))
        do.push("out", [NewItem(b"result")])
        do.commit([Commit(handle)])

    def fail(do: Operations) -> None:
        work(do)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sql_world.do(fail)
    assert (sql_world.do(lambda do: do.execute("SELECT * FROM effects")), sql_world.pop(9, "out")) == ([], [])
    sql_world.do(work)
    assert sql_world.do(lambda do: do.execute("SELECT * FROM effects")) == [(handle.item,)]
    assert (sql_world.pop(9, "out"), len(sql_world.history())) == ([b"result"], 1)


def test_operations_on_many_items_do_all_or_nothing(sql_world: World) -> None:
    sql_world.push(b"a", b"b")
    good, bad = sql_world.take(), sql_world.take()
    sql_world.commit(bad)
    with pytest.raises(AlreadyReassigned):
        sql_world.do(lambda do: do.rollback([Rollback(good, 0.0), Rollback(bad, 0.0)]))
    assert sql_world.reserve() == []
    with pytest.raises(PayloadTooLarge):
        sql_world.do(lambda do: do.push("work", [NewItem(b"fits"), NewItem(b"x" * (1 << 21))]))
    assert sql_world.pop(9) == []


@pytest.mark.parametrize(
    "job",
    [
        lambda do: do.push("work", [NewItem(b"x", delay=-1)]),
        lambda do: do.push("work", [NewItem(b"x", delay=float("nan"))]),
        lambda do: do.push("work", [NewItem(b"x", delay=1, when=START)]),
        lambda do: do.push("work", [NewItem(b"x", priority=256)]),
        lambda do: do.push("work", [NewItem(b"x", key="")]),
        lambda do: do.push("work", []),
        lambda do: do.reserve("work", 1, 0),
        lambda do: do.reserve("work", 1001, 30),
        lambda do: do.configure("two\nlines"),
        lambda do: do.configure("work", max_payload_bytes=1 << 40),
        lambda do: do.configure("work", history_s=-1),
    ],
)
def test_what_cannot_be_is_refused_before_anything_changes(world: World, job: object) -> None:
    with pytest.raises(InvalidRequest):
        world.do(job)  # type: ignore[arg-type]
    assert world.pop(9) == []


@pytest.mark.parametrize("operation", ["push", "reserve", "pop", "next_due", "statistics", "schedules"])
def test_a_queue_that_nobody_made_is_unknown(world: World, operation: str) -> None:
    arguments = {"push": ([NewItem(b"x")],), "reserve": (1, 30.0), "pop": (1,)}.get(operation, ())
    with pytest.raises(UnknownQueue, match="wrok"):
        world.do(lambda do: getattr(do, operation)("wrok", *arguments))


@pytest.mark.parametrize("text", ["", "17", "17.", ".1", "1.2.3", "-1.2", "a.b", "1.²", "1." + "9" * 40])
def test_text_that_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest):
        Handle.parse(text)
    assert Handle.parse("17.3") == Handle(17, 3)
    assert str(Handle(17, 3)) == "17.3"


def test_a_job_that_hides_the_error_of_its_statement_has_either_happened_or_failed(sql_world: World) -> None:
    def work(do: Operations) -> None:
        do.push("work", [NewItem(b"x")])
        with suppress(QueueError):
            do.execute("SELECT there_is FROM nothing")

    with suppress(QueueError):
        sql_world.do(work)
        assert sql_world.pop() == [b"x"]
        return
    assert sql_world.pop() == []
