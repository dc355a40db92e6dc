"""Rule S-a and what belongs to it, claim by claim, on the real core."""

from __future__ import annotations

import random

import pytest

from oncewire.client.arrived_entry import PresentedMap
from oncewire.client.core_effects import (
    AnswerEcho,
    DeliverMessage,
    DisposeDeliveries,
    GrantCredit,
    ProveOwner,
    RefuseLink,
    ReportConfirmed,
    ReportIncarnation,
)
from oncewire.client.outcomes import ACCEPTED, rejected
from oncewire.client.subscriber_core import LAZY_FORGETS, SubscriberCore
from tests.client.core_driver import SubscriberDriver, only


def attached(prefetch: int = 10) -> SubscriberDriver:
    s = SubscriberDriver(prefetch=prefetch)
    s.attach()
    return s


def test_a_delivery_is_accepted_after_it_was_recorded_and_not_before() -> None:
    s = attached()
    (delivery,) = only(DeliverMessage, s.transfer(b"t"))
    s.core.complete(delivery.serial, ACCEPTED)
    changes = s.core.next_commit()
    assert changes.entries == ((b"t", ACCEPTED),)
    assert only(DisposeDeliveries, s.core.committed()) == [DisposeDeliveries([1], ACCEPTED)]


def test_deliveries_recorded_together_are_accepted_together() -> None:
    s = attached()
    for name in (b"a", b"b", b"c"):
        s.transfer(name)
    for delivery in s.delivered:
        s.core.complete(delivery.serial, ACCEPTED)
    assert only(DisposeDeliveries, s.commit()) == [DisposeDeliveries([1, 2, 3], ACCEPTED)]


def test_a_rejection_carries_its_reason() -> None:
    s = attached()
    s.transfer(b"t")
    outcome = rejected("amqp:decode-error", "not JSON")
    assert only(DisposeDeliveries, s.process(outcome)) == [DisposeDeliveries((1,), outcome)]


@pytest.mark.parametrize("how", ["disposition", "resume", "left out"])
def test_a_tag_used_again_while_its_settled_delivery_is_not_processed_is_another_delivery(how: str) -> None:
    """E-3, S-a."""
    s = attached()
    s.transfer(b"t")
    if how == "disposition":
        s.settle(b"t")
    else:
        s.attach(kept=[] if how == "left out" else None)
        if how == "resume":
            s.transfer(b"t", settled=True, resume=True)
    (second,) = only(DeliverMessage, s.transfer(b"t"))
    assert (s.core.unfinished, s.core.unprocessed) == (2, 2)
    assert only(DisposeDeliveries, s.process()) == []  # the first: the router expects nothing any more
    assert s.delivered == [second]
    assert only(DisposeDeliveries, s.process()) == [DisposeDeliveries([s.next_id], ACCEPTED)]
    assert s.disk.entries == {b"t": ACCEPTED}
    s.settle(b"t")
    assert s.core.unfinished == 0


@pytest.mark.parametrize("second_is_first", [True, False])
def test_the_journal_keeps_the_later_of_two_deliveries_with_one_tag(second_is_first: bool) -> None:
    s = attached()
    for name in (b"t", b"u"):
        s.transfer(name)
    s.core.complete(s.delivered.pop().serial, ACCEPTED)
    s.commit()
    assert s.disk.entries == {b"t": None, b"u": ACCEPTED}  # the first is stored: it came before u
    s.settle(b"t")
    s.transfer(b"t")
    first, second = s.delivered
    for delivery in (second, first) if second_is_first else (first, second):
        s.core.complete(delivery.serial, ACCEPTED)
        s.commit()
    s.transfer(b"v")
    s.delivered = s.delivered[-1:]
    s.process()
    assert list(s.disk.entries.items()) == [(b"u", ACCEPTED), (b"t", ACCEPTED), (b"v", ACCEPTED)]


def test_a_tag_used_again_while_the_commit_of_its_settled_delivery_is_under_way_stays_in_the_journal() -> None:
    s = attached()
    s.transfer(b"t")
    s.core.complete(s.delivered.pop().serial, ACCEPTED)
    changes = s.core.next_commit()
    s.settle(b"t")
    s.transfer(b"t")
    s.disk.write(changes)
    assert only(DisposeDeliveries, s.core.committed()) == []
    assert only(DisposeDeliveries, s.process()) == [DisposeDeliveries([2], ACCEPTED)]
    s.restart()
    assert s.core.begin_attach(10) == PresentedMap({b"t": ACCEPTED})


def test_a_settled_delivery_is_forgotten_by_map_and_journal() -> None:
    s = attached()
    s.transfer(b"t")
    s.process()
    assert b"t" in s.disk.entries
    s.settle(b"t")
    assert s.core.unfinished == 0
    s.transfer(b"u")
    s.process()  # forgetting rides on the next commit
    assert list(s.disk.entries) == [b"u"]


def test_forgetting_alone_is_written_when_much_of_it_waits() -> None:
    s = attached()
    tags = [b"%d" % n for n in range(LAZY_FORGETS)]
    for tag in tags:
        s.transfer(tag)
        s.process()
    s.settle(*tags[:-1])
    assert not s.core.wants_commit
    s.settle(tags[-1])
    s.commit()
    assert s.disk.entries == {}


def test_a_processed_delivery_that_comes_again_is_answered_and_not_delivered() -> None:
    s = attached()
    s.transfer(b"t")
    s.process(rejected("x"))
    s.attach()  # the disposition was lost with the connection
    effects = s.transfer(b"t", resume=True)
    assert only(DeliverMessage, effects) == []
    assert only(DisposeDeliveries, effects) == [DisposeDeliveries((2,), rejected("x"))]


def test_an_arrived_delivery_that_comes_again_waits_for_the_application_and_uses_the_new_delivery_id() -> None:
    s = attached()
    s.transfer(b"t")
    s.attach()
    assert only(DeliverMessage, s.transfer(b"t", resume=True)) == []
    assert only(DisposeDeliveries, s.process()) == [DisposeDeliveries([2], ACCEPTED)]


def test_a_delivery_completed_while_the_link_is_away_is_answered_when_it_is_resumed() -> None:
    s = attached()
    s.transfer(b"t")
    s.core.lost()
    assert only(DisposeDeliveries, s.process()) == []
    assert s.core.begin_attach(100).unsettled == {b"t": ACCEPTED}  # type: ignore[union-attr]
    s.attach()
    assert only(DisposeDeliveries, s.transfer(b"t", resume=True)) == [DisposeDeliveries((2,), ACCEPTED)]


def test_a_delivery_whose_commit_is_under_way_is_not_answered_before_it_is_durable() -> None:
    s = attached()
    s.transfer(b"t")
    s.core.complete(s.delivered.pop().serial, ACCEPTED)
    changes = s.core.next_commit()
    presented = s.core.begin_attach(100)
    assert presented is not None
    assert presented.unsettled == {b"t": None}
    s._note(s.core.attached([b"t"], capable=True, incarnation=5))
    assert only(DisposeDeliveries, s.transfer(b"t", resume=True)) == []
    s.disk.write(changes)
    assert only(DisposeDeliveries, s.core.committed()) == [DisposeDeliveries([2], ACCEPTED)]


def test_arrived_entries_are_presented_without_state_in_order_of_arrival() -> None:
    s = attached()
    for name in (b"a", b"b", b"c"):
        s.transfer(name)
    s.process()
    presented = s.core.begin_attach(100)
    assert presented is not None
    assert list(presented.unsettled.items()) == [(b"a", ACCEPTED), (b"b", None), (b"c", None)]
    assert not presented.rest


def test_a_left_out_entry_that_was_processed_is_forgotten() -> None:
    s = attached()
    s.transfer(b"t")
    s.process()
    s.attach(kept=[])
    assert s.core.unfinished == 0


def test_a_left_out_entry_that_was_not_processed_is_processed_first_then_forgotten() -> None:
    s = attached()
    s.transfer(b"t")
    s.attach(kept=[])
    assert s.core.unfinished == 1
    assert only(DisposeDeliveries, s.process()) == []  # the router expects nothing any more
    assert s.core.unfinished == 0
    assert s.disk.entries == {}


def test_a_delivery_settled_before_it_was_processed_is_processed_then_forgotten_and_not_presented_again() -> None:
    s = attached()
    s.transfer(b"t")
    s.settle(b"t")
    presented = s.core.begin_attach(100)
    assert presented is not None
    assert presented.unsettled == {}
    s.attach()
    assert only(DisposeDeliveries, s.process()) == []
    assert s.core.unfinished == 0


def test_a_delivery_settled_while_its_commit_is_under_way_is_forgotten_after_it() -> None:
    s = attached()
    s.transfer(b"t")
    s.core.complete(s.delivered.pop().serial, ACCEPTED)
    s.disk.write(s.core.next_commit())
    s.settle(b"t")
    assert only(DisposeDeliveries, s.core.committed()) == []
    assert s.core.unfinished == 0


def test_a_settled_resume_forgets_the_entry_and_gives_its_credit_back() -> None:
    s = attached(prefetch=4)
    s.transfer(b"t")
    s.process()
    s.attach()
    assert s.credit == 5  # prefetch + one presented and not resumed
    effects = s.transfer(b"t", settled=True, resume=True)
    assert only(DeliverMessage, effects) == []
    assert s.core.unfinished == 0
    assert s.credit == 4


def test_a_resume_of_a_tag_that_is_not_held_is_ignored_and_costs_no_credit_for_good() -> None:
    s = attached(prefetch=1)
    assert only(DeliverMessage, s.transfer(b"t", resume=True)) == []
    assert s.credit == 1
    assert s.core.unfinished == 0


def test_an_aborted_delivery_leaves_nothing_and_costs_no_credit_for_good() -> None:
    s = attached(prefetch=1)
    assert only(DeliverMessage, s.transfer(b"t", aborted=True)) == []
    assert s.credit == 1
    assert s.core.unfinished == 0


@pytest.mark.parametrize("processed", [False, True])
def test_a_settled_transfer_without_resume_is_no_settlement_of_a_delivery_with_its_tag(processed: bool) -> None:
    s = attached()
    s.transfer(b"t")
    if processed:
        s.process()
    (delivery,) = only(DeliverMessage, s.transfer(b"t", settled=True))
    assert delivery.settled
    assert s.core.unfinished == 1
    presented = s.core.begin_attach(10)
    assert presented is not None
    assert list(presented.unsettled) == [b"t"]


def test_a_settled_transfer_does_not_take_the_place_of_a_resume() -> None:
    s = attached(prefetch=1)
    s.transfer(b"t")
    s.attach(kept=[b"t"])
    assert s.credit == 2  # one new delivery, and the resume of t (C-3)
    s.transfer(b"t", settled=True)
    assert s.credit == 1
    s.transfer(b"t", resume=True)


def test_settled_transfers_may_all_have_an_empty_tag() -> None:
    s = attached()
    for _ in range(3):
        (delivery,) = only(DeliverMessage, s.transfer(b"", settled=True))
        assert (delivery.tag, delivery.settled) == (b"", True)
    assert s.core.unfinished == 0


def test_an_outcome_that_the_router_wants_settled_is_settled_and_forgotten() -> None:  # AMQP 2.7.5
    core = SubscriberCore(prefetch=3)
    core.begin_attach(10)
    core.attached([], capable=True)
    effects = core.transfer(1, b"a", b"", receiver_settles=True) + core.transfer(2, b"b", b"")
    for delivery in only(DeliverMessage, effects):
        core.complete(delivery.serial, ACCEPTED)
    core.next_commit()
    assert only(DisposeDeliveries, core.committed()) == [
        DisposeDeliveries([2], ACCEPTED),
        DisposeDeliveries((1,), ACCEPTED, settled=True),
    ]
    assert core.unfinished == 1


def test_a_settled_delivery_may_say_that_the_receiver_settles_first() -> None:  # AMQP 2.7.5
    core = SubscriberCore(prefetch=3)
    core.begin_attach(10)
    core.attached([], capable=True)
    effects = core.transfer(1, b"a", b"", settled=True, receiver_settles=True)
    assert [delivery.settled for delivery in only(DeliverMessage, effects)] == [True]
    assert core.unfinished == 0


def test_a_pre_settled_delivery_is_delivered_and_never_in_the_map() -> None:
    s = attached(prefetch=1)
    (delivery,) = only(DeliverMessage, s.transfer(b"t", settled=True))
    assert delivery.settled
    assert s.core.unfinished == 0
    assert s.credit == 0
    assert only(DisposeDeliveries, s.process()) == []
    assert s.credit == 1


def test_a_released_delivery_comes_again_here_and_the_network_hears_nothing() -> None:
    s = attached()
    (delivery,) = only(DeliverMessage, s.transfer(b"t"))
    (again,) = s.core.release(delivery.serial)
    assert isinstance(again, DeliverMessage)
    assert (again.again, again.payload) == (1, delivery.payload)
    assert only(DisposeDeliveries, s.process()) == [DisposeDeliveries([1], ACCEPTED)]


def test_completing_a_delivery_twice_is_an_error_of_the_caller() -> None:
    s = attached()
    s.transfer(b"t")
    serial = s.delivered[0].serial
    s.process()
    with pytest.raises(KeyError):
        s.core.complete(serial, ACCEPTED)


def test_credit_is_prefetch_less_what_the_application_holds() -> None:
    s = attached(prefetch=4)
    assert s.credit == 4
    for name in (b"a", b"b", b"c"):
        s.transfer(name)
    assert s.credit == 1
    s.process()
    assert s.credit == 2
    s.process()
    s.process()
    assert s.credit == 4


def test_credit_after_an_attach_is_at_least_prefetch_plus_what_is_to_be_resumed() -> None:
    s = attached(prefetch=4)
    for name in (b"a", b"b", b"c"):
        s.transfer(name)
    s.process()
    s.attach(kept=[b"a", b"b"])
    assert s.credit == 4 + 2


def test_credit_comes_back_on_processing_and_not_on_settlement() -> None:
    """C-3: with credit that comes back on settlement two publishers and two subscribers deadlock (C16)."""
    s = attached(prefetch=1)
    for n in range(50):
        s.transfer(b"%d" % n)
        s.process()
    assert s.core.unfinished == 50  # nothing was settled
    assert s.credit == 1


def test_credit_never_leaks_over_ten_thousand_resumes() -> None:
    rng = random.Random(1)
    s = SubscriberDriver(prefetch=5)
    s.attach()
    resumes = 0
    number = 0
    while resumes < 10_000:
        for _ in range(rng.randrange(4)):
            number += 1
            s.transfer(b"%d" % number)
        while s.delivered and rng.random() < 0.8:
            s.process()
        presented = s.core.begin_attach(10_000)
        assert presented is not None
        kept = [tag for tag in presented.unsettled if rng.random() < 0.7]
        s.attach(kept=kept)
        assert s.credit == 5 + len(kept)
        for tag in kept:
            entry = s.core._map[tag]
            s.transfer(tag, resume=True, settled=entry.recorded and rng.random() < 0.6)
            resumes += 1
    while s.delivered:
        s.process()
    assert s.credit == 5
    assert s.core.unprocessed == 0


def test_credit_never_leaks_over_ten_thousand_repeats_on_one_attach() -> None:
    s = attached(prefetch=8)
    s.transfer(b"t")
    for _ in range(5_000):
        assert s.transfer(b"t") == [] or s.credit > 0  # arrived, not processed
    s.process()
    for _ in range(5_000):
        s.transfer(b"t")
    for n in range(8):
        s.transfer(b"n%d" % n)  # all places are there


def test_few_flows_are_needed() -> None:
    s = attached(prefetch=100)
    flows = 0
    for n in range(1_000):
        flows += len(only(GrantCredit, s.transfer(b"%d" % n)))
        flows += len(only(GrantCredit, s.process()))
    assert flows <= 1_000 / 25


def network_tag(session: bytes, number: int) -> bytes:
    """A tag as subscribers see it: bytes 1 to 10 name the publisher's session."""
    return b"\0" + session * 10 + b"%d" % number


def test_of_a_map_that_does_not_fit_the_oldest_entries_of_each_session_are_presented() -> None:
    s = attached()
    one, other = [network_tag(b"1", n) for n in range(4)], [network_tag(b"2", n) for n in range(2)]
    for tag in (*one, *other):
        s.transfer(tag)
    second = s.delivered.pop(1)
    s.core.complete(second.serial, ACCEPTED)
    s.commit()
    presented = s.core.begin_attach(3)
    assert presented is not None
    assert presented.rest
    assert list(presented.unsettled.items()) == [(one[0], None), (one[1], ACCEPTED), (other[0], None)]
    s._note(s.core.attached([], capable=True, is_whole=False))  # says nothing about what was not presented
    assert s.core.unfinished == 5
    presented = s.core.begin_attach(4)
    assert presented is not None
    assert not presented.rest
    assert list(presented.unsettled) == [*one[2:], other[1]]


def test_a_router_that_takes_the_rest_of_a_map_answers_for_all_of_it() -> None:
    s = attached()
    tags = [network_tag(b"1", n) for n in range(5)]
    for tag in tags:
        s.transfer(tag)
    presented = s.core.begin_attach(2)
    assert presented is not None
    assert [*presented.unsettled, *presented.rest] == tags
    s._note(s.core.attached(tags[1:4], capable=True, is_whole=True))
    assert s.credit == 10 + 3  # prefetched places, and one for each that is resumed
    assert s.core.unfinished == 5  # the first and the last are settled, and processed first
    s.core.lost()
    presented = s.core.begin_attach(100)
    assert presented is not None
    assert list(presented.unsettled) == tags[1:4]


def test_when_there_are_more_sessions_than_places_each_has_its_turn() -> None:
    s = attached()
    tags = [network_tag(b"%d" % session, 0) for session in range(5)]
    for tag in tags:
        s.transfer(tag)
    rounds = [s.core.begin_attach(2) for _ in range(5)]
    assert {tag for presented in rounds if presented is not None for tag in presented.unsettled} == set(tags)


def test_after_a_restart_processed_entries_are_presented_and_others_come_again() -> None:
    s = attached()
    s.transfer(b"a")
    s.transfer(b"b")
    s.process()
    s.restart()
    presented = s.core.begin_attach(100)
    assert presented is not None
    assert presented.unsettled == {b"a": ACCEPTED}
    s.attach()
    assert only(DeliverMessage, s.transfer(b"a", resume=True)) == []
    assert [delivery.tag for delivery in only(DeliverMessage, s.transfer(b"b"))] == [b"b"]


def test_a_new_incarnation_is_announced_and_remembered() -> None:
    s = SubscriberDriver(prefetch=1)
    assert only(ReportIncarnation, s.attach(incarnation=5)) == [ReportIncarnation(0, 5)]
    assert only(ReportIncarnation, s.attach(incarnation=5)) == []
    s.commit()
    s.restart()
    assert only(ReportIncarnation, s.attach(incarnation=9)) == [ReportIncarnation(5, 9)]


def test_confirmation_and_echo() -> None:
    s = attached()
    assert s.core.flow(confirmed=5) == [ReportConfirmed(5)]
    assert s.core.flow(echo=77) == [AnswerEcho(77)]
    s.core.lost()
    assert s.core.flow(confirmed=5, echo=77) == []


def test_with_a_shared_journal_the_owner_is_proved_before_the_echo_is_answered() -> None:
    """P-b."""
    core = SubscriberCore(is_shared=True)
    core.begin_attach(10)
    core.attached([], capable=True)
    assert core.flow(echo=77) == [ProveOwner(77)]


def test_a_router_that_cannot_do_exactly_once_is_refused() -> None:
    core = SubscriberCore()
    core.begin_attach(10)
    assert isinstance(core.attached([], capable=False)[0], RefuseLink)
    core.begin_attach(10)
    assert isinstance(core.attached([], capable=True, settles_first=True)[0], RefuseLink)


def test_with_a_router_that_settles_first_an_accept_is_settled_and_forgotten() -> None:
    core = SubscriberCore(exactly_once=False, prefetch=2)
    assert core.begin_attach(10) is None
    core.attached([], capable=False, settles_first=True)
    (delivery,) = only(DeliverMessage, core.transfer(3, b"t", b""))
    core.complete(delivery.serial, ACCEPTED)
    core.next_commit()
    assert only(DisposeDeliveries, core.committed()) == [DisposeDeliveries([3], ACCEPTED, settled=True)]
    assert core.unfinished == 0


def test_an_ended_subscription_that_had_a_settled_delivery_stored_keeps_nothing_of_it() -> None:
    s = attached()
    for name in (b"t", b"u"):
        s.transfer(name)
    s.core.complete(s.delivered.pop().serial, ACCEPTED)
    s.commit()
    s.settle(b"t")
    s.core.end_subscription()
    s.commit()
    assert s.disk.entries == {b"u": ACCEPTED}
    assert s.core.unfinished == 1


def test_an_ended_subscription_keeps_what_is_done_until_it_is_settled_and_drops_the_rest() -> None:
    s = attached()
    for name in (b"a", b"b", b"c"):
        s.transfer(name)
    s.process()
    s.process()
    s.core.end_subscription()
    s.commit()
    assert s.core.unprocessed == 0
    assert s.disk.entries == {b"a": ACCEPTED, b"b": ACCEPTED}
    assert s.disk.incarnation == 0
    s.restart()
    assert s.core.begin_attach(10) == PresentedMap({b"a": ACCEPTED, b"b": ACCEPTED})
    assert only(DeliverMessage, s.core.attached([b"b"], capable=True, incarnation=9)) == []
    s.core.settled([(0, b"b")])
    s.commit()
    assert s.core.unfinished == 0


def test_an_ended_subscription_that_nobody_can_open_again_keeps_nothing() -> None:
    s = attached()
    s.transfer(b"a")
    s.transfer(b"b")
    s.process()
    s.core.end_subscription(keeps_done=False)
    s.commit()
    assert s.core.unfinished == 0
    assert s.core.unprocessed == 0
    assert s.disk.entries == {}
    assert s.disk.incarnation == 0
