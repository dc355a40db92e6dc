"""A publisher that requires subscriptions (I-3c), claim by claim, on the real core."""

from __future__ import annotations

import pytest

from oncewire.client.core_effects import RefuseLink, ReportOutcome, SettleDeliveries
from oncewire.client.outcomes import RELEASED, DoneBy, OutcomeKind, Subscriptions, rejected
from oncewire.client.publisher_core import PublisherCore
from tests.client.core_driver import PublisherDriver, done_by, only, sent, tag


def test_what_fewer_than_required_processed_is_unknown_and_what_was_sent_to_nobody_is_released() -> None:
    p = PublisherDriver(require=2)
    p.attach()
    p.submit(2)
    p.core.accepted_by(tag(0), done_by("s/link"))
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


def processed_and_stored(processed: int, stored: int) -> DoneBy:
    names = [tuple(f"{kind}{n}/link" for n in range(count)) for kind, count in (("s", processed), ("edge", stored))]
    parts = [Subscriptions(len(each), each) for each in names]
    return DoneBy(Subscriptions(processed + stored, names[0] + names[1]), *parts)


def test_what_was_only_stored_is_unknown_where_it_must_be_processed() -> None:
    """I-3g."""
    p = PublisherDriver(require=1, require_processed=1)
    p.attach()
    p.submit(2)
    p.core.accepted_by(tag(0), processed_and_stored(0, 2))
    p.core.accepted_by(tag(1), processed_and_stored(1, 1))
    first, second = only(ReportOutcome, p.notify([0, 1]))
    assert (first.outcome.kind, first.outcome.condition) == (OutcomeKind.UNKNOWN, "oncewire:too-few-subscriptions")
    assert first.outcome.description.startswith("0 subscriptions processed it and 2 others stored it, required: 1 that")
    assert second.outcome.is_accepted
    assert second.outcome.processed_by == Subscriptions(1, ("s0/link",))
    assert second.outcome.stored_by == Subscriptions(1, ("edge0/link",))
    assert second.outcome.subscriptions == Subscriptions(2, ("s0/link", "edge0/link"))


def test_a_router_that_cannot_tell_stored_from_processed_is_refused_where_a_number_must_process() -> None:
    """I-3g: it would count what a journal has stored."""
    for require_processed, is_refused in ((1, True), (0, False)):
        core = PublisherCore(require=1, require_processed=require_processed)
        core.begin_attach()
        effects = core.attached(capable=True, resume="new", require=1)
        assert [isinstance(effect, RefuseLink) for effect in effects] == [True] * is_refused
        if is_refused:
            [effect] = only(RefuseLink, effects)
            assert "x-opt-topic-require-processed" in effect.reason


def test_a_router_that_does_not_tell_who_stores_leaves_that_unknown() -> None:
    p = PublisherDriver(require=1)
    p.attach()
    p.submit()
    p.core.accepted_by(tag(0), done_by("s/link"))
    [report] = only(ReportOutcome, p.notify([0]))
    assert report.outcome.is_accepted
    assert (report.outcome.processed_by, report.outcome.stored_by) == (None, None)
