"""Deadlines by purpose and owner, against a plain dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from delivery_records.model.timers import Timer, Timers
from tests.delivery_records.harness import Net

NAMES = st.tuples(st.sampled_from([Timer.PROOF, Timer.RETRY, Timer.CHANNEL]), st.sampled_from(["a", "b", 7]))
STEPS = st.one_of(
    st.tuples(st.just("set"), NAMES, st.integers(0, 20)),
    st.tuples(st.just("cancel"), NAMES, st.just(0)),
    st.tuples(st.just("due"), NAMES, st.integers(0, 20)),
)


@given(st.lists(STEPS, max_size=60))
def test_timers_fall_due_once_at_their_latest_setting_and_in_order(
    steps: list[tuple[str, tuple[Timer, str | int], int]],
) -> None:
    timers, model = Timers(), dict[tuple[Timer, str | int], float]()
    for verb, (timer, owner), at in steps:
        if verb == "set":
            timers.set(timer, owner, float(at))
            model[(timer, owner)] = float(at)
        elif verb == "cancel":
            timers.cancel(timer, owner)
            model.pop((timer, owner), None)
        else:
            found = timers.due(float(at))
            expected = {name for name, deadline in model.items() if deadline <= at}
            assert set(found) == expected
            assert len(found) == len(expected)
            deadlines = [model.pop(name) for name in found]
            assert deadlines == sorted(deadlines)
        assert timers.next_deadline() == min(model.values(), default=None)
        assert timers.is_set(timer, owner) == ((timer, owner) in model)


def test_timers_of_one_moment_keep_the_order_in_which_they_were_set() -> None:
    timers = Timers()
    for owner in ("c", "a", "b"):
        timers.set(Timer.EXPIRY, owner, 5.0)
    assert [owner for _, owner in timers.due(5.0)] == ["c", "a", "b"]


def test_a_deadline_that_is_set_again_and_again_takes_no_more_room() -> None:
    timers = Timers()
    for number in range(100_000):
        timers.set(Timer.EXPIRY, f"subs/{number % 10}", 86_400.0 + number)
        if number % 3 == 0:
            timers.cancel(Timer.EXPIRY, f"subs/{number % 10}")
    assert timers.size < 1000


def test_every_timer_leads_to_something_and_none_of_nobody_is_a_fault() -> None:
    net = Net()
    node = net.nodes[0]
    of_routers = {Timer.CHANNEL, Timer.BARRIER, Timer.GRACE, Timer.PARKED, Timer.DRAIN, Timer.ROOM}
    for timer in Timer:
        name = "7" if timer is Timer.MAP_REST else "subs/nobody"
        node.core.timers.set(timer, 7002 if timer in of_routers else name, net.now)
    net.run()  # a fault would be raised here
    assert node.core.next_deadline() is None
