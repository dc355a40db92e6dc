"""What a frame of a client costs does not depend on how many deliveries wait or are unsettled: the work is counted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType, ModuleType
from typing import Any, TypeAlias

import pytest

from chaos.mutants.edits import run_from_sources
from delivery_records.model import inputs
from tests.delivery_records.harness import Net
from tests.delivery_records.links import SubscriberLink

FLOWS = 20
TraceFunction: TypeAlias = Callable[[FrameType, str, Any], Any]
Sources: TypeAlias = dict[str, ModuleType]


@pytest.fixture
def sources() -> Sources:
    """The modules of the record core from their sources: what compiled ones do cannot be counted."""
    return run_from_sources()


def lines_of_flows(subscriber: SubscriberLink, limit: int) -> int:
    """How many lines of the record core the flows of a subscriber cause, each turn of a loop counted.

    Other lines do not count: a garbage collection may run finalizers of other tests' objects in between.
    """
    lines = 0

    def count(frame: FrameType, event: str, _arg: object) -> TraceFunction | None:
        nonlocal lines
        if frame.f_globals.get("__package__") != "delivery_records":
            return None
        lines += event == "line"
        return count

    core, batches = subscriber.node.core, [[inputs.ClientFlow(subscriber.number, limit=limit)] for _ in range(FLOWS)]
    before = sys.gettrace()
    sys.settrace(count)
    try:
        for batch in batches:
            core.handle(batch, core.now)
    finally:
        sys.settrace(before)
    assert lines > FLOWS, "the record core ran outside of what is counted"
    return lines


def held_behind_a_full_map(sources: Sources, messages: int) -> tuple[Net, SubscriberLink]:
    """Two publishers had credit before the subscriber with its small map came; it answers nothing."""
    net = Net(records=sources["records"].Records)
    publishers = [net.publisher(net.nodes[0], name, topic="t") for name in ("p", "q")]
    subscriber = net.subscriber(net.nodes[0], map_bound=2, topic="t", limit=0)
    subscriber.flow(10_000)
    for number in range(messages):
        publishers[number % 2].send(b"%d" % number)
    return net, subscriber


def test_a_flow_costs_the_same_however_many_deliveries_wait_for_room(sources: Sources) -> None:
    few, many = (held_behind_a_full_map(sources, messages)[1] for messages in (10, 400))
    assert lines_of_flows(few, 10_000) == lines_of_flows(many, 10_000)


def test_a_flow_costs_the_same_however_many_deliveries_wait_for_credit(sources: Sources) -> None:
    costs = []
    for messages in (10, 400):
        net = Net(records=sources["records"].Records)
        subscriber, publisher = net.subscriber(net.nodes[0], limit=0), net.publisher(net.nodes[0])
        for number in range(messages):
            publisher.send(b"%d" % number)
        costs.append(lines_of_flows(subscriber, 0))
    assert costs[0] == costs[1]


def test_what_waits_for_room_still_goes_in_order_and_the_oldest_of_each_publisher_first(sources: Sources) -> None:
    _, subscriber = held_behind_a_full_map(sources, 8)
    assert subscriber.deliveries == [b"0", b"1"]


class CountingSlots(dict):  # type: ignore[type-arg]  # what it holds does not matter
    """The slots of a window, which count how often one is looked at."""

    visits = 0

    def get(self, number: int, default: object = None) -> object:
        self.visits += 1
        return super().get(number, default)

    def values(self) -> object:  # type: ignore[override]
        self.visits += len(self)
        return super().values()


def test_repeating_a_window_looks_at_each_slot_once(sources: Sources) -> None:
    tags = [b"%d" % number for number in range(1000)]
    window = sources["window"].Window(tags)
    counting = CountingSlots(window._by_number)
    window._by_number = counting
    for tag in tags:
        slot = window.find(tag)
        assert slot is not None
        assert window.passed_over(slot.number) == []
        window.fill(slot, b"", 0)
    assert counting.visits <= len(tags)


def test_what_was_passed_over_is_found_once(sources: Sources) -> None:
    window = sources["window"].Window([b"a", b"b", b"c"])
    third = window.find(b"c")
    assert third is not None
    assert [slot.tag for slot in window.passed_over(third.number)] == [b"a", b"b"]
    assert window.passed_over(third.number) == []


@pytest.mark.parametrize("step", [1, 3])
def test_acknowledgements_out_of_order_are_forgotten_one_by_one_as_the_window_moves(
    step: int, sources: Sources
) -> None:
    class Counting(set):  # type: ignore[type-arg]  # numbers
        visits = 0

        def discard(self, number: object) -> None:
            self.visits += 1
            super().discard(number)

        def __iter__(self) -> Iterator[int]:
            for number in super().__iter__():
                self.visits += 1
                yield number

    cursor = sources["window"].Cursor(0)
    cursor.acknowledge(500, 1000, 0)
    counting = cursor.beyond = Counting(cursor.beyond)
    for base in range(step, 500, step):
        cursor.acknowledge(0, 0, base)
        assert cursor.owes(base)
        assert cursor.beyond is counting
    assert counting.visits <= 500
    assert not cursor.owes(700)
