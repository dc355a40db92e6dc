"""Rule S-a when deliveries are finished in any order: no done entry without the earlier ones of its session."""

from __future__ import annotations

from oncewire.client.core_effects import DeliverMessage, DisposeDeliveries, ReportGivenUp
from oncewire.client.journal_records import SubscriberState
from oncewire.client.outcomes import ACCEPTED, rejected
from oncewire.client.subscriber_core import SubscriberCore
from tests.client.core_driver import SubscriberDriver, only


def named(session: int, number: int) -> bytes:
    """A network tag as routers make it."""
    return b"\0nets" + session.to_bytes(6, "big") + number.to_bytes(8, "big")


M = [named(7, number) for number in range(6)]


def arrived(*tags: bytes, prefetch: int = 10) -> SubscriberDriver:
    s = SubscriberDriver(prefetch=prefetch)
    s.attach()
    for tag in tags:
        s.transfer(tag)
    return s


def finish(s: SubscriberDriver, *tags: bytes) -> None:
    """The application finishes these, in this order; one commit."""
    for tag in tags:
        delivery = next(delivery for delivery in s.delivered if delivery.tag == tag)
        s.delivered.remove(delivery)
        s.core.complete(delivery.serial, ACCEPTED)
    s.commit()


def test_a_done_entry_is_stored_with_the_earlier_unfinished_ones_of_its_session() -> None:
    s = arrived(*M[:4])
    finish(s, M[2])
    assert list(s.disk.entries.items()) == [(M[0], None), (M[1], None), (M[2], ACCEPTED)]


def test_later_entries_and_other_sessions_are_not_stored() -> None:
    other = named(8, 0)
    s = arrived(M[0], other, M[1], M[2])
    finish(s, M[1])
    assert list(s.disk.entries) == [M[0], M[1]]


def test_entries_finished_in_order_are_stored_alone() -> None:
    s = arrived(*M)
    for tag in M[:3]:
        finish(s, tag)
    assert list(s.disk.entries) == M[:3]


def test_a_stored_entry_gets_its_outcome_and_keeps_its_place() -> None:
    s = arrived(*M[:3])
    finish(s, M[2])
    s.core.complete(s.delivered.pop(0).serial, rejected("x"))
    s.commit()
    assert list(s.disk.entries.items()) == [(M[0], rejected("x")), (M[1], None), (M[2], ACCEPTED)]


def test_entries_of_one_commit_are_stored_in_order_of_arrival() -> None:
    s = arrived(*M[:4])
    finish(s, M[3], M[1])
    assert list(s.disk.entries) == M[:4]


def test_after_a_restart_an_unfinished_entry_is_presented_without_outcome_and_delivered_once() -> None:
    s = arrived(*M[:3])
    finish(s, M[1])
    s.restart()
    presented = s.core.begin_attach(100)
    assert presented is not None
    assert list(presented.unsettled.items()) == [(M[0], None), (M[1], ACCEPTED)]
    s.attach()
    assert [d.payload for d in only(DeliverMessage, s.transfer(M[0], resume=True))] == [b"body of " + M[0]]
    assert only(DeliverMessage, s.transfer(M[0])) == []  # its ingress repeats it
    assert [d.tag for d in only(DeliverMessage, s.transfer(M[2]))] == [M[2]]
    assert only(DisposeDeliveries, s.process()) == [DisposeDeliveries([s.next_id - 1], ACCEPTED)]
    assert s.disk.entries[M[0]] == ACCEPTED


def test_a_body_that_comes_as_a_new_transfer_is_taken_too() -> None:
    s = arrived(*M[:2])
    finish(s, M[1])
    s.restart()
    s.attach()
    assert [d.tag for d in only(DeliverMessage, s.transfer(M[0]))] == [M[0]]


def test_an_entry_stays_presented_until_its_body_came_over_any_number_of_restarts() -> None:
    s = arrived(*M[:2])
    finish(s, M[1])
    for _ in range(3):
        s.restart()
        s.attach()
        presented = s.core.begin_attach(100)
        assert presented is not None
        assert presented.unsettled == {M[0]: None, M[1]: ACCEPTED}
    s.attach()
    s.transfer(M[0], resume=True)
    s.restart()  # killed again with the body in memory
    s.attach()
    assert [d.tag for d in only(DeliverMessage, s.transfer(M[0], resume=True))] == [M[0]]


def test_an_entry_without_its_body_counts_as_presented_and_not_as_prefetched() -> None:
    s = arrived(*M[:3], prefetch=4)
    finish(s, M[2])
    s.restart()
    s.attach()
    assert s.credit == 4 + 3
    s.transfer(M[0], resume=True)
    s.transfer(M[1], resume=True)
    s.transfer(M[2], resume=True)
    assert s.core.unprocessed == 2
    s.process()
    s.process()
    assert s.credit == 4


def test_an_entry_without_its_body_that_is_settled_is_forgotten_and_reported() -> None:
    s = arrived(*M[:5])
    finish(s, M[4])
    s.restart()
    assert only(ReportGivenUp, s.attach(kept=M[1:])) == [ReportGivenUp(M[0])]  # left out of the reply
    assert only(ReportGivenUp, s.transfer(M[1], resume=True, settled=True)) == [ReportGivenUp(M[1])]
    assert s.core.settled([(0, M[2])]) == [ReportGivenUp(M[2])]
    assert s.delivered == []
    s.transfer(M[3], resume=True)
    assert s.process() != []
    assert s.core.settled([(0, M[3]), (0, M[4])]) == []
    assert s.core.unfinished == 0
    s.transfer(named(9, 0))
    s.process()
    assert list(s.disk.entries) == [named(9, 0)]


def test_an_entry_settled_before_it_is_processed_goes_with_the_effect_of_processing_it() -> None:
    s = arrived(*M[:2])
    finish(s, M[1])
    s.settle(M[0])
    assert s.core.unprocessed == 1
    finish(s, M[0])
    assert list(s.disk.entries) == [M[1]]


def test_a_settled_entry_is_not_stored_for_a_later_one() -> None:
    s = arrived(*M[:2])
    s.settle(M[0])
    finish(s, M[1])
    assert list(s.disk.entries) == [M[1]]


def test_a_link_that_presents_no_map_stores_no_unfinished_entries_and_gives_none_up() -> None:
    core = SubscriberCore(exactly_once=False, recovered=SubscriberState(5, ((M[0], None), (M[1], ACCEPTED))))
    assert core.begin_attach(10) is None
    assert only(ReportGivenUp, core.attached([], capable=True)) == []
    assert core.unfinished == 0
    for number in (2, 3):
        core.transfer(number, M[number], b"")
    core.complete(core._map[M[3]].serial, ACCEPTED)
    assert core.next_commit().entries == ((M[3], ACCEPTED),)


def test_an_ended_subscription_keeps_no_unfinished_entries() -> None:
    s = arrived(*M[:2])
    finish(s, M[1])
    s.restart()
    s.core.end_subscription()
    s.commit()
    assert s.disk.entries == {M[1]: ACCEPTED}
    assert s.core.unfinished == 1
