"""What waits for a neighbour: order, batches, and bodies dropped before they get old (T-2, T-6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.peers.output import (
    BATCH_BYTES,
    FRAME,
    LINK_STATE,
    QUEUE_LIMIT_BYTES,
    QUEUE_LIMIT_S,
    BatchError,
    NeighbourOutput,
    QueuedFrame,
    read_batch,
)


def body_frame(size: int, *targets: int, at: float = 0.0) -> QueuedFrame:
    return QueuedFrame(b"h", bytes(size), True, targets, at)


def control_frame(data: bytes, at: float = 0.0) -> QueuedFrame:
    return QueuedFrame(data, b"", False, (), at)


def drained(output: NeighbourOutput) -> list[tuple[int, bytes]]:
    items: list[tuple[int, bytes]] = []
    while batch := output.next_batch():
        items += read_batch(batch)
    return items


@given(st.lists(st.binary(max_size=300), max_size=50), st.lists(st.binary(max_size=50), max_size=5))
def test_frames_keep_their_order_and_urgent_items_go_first(frames: list[bytes], urgent: list[bytes]) -> None:
    output = NeighbourOutput()
    for frame in frames:
        output.add_frame(QueuedFrame(frame[:1], frame[1:], True, (), 0.0))
    for item in urgent:
        output.add_urgent(LINK_STATE, item)
    assert drained(output) == [(LINK_STATE, item) for item in urgent] + [(FRAME, frame) for frame in frames]
    assert output.is_empty
    assert output.queued_bytes == 0


def test_a_batch_ends_with_the_first_item_that_fills_it() -> None:
    output = NeighbourOutput()
    for _ in range(3):
        output.add_frame(body_frame(BATCH_BYTES // 2))
    assert len(read_batch(output.next_batch())) == 2
    assert len(read_batch(output.next_batch())) == 1


def test_nothing_is_dropped_while_the_neighbour_is_quick_enough() -> None:
    output = NeighbourOutput()
    output.add_frame(body_frame(1000, 7, at=10.0))
    assert output.drop_late_bodies(10.0 + QUEUE_LIMIT_S) == set()
    assert len(drained(output)) == 1


@pytest.mark.parametrize(("size", "later"), [(1000, QUEUE_LIMIT_S + 0.1), (QUEUE_LIMIT_BYTES, 0.0)])
def test_bodies_that_are_too_many_or_too_old_are_dropped_and_control_is_not(size: int, later: float) -> None:
    output = NeighbourOutput()
    output.add_frame(control_frame(b"sync"))
    output.add_frame(body_frame(size, 7, 9))
    output.add_frame(body_frame(10))  # of another router: whose channel it is is not ours to know
    output.add_frame(control_frame(b"ack"))
    assert output.drop_late_bodies(later) == {7, 9}
    assert output.dropped == 2
    assert drained(output) == [(FRAME, b"sync"), (FRAME, b"ack")]
    assert output.queued_bytes == 0


@given(st.binary(max_size=60))
def test_any_bytes_are_a_batch_or_a_typed_error(data: bytes) -> None:
    try:
        items = read_batch(data)
    except BatchError:
        return
    assert sum(len(item) + 5 for _, item in items) == len(data)
