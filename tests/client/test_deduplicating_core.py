"""Rule D-3, claim by claim, on the real core: which copies are held back, and when one is handed over."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from oncewire.client.core_effects import DeliverMessage, DisposeDeliveries, SubscriberEffect
from oncewire.client.deduplicating_core import IDS_PER_USER, REJECTED, USERS, DeduplicatingCore
from oncewire.client.journal import MemoryJournal
from oncewire.client.journal_records import MessageIdentity, SubscriberState
from oncewire.client.outcomes import ACCEPTED, Outcome, OutcomeKind, rejected
from tests.client.core_driver import only

RELEASED = Outcome(OutcomeKind.RELEASED)


def identify(payload: bytes, message_format: int) -> MessageIdentity | None:
    """`user:id`; anything else has no identity."""
    user, colon, digest = payload.partition(b":")
    return MessageIdentity(user.decode(), digest) if colon and not message_format else None


class Process:
    """A subscriber's process: one core and the journal that outlives it."""

    def __init__(
        self, journal: MemoryJournal | None = None, *, ids_per_user: int = IDS_PER_USER, exactly_once: bool = True
    ) -> None:
        self.journal = journal or MemoryJournal()
        self.core = DeduplicatingCore(
            identify, ids_per_user=ids_per_user, exactly_once=exactly_once, recovered=self.state()
        )
        self.next_id = 0
        self.tags: dict[int, bytes] = {}
        self.attach()

    def state(self) -> SubscriberState:
        return self.journal.open_subscriber("s")

    def attach(self) -> None:
        self.next_id = 0
        presented = self.core.begin_attach(1000)
        kept = () if presented is None else presented.unsettled
        self.core.attached(kept, capable=True, incarnation=5)

    def arrive(
        self, tag: bytes, payload: bytes, *, settled: bool = False, message_format: int = 0
    ) -> list[DeliverMessage]:
        """What the application is handed."""
        self.tags[self.next_id] = tag
        self.next_id += 1
        effects = self.core.transfer(self.next_id - 1, tag, payload, settled=settled, message_format=message_format)
        return only(DeliverMessage, effects)

    def commit(self) -> list[tuple[bytes, Outcome]]:
        """What is stated to the router."""
        stated: list[SubscriberEffect] = []
        while self.core.wants_commit:
            self.journal.write_subscriber("s", self.core.next_commit())
            stated += self.core.committed()
        return self.stated(stated)

    def stated(self, effects: Sequence[SubscriberEffect]) -> list[tuple[bytes, Outcome]]:
        disposed = only(DisposeDeliveries, effects)
        return [(self.tags[each], effect.outcome) for effect in disposed for each in effect.delivery_ids]

    def do(self, tag: bytes, payload: bytes, outcome: Outcome = ACCEPTED) -> list[tuple[bytes, Outcome]]:
        """A delivery that is handed over and processed."""
        (handed,) = self.arrive(tag, payload)
        self.core.complete(handed.serial, outcome)
        return self.commit()

    def restart(self) -> Process:
        return Process(self.journal)


def test_a_copy_of_what_is_done_is_accepted_and_not_handed_over() -> None:
    s = Process()
    assert s.do(b"1", b"ann:7") == [(b"1", ACCEPTED)]
    assert not s.arrive(b"2", b"ann:7")
    assert s.core.copies == 1
    assert s.commit() == [(b"2", ACCEPTED)]


def test_a_copy_after_a_restart_is_known_by_the_journal() -> None:
    s = Process()
    s.do(b"1", b"ann:7")
    again = s.restart()
    assert not again.arrive(b"2", b"ann:7")
    assert again.commit() == [(b"2", ACCEPTED)]


def test_ids_are_written_in_the_commit_that_records_done() -> None:
    s = Process()
    (handed,) = s.arrive(b"1", b"ann:7")
    s.core.complete(handed.serial, ACCEPTED)
    changes = s.core.next_commit()
    assert changes.entries == ((b"1", ACCEPTED),)
    assert [done.identity for done in changes.done_ids] == [MessageIdentity("ann", b"7")]


def test_a_copy_of_a_rejected_message_is_rejected() -> None:
    s = Process()
    s.do(b"1", b"ann:7", rejected("app:why", "long story"))
    assert not s.restart().arrive(b"2", b"ann:7")
    assert not s.arrive(b"2", b"ann:7")
    assert s.commit() == [(b"2", REJECTED)]


def test_the_same_id_of_another_user_is_another_message() -> None:
    s = Process()
    s.do(b"1", b"ann:7")
    assert s.do(b"2", b"bob:7") == [(b"2", ACCEPTED)]
    assert s.core.copies == 0


def test_messages_without_an_identity_are_all_handed_over() -> None:
    s = Process()
    s.do(b"1", b"plain")
    s.do(b"2", b"plain")
    s.do(b"3", b"ann:7")
    assert s.arrive(b"4", b"ann:7", message_format=9)


@pytest.mark.parametrize("outcome", [ACCEPTED, rejected("app:why", "not usable")])
def test_a_copy_waits_for_what_the_application_has_and_shares_its_outcome(outcome: Outcome) -> None:
    s = Process()
    (first,) = s.arrive(b"1", b"ann:7")
    assert not s.arrive(b"2", b"ann:7")
    assert not s.arrive(b"3", b"ann:7")
    assert s.commit() == []
    s.core.complete(first.serial, outcome)
    assert sorted(s.commit()) == [(b"1", outcome), (b"2", outcome), (b"3", outcome)]


def test_a_process_that_fails_with_the_first_one_is_handed_the_copy() -> None:
    s = Process()
    s.arrive(b"1", b"ann:7")
    assert not s.arrive(b"2", b"ann:7")
    again = s.restart()
    assert again.do(b"2", b"ann:7") == [(b"2", ACCEPTED)]


def test_a_delivery_settled_because_its_session_ended_suppresses_nothing_before_it_is_done() -> None:
    s = Process()
    s.arrive(b"1", b"ann:7")
    s.core.settled([(0, b"1")])
    assert not s.arrive(b"2", b"ann:7"), "the application has it"
    again = s.restart()
    assert again.do(b"2", b"ann:7") == [(b"2", ACCEPTED)]


def test_a_delivery_settled_early_and_processed_then_ends_the_wait_of_its_copy() -> None:
    s = Process()
    (first,) = s.arrive(b"1", b"ann:7")
    s.core.settled([(0, b"1")])
    s.arrive(b"2", b"ann:7")
    s.core.complete(first.serial, ACCEPTED)
    assert s.commit() == [(b"2", ACCEPTED)]
    assert s.state().entries == ((b"2", ACCEPTED),)


def test_what_the_application_releases_it_gets_again_and_its_copy_waits_on() -> None:
    s = Process()
    (first,) = s.arrive(b"1", b"ann:7")
    s.arrive(b"2", b"ann:7")
    (again,) = only(DeliverMessage, s.core.release(first.serial))
    assert again.payload == b"ann:7"
    assert s.commit() == []
    s.core.complete(again.serial, ACCEPTED)
    assert sorted(s.commit()) == [(b"1", ACCEPTED), (b"2", ACCEPTED)]


def test_an_outcome_that_asks_for_the_message_again_is_not_done() -> None:
    s = Process()
    (first,) = s.arrive(b"1", b"ann:7")
    s.arrive(b"2", b"ann:7")
    s.core.complete(first.serial, RELEASED)
    assert sorted(s.commit(), key=str) == [(b"1", RELEASED), (b"2", RELEASED)]
    assert s.arrive(b"3", b"ann:7")


def test_a_waiting_copy_settled_meanwhile_is_forgotten_with_the_first_one() -> None:
    s = Process()
    (first,) = s.arrive(b"1", b"ann:7")
    s.arrive(b"2", b"ann:7")
    s.core.settled([(1, b"2")])
    s.core.complete(first.serial, ACCEPTED)
    assert s.commit() == [(b"1", ACCEPTED)]
    s.core.settled([(0, b"1")])
    assert s.core.unfinished == 0


def test_a_waiting_copy_is_stored_before_what_came_behind_it_in_its_session() -> None:
    """S-a: E-2 would take it for what precedes the subscription."""
    session = b"0" * 11
    s = Process()
    (first,) = s.arrive(b"1", b"ann:7")
    s.arrive(session + b"a", b"ann:7")
    (behind,) = s.arrive(session + b"b", b"ann:8")
    s.core.complete(behind.serial, ACCEPTED)
    s.commit()
    assert s.state().entries == ((session + b"a", None), (session + b"b", ACCEPTED))
    s.core.complete(first.serial, ACCEPTED)
    s.commit()
    assert dict(s.state().entries)[session + b"a"] == ACCEPTED


def test_a_body_that_comes_again_is_a_copy_if_its_message_was_done_meanwhile() -> None:
    session = b"0" * 11
    s = Process()
    s.arrive(b"1", b"ann:7")
    s.arrive(session + b"a", b"ann:7")
    (behind,) = s.arrive(session + b"b", b"ann:8")
    s.core.complete(behind.serial, ACCEPTED)
    s.commit()
    again = s.restart()
    again.do(b"1", b"ann:7")
    assert not again.arrive(session + b"a", b"ann:7")
    assert again.commit() == [(session + b"a", ACCEPTED)]


def test_a_settled_copy_is_dropped_and_answered_to_nobody() -> None:
    s = Process()
    s.do(b"1", b"ann:7")
    assert not s.arrive(b"", b"ann:7", settled=True)
    assert s.commit() == []
    assert s.core.unprocessed == 0


def test_a_copy_that_is_sent_on_another_link_after_null_was_presented_is_known() -> None:
    s = Process(exactly_once=False)
    s.do(b"1", b"ann:7")
    s.core.lost()
    s.attach()
    assert not s.arrive(b"1", b"ann:7")
    assert s.commit() == [(b"1", ACCEPTED)]


def test_a_waiting_copy_takes_a_place_and_gives_it_back() -> None:
    core = DeduplicatingCore(identify, prefetch=2)
    core.begin_attach(10)
    core.attached((), capable=True, incarnation=5)
    (first,) = only(DeliverMessage, core.transfer(0, b"1", b"ann:7"))
    assert [type(effect) for effect in core.transfer(1, b"2", b"ann:7")] == []
    core.complete(first.serial, ACCEPTED)
    core.next_commit()
    assert any(getattr(effect, "credit", 0) == 2 for effect in core.committed())


def test_the_oldest_id_of_a_user_is_forgotten_past_the_bound_here_and_in_the_journal() -> None:
    s = Process(ids_per_user=2)
    for number in range(3):
        s.do(b"%d" % number, b"ann:%d" % number)
    s.do(b"x", b"bob:0")
    assert [done.identity.digest for done in s.state().done_ids] == [b"1", b"2", b"0"]
    assert not s.arrive(b"c1", b"ann:1")
    assert not s.arrive(b"c2", b"ann:2")
    assert s.do(b"c0", b"ann:0") == [(b"c1", ACCEPTED), (b"c2", ACCEPTED), (b"c0", ACCEPTED)]
    assert [done.identity.digest for done in s.state().done_ids] == [b"2", b"0", b"0"]


def test_an_id_forgotten_and_kept_again_by_one_commit_stays() -> None:
    s = Process(ids_per_user=1)
    s.do(b"1", b"ann:7")
    for tag, payload in ((b"2", b"ann:8"), (b"3", b"ann:7")):
        (handed,) = s.arrive(tag, payload)
        s.core.complete(handed.serial, ACCEPTED)
    s.commit()
    assert [done.identity.digest for done in s.state().done_ids] == [b"7"]


def test_of_too_many_users_the_one_that_was_silent_for_longest_is_forgotten() -> None:
    s = Process()
    for number in range(USERS):
        s.do(b"%d" % number, b"%d:7" % number)
    s.do(b"again", b"0:8")
    s.do(b"more", b"more:7")
    users = {done.identity.user for done in s.restart().state().done_ids}
    assert len(users) == USERS
    assert "1" not in users
    assert {"0", "2", "more"} <= users


def test_users_are_forgotten_in_the_same_order_after_a_restart() -> None:
    s = Process()
    for number in range(USERS):
        s.do(b"%d" % number, b"%d:7" % number)
    s.do(b"again", b"0:8")
    again = s.restart()
    again.do(b"more", b"more:7")
    users = {done.identity.user for done in again.state().done_ids}
    assert "1" not in users
    assert "0" in users


def test_a_named_subscription_that_ended_keeps_its_ids_and_one_without_a_name_leaves_none() -> None:
    s = Process()
    s.do(b"1", b"ann:7")
    s.core.end_subscription(keeps_done=True)
    s.commit()
    assert not s.restart().arrive(b"2", b"ann:7")
    s = Process()
    s.do(b"1", b"ann:7")
    s.core.end_subscription(keeps_done=False)
    s.commit()
    assert s.state() == SubscriberState()
