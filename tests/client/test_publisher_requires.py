"""A publisher that requires subscriptions (I-3c), claim by claim, on the real core."""

from __future__ import annotations

import pytest

from oncewire.client.core_effects import RefuseLink, ReportOutcome, SettleDeliveries
from oncewire.client.outcomes import RELEASED, OutcomeKind, Subscriptions, rejected
from oncewire.client.publisher_core import PublisherCore
from tests.client.core_driver import PublisherDriver, only, sent, tag


def test_what_fewer_than_required_processed_is_unknown_and_what_was_sent_to_nobody_is_released() -> None:
    p = PublisherDriver(require=2)
    p.attach()
    p.submit(2)
    p.core.accepted_by(tag(0), ["s/link"], 1)
    [first] = only(ReportOutcome, p.notify([0]))
    [second] = only(ReportOutcome, p.notify([1], RELEASED))
    assert (first.outcome.kind, second.outcome.kind) == (OutcomeKind.UNKNOWN, OutcomeKind.RELEASED)
    assert first.outcome.condition == second.outcome.condition == "oncewire:too-few-subscriptions"
    assert first.outcome.subscriptions == Subscriptions(1, ("s/link",))


def test_behind_a_released_message_nothing_is_sent_where_the_journal_keeps_it_and_a_crash_shows_it_unsent() -> None:
    p = PublisherDriver(require=1)
    p.core.holds_released = True
    p.attach(credit=2)
    assert sent(p.submit(5)) == [0, 1]
    assert sent(p.notify([0], RELEASED)) == []
    assert sent(p.core.flow(10) + p.commit()) == []
    assert p.disk.exposed_before == 2
    assert not p.core.wants_commit
    p.attach()
    assert not any(p.core.was_sent(number) for number in range(5))


@pytest.mark.parametrize("ends", ["connection", "process"])
def test_what_was_sent_behind_a_released_message_is_released_with_it_though_the_publisher_ends_first(ends: str) -> None:
    """I-3c: resumed without it, nobody would process it, or somebody ahead of the released one."""
    p = PublisherDriver(require=1)
    p.attach()
    assert sent(p.submit(3)) == [0, 1, 2]
    reports = only(ReportOutcome, p.notify([0], RELEASED))
    assert [(each.number, each.outcome.kind) for each in reports] == [(n, OutcomeKind.RELEASED) for n in range(3)]
    if ends == "process":
        p.restart()
    p.core.lost()
    assert p.core.begin_attach() == {}


def test_what_was_sent_before_a_released_message_or_in_an_earlier_attach_is_not_released_with_it() -> None:
    p = PublisherDriver(require=1)
    p.attach(credit=1)
    p.submit(3)
    p.attach(credit=3)
    reports = only(ReportOutcome, p.notify([1], RELEASED))
    assert [each.number for each in reports] == [1, 2]
    assert p.core.begin_attach() == {tag(0): None}


@pytest.mark.parametrize("is_recorded", [False, True])
def test_a_released_message_is_settled_when_the_router_has_all_that_was_sent_behind_it(is_recorded: bool) -> None:
    """I-3c: what comes behind the settlement would be forwarded."""
    p = PublisherDriver(require=1)
    p.attach()
    p.submit(3)
    effects = p.core.disposition([(1000, tag(0))], RELEASED, False)
    if is_recorded:
        assert only(SettleDeliveries, effects + p.commit()) == []
    effects = p.core.disposition([(1001, tag(1))], RELEASED, False)
    assert only(SettleDeliveries, effects) == []
    effects = p.core.disposition([(1002, tag(2))], rejected("amqp:decode-error", "malformed"), False)
    settled = only(SettleDeliveries, effects + p.commit())
    assert sorted(delivery_id for effect in settled for delivery_id in effect.delivery_ids) == [1000, 1001, 1002]


def test_a_router_that_does_not_know_what_is_required_is_refused_and_one_that_cannot_report_is_not() -> None:
    strict, curious = PublisherCore(require=1), PublisherCore(require=0)
    for core in (strict, curious):
        core.begin_attach()
    [effect] = strict.attached(capable=True, resume="new")
    assert isinstance(effect, RefuseLink)
    assert "x-opt-topic-require" in effect.reason
    assert curious.attached(capable=True, resume="new") == []
