"""Rule P-a and what belongs to it, claim by claim, on the real core."""

from __future__ import annotations

import pytest

from oncewire.client.core_effects import (
    AnswerDrain,
    AnswerEcho,
    AskOwing,
    ProveOwner,
    RefuseLink,
    ReportActive,
    ReportEnded,
    ReportExpired,
    ReportOutcome,
    ReportOwing,
    SendTransfer,
    SettleDeliveries,
)
from oncewire.client.outcomes import ACCEPTED, RELEASED, UNKNOWN, Outcome, OutcomeKind, Subscriptions, rejected
from oncewire.client.publisher_core import PublisherCore
from tests.client.core_driver import PublisherDriver, done_by, only, sent, tag


def test_a_new_publisher_presents_an_empty_map_and_not_null() -> None:
    assert PublisherCore().begin_attach() == {}


def test_without_exactly_once_null_is_presented() -> None:
    assert PublisherCore(exactly_once=False).begin_attach() is None


def test_tags_are_the_big_endian_number_of_the_message() -> None:
    p = PublisherDriver()
    p.attach()
    transfers = only(SendTransfer, p.submit(3))
    assert [transfer.tag for transfer in transfers] == [bytes(7) + bytes([n]) for n in range(3)]


def test_nothing_is_sent_before_credit_comes() -> None:
    p = PublisherDriver()
    assert sent(p.submit(2)) == []
    p.core.begin_attach()
    assert p.core.attached(capable=True, resume="new") == []
    assert sent(p.core.flow(0, echo=9) + p.commit()) == []
    effects = p.core.flow(1, session=5) + p.commit()
    assert only(ReportActive, effects) == [ReportActive(5, 0)]
    assert sent(effects) == [0]


def test_the_echo_is_answered_with_its_value() -> None:
    core = PublisherCore()
    core.begin_attach()
    core.attached(capable=True, resume="new")
    assert core.flow(0, echo=1234567) == [AnswerEcho(1234567)]


def test_with_a_shared_journal_the_owner_is_proved_before_the_echo_is_answered() -> None:
    """P-b."""
    core = PublisherCore(is_shared=True)
    core.begin_attach()
    core.attached(capable=True, resume="new")
    assert core.flow(0, echo=1234567) == [ProveOwner(1234567)]


def test_a_flow_before_the_attach_reply_proves_nothing_and_sends_nothing() -> None:
    p = PublisherDriver()
    p.submit()
    p.core.begin_attach()
    assert p.core.flow(10, echo=3) == []


def test_a_router_without_the_capability_is_refused() -> None:
    core = PublisherCore()
    core.begin_attach()
    (effect,) = core.attached(capable=False, resume="")
    assert isinstance(effect, RefuseLink)
    assert "topic-exactly-once" in effect.reason


def test_a_new_session_for_presented_deliveries_is_refused() -> None:
    p = PublisherDriver()
    p.attach()
    p.submit()
    p.core.begin_attach()
    assert isinstance(p.core.attached(capable=True, resume="new")[0], RefuseLink)


def test_an_outcome_is_recorded_then_settled_then_reported() -> None:
    p = PublisherDriver()
    p.attach()
    p.submit(2)
    pending = p.core.disposition([(1000, tag(0)), (1001, tag(1))], ACCEPTED, False)
    assert pending == []  # not before it is recorded
    assert p.commit() == [SettleDeliveries([1000, 1001]), ReportOutcome(0, ACCEPTED), ReportOutcome(1, ACCEPTED)]
    assert p.core.unfinished == 0
    assert p.disk.messages == {}


def test_an_outcome_that_came_settled_is_not_settled_again() -> None:
    p = PublisherDriver()
    p.attach()
    p.submit()
    assert p.notify([0], settled=True) == [ReportOutcome(0, ACCEPTED)]


def test_a_delivery_settled_without_outcome_is_unknown() -> None:
    p = PublisherDriver()
    p.attach()
    p.submit()
    (report,) = only(ReportOutcome, p.notify([0], None, settled=True))
    assert report.outcome.kind is OutcomeKind.UNKNOWN


def test_a_state_that_is_no_outcome_changes_nothing() -> None:
    p = PublisherDriver()
    p.attach()
    p.submit()
    assert p.notify([0], None) == []
    assert p.core.unfinished == 1


@pytest.mark.parametrize("outcome", [rejected("amqp:not-allowed", "no"), RELEASED, Outcome(OutcomeKind.MODIFIED)])
def test_every_outcome_is_reported_for_its_message(outcome: Outcome) -> None:
    p = PublisherDriver()
    p.attach()
    p.submit(3)
    effects = p.notify([1], outcome)
    assert only(ReportOutcome, effects) == [ReportOutcome(1, outcome)]
    assert only(SettleDeliveries, effects) == [SettleDeliveries([1001])]


def test_an_outcome_other_than_accepted_survives_a_crash_until_it_is_reported() -> None:
    p = PublisherDriver()
    p.attach()
    p.submit(2)
    p.notify([0], rejected("x"))
    p.restart()
    assert p.core.recovered_outcomes() == [ReportOutcome(0, rejected("x"))]
    assert p.core.recovered_messages() == [1]
    assert p.core.begin_attach() == {tag(1): None}
    p.core.reported(0)
    p.commit()
    p.restart()
    assert p.core.recovered_outcomes() == []


def test_unsettled_messages_are_presented_and_sent_again_in_order_before_new_ones() -> None:
    p = PublisherDriver()
    p.attach()
    p.submit(3)
    p.notify([0])
    p.core.lost()
    p.submit(1)
    assert p.core.begin_attach() == {tag(1): None, tag(2): None}
    p.core.attached(capable=True, resume="resumed")
    effects = p.core.flow(10, session=7) + p.commit()
    assert only(ReportActive, effects)[0].resumed == 2
    assert sent(effects) == [1, 2, 3]


def test_resends_stop_at_the_credit_and_go_on_with_more() -> None:
    p = PublisherDriver()
    p.attach()
    p.submit(4)
    p.core.lost()
    assert sent(p.attach(credit=2)) == [0, 1]
    assert sent(p.core.flow(3)) == [2]
    assert sent(p.core.flow(10)) == [3]
    assert sent(p.core.flow(10)) == []


def test_a_message_that_reached_no_socket_is_not_presented() -> None:
    """P-1: the map holds what may have been transferred, not the application's queue."""
    p = PublisherDriver()
    p.attach(credit=1)
    p.submit(3)
    p.core.lost()
    assert p.core.begin_attach() == {tag(0): None}


def test_a_message_is_stored_before_it_is_sent() -> None:
    p = PublisherDriver()
    p.attach()
    p.core.submit(b"m")
    changes = p.core.next_commit()
    assert [message.number for message in changes.stored] == [0]
    assert changes.exposed_before == 1  # the same commit lets it go: one commit per message is enough
    assert sent(p.core.committed()) == [0]


def test_what_may_have_reached_a_socket_is_durably_marked_before_it_does() -> None:
    p = PublisherDriver()
    p.submit(3)  # no link: stored, not exposed
    p.restart()
    assert p.core.begin_attach() == {}  # so nothing of it can be "outcome unknown"
    p.core.attached(capable=True, resume="new")
    assert sent(p.core.flow(2, session=1)) == []
    assert p.core.next_commit().exposed_before == 2
    assert sent(p.core.committed()) == [0, 1]


def test_after_a_crash_everything_exposed_is_presented_even_if_it_was_not_sent() -> None:
    p = PublisherDriver()
    p.attach()
    p.core.submit(b"m")
    p.disk.write(p.core.next_commit())  # killed before the transfer
    p.restart()
    assert p.core.begin_attach() == {tag(0): None}


def test_numbers_never_restart_even_when_the_map_is_empty() -> None:
    p = PublisherDriver()
    p.attach()
    p.submit(5)
    p.notify(range(5))
    p.restart()
    assert p.core.submit(b"m") == 5


def test_an_accept_lost_with_the_connection_is_reported_again_and_then_settled() -> None:
    p = PublisherDriver()
    p.attach()
    p.submit()
    p.core.lost()  # the accept was under way
    assert sent(p.attach()) == [0]
    assert p.notify([0]) == [SettleDeliveries([1000]), ReportOutcome(0, ACCEPTED)]


def test_a_settle_lost_with_the_connection_needs_nothing_absence_from_the_map_is_the_settle() -> None:
    p = PublisherDriver()
    p.attach()
    p.submit(2)
    p.notify([0])
    p.core.lost()
    assert p.core.begin_attach() == {tag(1): None}


def test_an_outcome_recorded_while_the_link_was_away_is_absent_from_the_next_map() -> None:
    p = PublisherDriver()
    p.attach()
    p.submit(1)
    p.core.disposition([(1000, tag(0))], ACCEPTED, False)
    p.core.lost()
    assert p.commit() == [ReportOutcome(0, ACCEPTED)]  # nothing can be settled on a lost link
    assert p.core.begin_attach() == {}
    assert p.core.unfinished == 0


def test_outcomes_that_were_reported_are_recorded_before_the_next_attach() -> None:
    """Left out, a crash before the commit would present one later, after subscribers forgot it: a duplicate.

    Presented, it would be owed again, and gone when the commit is done: a hole for a later subscription (F30).
    """
    p = PublisherDriver()
    p.attach()
    p.submit(1)
    p.core.disposition([(1000, tag(0))], ACCEPTED, False)
    p.core.lost()
    may_attach_before_the_commit = p.core.may_attach
    changes = p.core.next_commit()
    may_attach_during_the_commit = p.core.may_attach
    p.disk.write(changes)
    assert p.core.committed() == [ReportOutcome(0, ACCEPTED)]
    assert (may_attach_before_the_commit, may_attach_during_the_commit, p.core.may_attach) == (False, False, True)
    assert p.core.begin_attach() == {}
    assert p.core.unfinished == 0
    assert p.commit() == []


def test_a_second_outcome_for_the_same_delivery_changes_nothing() -> None:
    p = PublisherDriver()
    p.attach()
    p.submit()
    p.core.disposition([(1000, tag(0))], ACCEPTED, False)
    assert p.core.disposition([(1000, tag(0))], RELEASED, False) == []
    assert p.commit() == [SettleDeliveries([1000]), ReportOutcome(0, ACCEPTED)]


def test_dispositions_of_unknown_tags_are_ignored() -> None:
    p = PublisherDriver()
    p.attach()
    assert p.core.disposition([(1, b"foreign"), (2, tag(99))], ACCEPTED, True) == []


def test_an_expired_session_makes_exactly_its_own_messages_unknown() -> None:
    p = PublisherDriver()
    p.attach(credit=3)
    p.submit(5)
    p.notify([0])
    effects = p.core.expire()
    assert effects == [ReportExpired((1, 2), sent_again=False)]
    may_attach = p.core.may_attach
    assert not may_attach  # not before that is recorded
    effects = p.commit()
    assert only(ReportOutcome, effects) == [ReportOutcome(1, UNKNOWN), ReportOutcome(2, UNKNOWN)]
    assert p.core.may_attach
    assert p.core.begin_attach() == {}
    p.core.attached(capable=True, resume="new")
    assert sent(p.core.flow(10, session=8) + p.commit()) == [3, 4]


def test_unknown_outcomes_survive_a_crash_before_they_are_reported() -> None:
    p = PublisherDriver()
    p.attach()
    p.submit(1)
    p.core.expire()
    p.commit()
    p.restart()
    assert p.core.recovered_outcomes() == [ReportOutcome(0, UNKNOWN)]
    assert p.core.begin_attach() == {}


def test_an_expiry_while_a_commit_is_under_way_still_ends_with_the_mark_put_back() -> None:
    p = PublisherDriver(resend_in_doubt=True)
    p.attach()
    p.submit(1)
    p.core.submit(b"late")
    changes = p.core.next_commit()
    assert changes.exposed_before == 2
    p.core.expire()
    p.disk.write(changes)
    assert p.core.committed() == []
    may_attach = p.core.may_attach
    assert not may_attach
    p.commit()
    assert p.core.may_attach
    assert p.disk.exposed_before == 0
    assert p.core.begin_attach() == {}


def test_in_doubt_messages_are_sent_again_in_order_and_marked() -> None:
    p = PublisherDriver(resend_in_doubt=True)
    p.attach(credit=2)
    p.submit(3)
    assert p.core.expire() == [ReportExpired((0, 1), sent_again=True)]
    assert only(ReportOutcome, p.commit()) == []
    assert p.core.begin_attach() == {}
    p.core.attached(capable=True, resume="new")
    transfers = only(SendTransfer, p.core.flow(10, session=8) + p.commit())
    assert [(transfer.number, transfer.in_doubt) for transfer in transfers] == [(0, True), (1, True), (2, False)]
    (report,) = only(ReportOutcome, p.notify([0]))
    assert report.outcome.is_accepted
    assert report.outcome.in_doubt


def test_a_crash_after_an_expiry_keeps_the_in_doubt_mark() -> None:
    p = PublisherDriver(resend_in_doubt=True)
    p.attach()
    p.submit(2)
    p.core.expire()
    p.commit()
    p.restart()
    assert p.core.begin_attach() == {}
    p.core.attached(capable=True, resume="new")
    transfers = only(SendTransfer, p.core.flow(10, session=8) + p.commit())
    assert [transfer.in_doubt for transfer in transfers] == [True, True]


def test_the_window_bounds_messages_and_bytes_but_one_may_always_stand_alone() -> None:
    p = PublisherDriver(window=2, window_bytes=10)
    assert p.core.has_room(1_000)
    p.submit(1, size=8)
    assert p.core.has_room(2)
    assert not p.core.has_room(3)
    p.submit(1, size=1)
    assert not p.core.has_room(1)
    p.attach()
    p.notify([0])
    assert p.core.has_room(9)


def test_a_map_that_does_not_fit_the_frame_says_so() -> None:
    p = PublisherDriver()
    p.attach()
    p.submit(3)
    p.core.lost()
    assert not p.core.fits(2)
    assert p.core.fits(3)


def test_no_more_is_in_flight_than_the_next_map_can_hold() -> None:
    p = PublisherDriver()
    p.core.begin_attach(map_bound=2)
    p.core.attached(capable=True, resume="new")
    p.core.flow(100, session=1)
    assert sent(p.submit(4)) == [0, 1]
    assert sent(p.notify([0])) == [2]


def test_a_drain_is_answered_after_what_credit_allowed() -> None:
    p = PublisherDriver()
    p.attach(credit=0)
    p.submit(1)
    p.core.flow(5)
    p.commit()
    assert p.core.flow(5, drain=True) == [AnswerDrain()]
    assert sent(p.submit(1)) == []
    assert sent(p.core.flow(6) + p.commit()) == [1]


def test_asking_who_owes_needs_a_message_in_flight() -> None:
    p = PublisherDriver()
    p.submit(1)
    assert p.core.ask(0) == []
    p.attach()
    assert p.core.ask(0) == [AskOwing(tag(0))]
    assert p.core.asked(tag(0), ["a/b"], 3) == [ReportOwing(0, ("a/b",), 3)]
    p.notify([0])
    assert p.core.ask(0) == []
    assert p.core.asked(tag(0), [], 0) == []


def test_who_ended_is_reported_with_the_number_of_the_oldest_message_it_owed() -> None:
    p = PublisherDriver()
    p.submit(2)
    p.attach()
    assert p.core.ended(tag(1), ["a/b"], 2) == [ReportEnded(1, ("a/b",), 2)]
    assert p.core.ended(b"no number", ["a/b"], 1) == []
    p.core.lost()
    assert p.core.ended(tag(1), ["a/b"], 1) == []


def test_one_commit_at_a_time_gathers_what_comes_meanwhile() -> None:
    p = PublisherDriver()
    p.attach()
    p.core.submit(b"a")
    p.core.next_commit()
    p.core.submit(b"b")
    p.core.submit(b"c")
    assert not p.core.wants_commit
    p.core.committed()
    assert [message.number for message in p.core.next_commit().stored] == [1, 2]


def test_the_session_reported_with_the_first_credit_is_recorded() -> None:
    p = PublisherDriver()
    p.attach(session=99)
    assert p.disk.session == 99


def resumed(p: PublisherDriver, credit: int = 10, *, echo: int) -> list[int]:
    """Attach again with the map and answer the challenge; the messages that were sent."""
    p.core.lost()
    p.core.begin_attach()
    p.core.attached(capable=True, resume="resumed")
    p.core.flow(0, echo=echo)
    return sent(p.core.flow(credit, session=5))


def test_a_publisher_notifies_its_next_router_what_was_sent_before_a_subscription() -> None:
    p = PublisherDriver()
    p.attach(credit=4)
    p.submit(4)
    p.core.started(100, tag(1))
    p.core.started(120, tag(2))
    p.core.started(130, tag(1))
    p.core.lost()
    p.core.begin_attach()
    assert p.core.starts() == [(tag(1), 100), (tag(2), 120)], "the lowest for each, and nothing of what is not known"


def test_what_is_presented_was_sent_before_that_attach() -> None:
    p = PublisherDriver()
    p.attach(credit=2)
    p.submit(2)
    p.core.started(100, tag(0))
    assert resumed(p, echo=200) == [0, 1]
    p.submit(1)
    p.core.lost()
    p.core.begin_attach()
    assert p.core.starts() == [(tag(0), 100), (tag(1), 200)]


def test_a_start_that_is_read_late_or_is_none_of_ours_changes_nothing() -> None:
    p = PublisherDriver()
    p.attach(credit=2)
    p.submit(2)
    p.core.started(100, b"")
    p.core.lost()
    p.core.started(100, tag(1))
    p.core.begin_attach()
    assert p.core.starts() == []


def test_with_its_session_a_publisher_forgets_what_it_knew_of_starts() -> None:
    p = PublisherDriver(resend_in_doubt=True)
    p.attach(credit=2)
    p.submit(2)
    p.core.started(100, tag(1))
    p.core.expire()
    p.commit()
    p.attach(credit=2)
    p.core.lost()
    p.core.begin_attach()
    assert p.core.starts() == []


def test_accepted_is_reported_with_who_processed_it_from_the_message_named_on() -> None:
    p = PublisherDriver(require=1)
    p.attach()
    p.submit(4)
    p.core.accepted_by(tag(0), done_by("s/link"))
    p.core.accepted_by(tag(2), done_by("s/link", "t/link"))
    reported = only(ReportOutcome, p.notify([0, 1, 2, 3]))
    assert [report.outcome.is_accepted for report in reported] == [True] * 4
    named = [report.outcome.subscriptions for report in reported]
    one, two = Subscriptions(1, ("s/link",)), Subscriptions(2, ("s/link", "t/link"))
    assert named == [one, one, two, two]


def test_a_rejection_that_comes_first_does_not_take_away_who_processed_the_message_before_it() -> None:
    p = PublisherDriver(require=1)
    p.attach()
    p.submit(3)
    for number, names in enumerate((["s/link"], ["s/link", "t/link"], ["t/link"])):
        p.core.accepted_by(tag(number), done_by(*names))
    p.notify([1], rejected("oncewire:rejected", "by one"))  # a disposition has outcomes of one kind
    reported = only(ReportOutcome, p.notify([0, 2]))
    named = [each.outcome.subscriptions for each in reported if each.outcome.is_accepted]
    assert named == [Subscriptions(1, ("s/link",)), Subscriptions(1, ("t/link",))]


def test_what_an_earlier_router_reported_is_forgotten_with_its_link() -> None:
    p = PublisherDriver(require=0)
    p.attach()
    p.submit()
    p.core.accepted_by(tag(0), done_by())
    p.attach()
    [report] = only(ReportOutcome, p.notify([0]))
    assert report.outcome == ACCEPTED
