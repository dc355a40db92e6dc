"""What the activation of a publisher costs is linear in subscriptions and in what it presents: the work is counted."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from chaos.mutants.edits import run_from_sources
from delivery_records.model import effects, inputs
from delivery_records.publisher.starts import Starts
from tests.delivery_records.harness import Net
from tests.delivery_records.links import PublisherLink

AT_THE_INGRESS = (".starts", ".fanout", ".ingress", ".window")
"""Each SYNC to a subscription names every delivery, so what an egress does with it grows with both (I-5)."""


def lines_of_activation(size: int) -> int:
    """Lines at the ingress, each turn of a loop counted, for `size` subscriptions, unsettled deliveries and starts."""
    lines = 0

    def count(frame: FrameType, event: str, _arg: object) -> Any:
        nonlocal lines
        lines += event == "line" and frame.f_globals["__name__"].endswith(AT_THE_INGRESS)
        return count

    net = Net(records=run_from_sources()["records"].Records)  # compiled lines cannot be counted
    for number in range(size):
        net.subscriber(net.nodes[0], f"s{number}")
    tags = [b"%d" % number for number in range(size)]
    net.publisher(net.nodes[0]).drop()
    link = PublisherLink(net, net.nodes[0])
    link.attach(unsettled=dict.fromkeys(tags), starts=[(tag, 1) for tag in tags])
    core, answer = net.nodes[0].core, inputs.ClientFlow(link.number, echoed_epoch=link.last(effects.AskEcho).epoch)
    before = sys.gettrace()
    sys.settrace(count)
    try:
        core.handle([answer], core.now)
    finally:
        sys.settrace(before)
    assert next(iter(core.ingresses.values())).fanout.is_active
    return lines


def test_an_activation_is_linear_in_subscriptions_and_starts() -> None:
    """10,000 subscriptions and 1024 starts held the router for 2.7 s, and a client could repeat it."""
    assert lines_of_activation(80) < 6 * lines_of_activation(20)


@pytest.mark.parametrize("starts", [[], [(5, 9)], [(5, 9), (2, 3), (7, 4), (1, 20), (6, 9)]])
def test_a_subscription_starts_behind_all_that_was_sent_before_it(starts: list[tuple[int, int]]) -> None:
    known = Starts(starts)
    for created in range(25):
        expected = max((stop for stop, revision in starts if revision <= created), default=0)
        assert known.of(created) == expected
