"""The same refusal of one address is logged once a minute, and then says how often it came."""

from __future__ import annotations

import logging

import pytest

from delivery_records.model import effects
from delivery_records.model.outcomes import Decision
from oncewire.transport.log_limit_core import AGAIN_S, MAX_EVENTS, LogLimit
from router.process.logs import EventLog, RouterEvent
from tests.delivery_records.harness import Net
from tests.delivery_records.links import SubscriberLink


def test_an_event_is_logged_once_a_minute_with_how_often_it_came() -> None:
    limit = LogLimit()
    assert limit.take("refused", 0.0) == 0
    assert [limit.take("refused", 1.0) for _ in range(3)] == [None] * 3
    assert limit.take("another", 1.0) == 0
    assert limit.take("refused", AGAIN_S) == 3
    assert limit.take("refused", AGAIN_S) is None
    assert limit.take("refused", 2 * AGAIN_S) == 1


def test_what_is_remembered_of_events_is_bounded() -> None:
    limit = LogLimit()
    for number in range(MAX_EVENTS + 1):
        limit.take(number, 0.0)
    assert limit.take(0, 1.0) == 0, "the oldest is forgotten"
    assert limit.take(MAX_EVENTS, 1.0) is None


def test_a_flood_of_refusals_is_one_line_for_each_address_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    log = EventLog("r1")
    with caplog.at_level(logging.INFO):
        for port in range(100):
            log.event(RouterEvent.CLIENT_REFUSED, peer=f"10.0.0.1:{port}", why="login failed")
            log.event(RouterEvent.CLIENT_REFUSED, peer=f"10.0.0.2:{port}", why="login failed")
            log.event(RouterEvent.CLIENT_REFUSED, peer=f"10.0.0.2:{port}", why="no open frame came")
            log.event(RouterEvent.CLIENT_CONNECTED, peer=f"10.0.0.1:{port}")
    lines = [record.getMessage() for record in caplog.records]
    assert lines.count("client_refused") == 3
    assert lines.count("client_connected") == 100
    assert log.counts["warning"] == 300, "all of them are counted"


def test_a_stranger_that_steals_many_names_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    net, names = Net(), 30
    for name in range(names):
        for peer in ("10.0.0.1:1", "10.0.0.2:2", "10.0.0.1:3", f"10.0.0.2:{name}"):
            SubscriberLink(net, net.nodes[0]).attach(f"s{name}", peer=peer)
    log = EventLog("r1")
    with caplog.at_level(logging.WARNING):
        for note in net.nodes[0].all(effects.Note):
            log.decision(note.decision, note.fields)
    lines = [record.getMessage() for record in caplog.records]
    assert net.nodes[0].count(Decision.STEAL_REFUSED) == names
    assert lines.count("steal_refused") == 1
    assert lines.count("attach_refused") == 1
    log.decision(Decision.STEAL_REFUSED, {"key": "s0", "why": "another thief", "peer": "10.0.0.3:1"})
    assert [record.getMessage() for record in caplog.records].count("steal_refused") == 2
