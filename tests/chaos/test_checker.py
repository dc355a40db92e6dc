"""The checker: a clean run passes, every kind of damage to a journal turns the verdict red."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from chaos.checker import PublisherHistory, SubscriberHistory, SubscriberVerdict, Verdict, judge, longest_gap_within
from chaos.clients.events import (
    Accepted,
    Attached,
    Confirmed,
    Event,
    EventJournal,
    Incarnation,
    Opened,
    OutcomeUnknown,
    Processed,
    Received,
    Refused,
    Resumed,
    Sent,
    digest_of,
    read_journal,
)
from chaos.clients.groups import group_of

ROWS = 20
DIGESTS = {name: [digest_of(f"{name} row {seq}".encode()) for seq in range(1, ROWS + 1)] for name in ("p", "q")}


def published(name: str, *, start: float = 10.0) -> list[Event]:
    """A publisher's clean journal: one message every 10 ms, accepted 5 ms later, one resumption on the way."""
    events: list[Event] = [Opened(start, name), Attached(start, "r1")]
    for seq, digest in enumerate(DIGESTS[name], 1):
        events += [Sent(start + seq * 0.01, seq, digest), Accepted(start + seq * 0.01 + 0.005, seq)]
        if seq == ROWS // 2:
            events.append(Resumed(start + seq * 0.01 + 0.006, "r2", 1))
    return events


def processed(*names: str, start: float = 10.0) -> list[Event]:
    """A subscriber's clean journal of the given publishers."""
    events: list[Event] = [Opened(9.0, "s"), Attached(9.0, "r1"), Incarnation(9.0, 7), Confirmed(9.5)]
    for seq in range(1, ROWS + 1):
        for name in names:
            t = start + seq * 0.01 + 0.002
            digest = DIGESTS[name][seq - 1]
            events += [Received(t, name, seq, digest), Processed(t + 0.001, name, seq, digest)]
    return events


def verdict_of(publishers: dict[str, Sequence[Event]], subscribers: dict[str, Sequence[Event]]) -> Verdict:
    return judge(
        [PublisherHistory(name, DIGESTS[name], events) for name, events in publishers.items()],
        [SubscriberHistory(name, frozenset(publishers), events) for name, events in subscribers.items()],
    )


def clean() -> tuple[dict[str, Sequence[Event]], dict[str, Sequence[Event]]]:
    return {"p": published("p"), "q": published("q")}, {"s": processed("p", "q"), "t": processed("p", "q")}


def test_a_clean_run_passes_with_exact_counts() -> None:
    verdict = verdict_of(*clean())
    assert verdict.passed
    assert verdict.findings() == []
    assert [(p.published, p.accepted, p.resumed) for p in verdict.publishers] == [(ROWS, ROWS, 1)] * 2
    assert [(s.received, s.processed, s.incarnations) for s in verdict.subscribers] == [(2 * ROWS, 2 * ROWS, 1)] * 2
    for count in ("lost", "duplicated", "reordered", "unexpected", "stuck", "excused", "redelivered"):
        assert verdict.total(count) == 0


# Negative controls: what is done to one journal, and the counts it must turn red.
def drop_processed(events: list[Event]) -> list[Event]:
    return [event for event in events if not (isinstance(event, Received | Processed) and event.seq == 5)]


def drop_last_processed(events: list[Event]) -> list[Event]:
    return [event for event in events if not (isinstance(event, Received | Processed) and event.seq == ROWS)]


def double_processed(events: list[Event]) -> list[Event]:
    at = next(i for i, event in enumerate(events) if isinstance(event, Processed) and event.seq == 5)
    return [*events[: at + 1], replace(events[at], t=events[at].t + 0.001), *events[at + 1 :]]


def double_processed_late(events: list[Event]) -> list[Event]:
    event = next(event for event in events if isinstance(event, Processed) and event.seq == 5)
    return [*events, replace(event, t=11.0)]


def swap_processed(events: list[Event]) -> list[Event]:
    at = [i for i, event in enumerate(events) if isinstance(event, Processed) and event.publisher == "p"]
    swapped = list(events)
    swapped[at[4]], swapped[at[5]] = events[at[5]], events[at[4]]
    return swapped


def alter_processed(events: list[Event]) -> list[Event]:
    other = digest_of(b"not what was sent")
    return [
        replace(event, digest=other) if isinstance(event, Received | Processed) and event.seq == 5 else event
        for event in events
    ]


def exchange_contents(events: list[Event]) -> list[Event]:
    """Two messages carry each other's bodies."""
    place = {5: 6, 6: 5}
    return [
        replace(event, digest=DIGESTS[event.publisher][place.get(event.seq, event.seq) - 1])
        if isinstance(event, Received | Processed)
        else event
        for event in events
    ]


def never_process(events: list[Event]) -> list[Event]:
    return [event for event in events if not (isinstance(event, Processed) and event.seq == 5)]


def invent(events: list[Event]) -> list[Event]:
    return [*events, Received(11.0, "p", ROWS + 1, "00"), Processed(11.0, "p", ROWS + 1, "00")]


def invent_publisher(events: list[Event]) -> list[Event]:
    return [*events, Received(11.0, "nobody", 1, DIGESTS["p"][0])]


@pytest.mark.parametrize(
    ("damage", "red"),
    [
        (drop_processed, {"lost": 2}),
        (drop_last_processed, {"lost": 2}),
        (double_processed, {"duplicated": 1}),
        (double_processed_late, {"duplicated": 1}),
        (swap_processed, {"reordered": 1}),
        (alter_processed, {"unexpected": 2, "lost": 2}),
        (exchange_contents, {"unexpected": 4, "lost": 4}),
        (never_process, {"lost": 2}),
        (invent, {"unexpected": 1}),
        (invent_publisher, {"unexpected": 1}),
    ],
)
def test_damage_to_a_subscribers_journal_turns_the_verdict_red(
    damage: Callable[[list[Event]], list[Event]], red: dict[str, int]
) -> None:
    publishers, subscribers = clean()
    verdict = verdict_of(publishers, {**subscribers, "t": damage(list(subscribers["t"]))})
    assert not verdict.passed
    counts = ("lost", "duplicated", "reordered", "unexpected", "stuck")
    assert {count: verdict.total(count) for count in counts if verdict.total(count)} == red
    assert all("subscriber t" in line for line in verdict.findings())
    assert verdict.subscribers[0].passed


@pytest.mark.parametrize(
    ("without", "red"),
    [
        (lambda event: isinstance(event, Accepted) and event.seq == 5, {"stuck": 1}),
        (lambda event: isinstance(event, Sent | Accepted) and event.seq == 5, {"stuck": 1, "unexpected": 2}),
        (lambda event: isinstance(event, Sent) and event.seq == 5, {"unexpected": 3}),
    ],
)
def test_damage_to_a_publishers_journal_turns_the_verdict_red(
    without: Callable[[Event], bool], red: dict[str, int]
) -> None:
    publishers, subscribers = clean()
    verdict = verdict_of({**publishers, "p": [e for e in publishers["p"] if not without(e)]}, subscribers)
    assert not verdict.passed
    counts = ("lost", "duplicated", "reordered", "unexpected", "stuck")
    assert {count: verdict.total(count) for count in counts if verdict.total(count)} == red


@pytest.mark.parametrize(
    ("reported", "count"), [(Refused(10.1, 5, "rejected"), "refused"), (OutcomeUnknown(10.1, 5), "unknown")]
)
def test_an_outcome_other_than_accepted_is_counted_and_fails_the_publisher(reported: Event, count: str) -> None:
    publishers, subscribers = clean()
    events = [reported if isinstance(event, Accepted) and event.seq == 5 else event for event in publishers["p"]]
    verdict = verdict_of({**publishers, "p": events}, subscribers)
    assert getattr(verdict.publishers[0], count) == 1
    assert verdict.total("stuck") == 0
    assert not verdict.passed


def test_a_damaged_line_in_a_file_turns_the_verdict_red(tmp_path: Path) -> None:
    publishers, subscribers = clean()
    path = tmp_path / "t.jsonl"
    with EventJournal(path) as journal:
        journal.write(*subscribers["t"])
    lines = path.read_text().splitlines(keepends=True)
    at = next(i for i, line in enumerate(lines) if '"processed"' in line)
    for damaged, red in ((lines[:at] + lines[at + 1 :], "lost"), (lines[: at + 1] + lines[at:], "duplicated")):
        path.write_text("".join(damaged))
        verdict = verdict_of(publishers, {**subscribers, "t": read_journal(path)})
        assert verdict.total(red) == 1
        assert not verdict.passed


def test_nothing_sent_before_the_confirmation_is_owed_until_the_first_message_was_processed() -> None:
    late = [event for event in processed("p") if not isinstance(event, Received | Processed) or event.seq >= 8]
    late = [replace(event, t=10.085) if isinstance(event, Confirmed) else event for event in late]
    assert verdict_of({"p": published("p")}, {"s": late}).passed
    # From its first message on a stream has no holes (G4), confirmed or not.
    holed = [event for event in late if not (isinstance(event, Received | Processed) and event.seq == 9)]
    verdict = verdict_of({"p": published("p")}, {"s": [e for e in holed if not isinstance(e, Confirmed)]})
    assert verdict.subscribers[0].lost == 1
    assert verdict.subscribers[0].examples["lost"] == ["p/9"]


def test_what_an_expired_incarnation_was_owed_is_excused_but_its_holes_are_not() -> None:
    events = processed("p")
    at = next(i for i, event in enumerate(events) if isinstance(event, Received) and event.seq == 10)
    after = next(i for i, event in enumerate(events) if isinstance(event, Received) and event.seq == 15)
    reborn: list[Event] = [Incarnation(10.145, 8), Confirmed(10.145)]
    expired = events[:at] + reborn + events[after:]
    verdict = verdict_of({"p": published("p")}, {"s": expired})
    assert (verdict.subscribers[0].lost, verdict.subscribers[0].excused) == (0, 5)
    assert verdict.subscribers[0].incarnations == 2
    holed = [event for event in expired if not (isinstance(event, Received | Processed) and event.seq == 3)]
    verdict = verdict_of({"p": published("p")}, {"s": holed})
    assert (verdict.subscribers[0].lost, verdict.subscribers[0].excused) == (1, 5)


def test_what_a_process_died_with_and_came_anew_belongs_to_the_incarnation_it_came_in_last() -> None:
    events = processed("p")
    at = next(i for i, event in enumerate(events) if isinstance(event, Received) and event.seq == 10)
    after = next(i for i, event in enumerate(events) if isinstance(event, Received) and event.seq == 15)
    died_with = [event for event in events[at:] if isinstance(event, Received) and event.seq in range(10, 16)]
    reborn: list[Event] = [Incarnation(10.145, 8), Confirmed(10.145)]
    verdict = verdict_of({"p": published("p")}, {"s": events[:at] + died_with + reborn + events[after:]})
    assert (verdict.subscribers[0].lost, verdict.subscribers[0].excused) == (0, 5)


def test_a_restart_within_one_incarnation_changes_nothing() -> None:
    events = processed("p")
    middle = len(events) // 2
    again: list[Event] = [Opened(10.1, "s"), Resumed(10.1, "r2", 3), Incarnation(10.1, 7), Confirmed(10.1)]
    verdict = verdict_of({"p": published("p")}, {"s": events[:middle] + again + events[middle:]})
    assert verdict.passed
    assert (verdict.subscribers[0].incarnations, verdict.subscribers[0].resumed) == (1, 1)


def test_a_message_sent_again_by_a_second_incarnation_of_the_publisher_counts_once() -> None:
    events = published("p")
    at = next(i for i, event in enumerate(events) if isinstance(event, Sent) and event.seq == 5)
    events[at + 1 : at + 1] = [Opened(10.051, "p"), replace(events[at], t=10.052)]
    verdict = verdict_of({"p": events}, {"s": processed("p")})
    assert verdict.passed
    assert verdict.publishers[0].published == ROWS


def test_the_longest_gap_is_measured_while_messages_are_outstanding() -> None:
    pause = [
        replace(e, t=e.t + 2.0) if isinstance(e, Received | Processed) and e.seq >= 6 else e for e in processed("p")
    ]
    verdict = verdict_of({"p": published("p")}, {"s": pause})
    gap = verdict.subscribers[0].longest_gap
    assert gap is not None
    # From the moment message 6 was sent: before that everything that was sent had arrived.
    assert (gap.start, gap.end) == pytest.approx((10.06, 12.062))
    assert longest_gap_within(verdict.gaps, 11.0, 11.5) == gap  # its middle is at 11.06
    assert longest_gap_within(verdict.gaps, 13.0, 14.0) is None


def test_a_pause_with_nothing_outstanding_is_no_gap() -> None:
    sent = [replace(e, t=e.t + 5.0) if isinstance(e, Sent | Accepted) and e.seq >= 6 else e for e in published("p")]
    seen = [
        replace(e, t=e.t + 5.0) if isinstance(e, Received | Processed) and e.seq >= 6 else e for e in processed("p")
    ]
    verdict = verdict_of({"p": sent}, {"s": seen})
    gap = verdict.subscribers[0].longest_gap
    assert gap is not None
    assert gap.seconds < 0.05


def test_a_subscription_that_goes_silent_has_a_gap_until_the_end() -> None:
    silent = [e for e in processed("p") if not isinstance(e, Received | Processed) or e.seq < 6]
    closed = replace(published("p")[-1], t=30.0)
    verdict = verdict_of({"p": [*published("p")[:-1], closed]}, {"s": silent})
    gap = verdict.subscribers[0].longest_gap
    assert gap is not None
    assert (gap.start, gap.end) == pytest.approx((10.06, 30.0))


def test_an_empty_experiment_does_not_pass_for_a_publisher_with_a_share() -> None:
    verdict = verdict_of({"p": []}, {"s": []})
    assert verdict.publishers[0].stuck == ROWS
    assert not verdict.passed


def test_a_large_run_is_judged_in_linear_time() -> None:
    count = 50_000
    digests = [f"{seq:x}" for seq in range(count)]
    sent: list[Event] = []
    seen: list[Event] = [Incarnation(0.0, 1), Confirmed(0.0)]
    for seq, digest in enumerate(digests, 1):
        sent += [Sent(float(seq), seq, digest), Accepted(seq + 0.5, seq)]
        seen += [Received(seq + 0.2, "p", seq, digest), Processed(seq + 0.3, "p", seq, digest)]
    verdict = judge([PublisherHistory("p", digests, sent)], [SubscriberHistory("s", frozenset("p"), seen)])
    assert verdict.passed


# --- shared subscriptions ---------------------------------------------------------------------------------------------


def shared_verdict(*members: Sequence[Event], left_with: Iterable[int] = ()) -> SubscriberVerdict:
    """The verdict on members of one subscription, whose journals are merged by their times."""
    events = sorted((event for member in members for event in member), key=lambda event: event.t)
    left = frozenset(("p", seq) for seq in left_with)
    history = SubscriberHistory("work", frozenset({"p"}), events, is_shared=True, left_with=left)
    return judge([PublisherHistory("p", DIGESTS["p"], published("p"))], [history]).subscribers[0]


def halves() -> tuple[list[Event], list[Event]]:
    """Two members' journals, of which each has every second message."""
    first, second = (
        [event for event in processed("p") if not isinstance(event, (Received, Processed)) or event.seq % 2 == part]
        for part in (0, 1)
    )
    return first, second


def test_members_of_a_shared_subscription_together_process_each_message_once_in_any_order() -> None:
    first, second = halves()
    late = [replace(event, t=event.t + 5) if isinstance(event, (Received, Processed)) else event for event in second]
    verdict = shared_verdict(first, [Incarnation(9.1, 8), *late])
    assert verdict.passed
    assert (verdict.processed, verdict.incarnations) == (ROWS, 1)
    assert not verdict_of({"p": published("p")}, {"s": sorted(first + late, key=lambda event: event.t)}).passed


def test_what_no_member_processed_is_lost_and_what_two_did_is_duplicated() -> None:
    first, second = halves()
    without = [event for event in second if not isinstance(event, (Received, Processed)) or event.seq != 5]
    assert shared_verdict(first, without).lost == 1
    digest = DIGESTS["p"][3]
    again: list[Event] = [Received(20.0, "p", 4, digest, redelivered=True), Processed(20.1, "p", 4, digest)]
    verdict = shared_verdict(first, second + again)
    assert (verdict.duplicated, verdict.repeated, verdict.passed) == (1, 0, False)


@pytest.mark.parametrize("redelivered", [True, False])
def test_where_members_leave_a_repeat_is_no_duplicate_if_its_last_arrival_says_so(redelivered: bool) -> None:
    first, second = halves()
    digest = DIGESTS["p"][3]
    again = [Received(20.0, "p", 4, digest, redelivered=True), Received(20.1, "p", 4, digest, redelivered)]
    verdict = shared_verdict(first, [*second, *again, Processed(20.2, "p", 4, digest)], left_with=[4])
    assert (verdict.repeated, verdict.duplicated, verdict.passed) == (redelivered, not redelivered, redelivered)


def test_a_repeat_is_a_duplicate_if_no_member_that_left_had_processed_it_or_if_it_comes_a_third_time() -> None:
    first, second = halves()
    digest = DIGESTS["p"][3]
    again: list[Event] = [Received(20.0, "p", 4, digest, redelivered=True), Processed(20.1, "p", 4, digest)]
    assert shared_verdict(first, second + again, left_with=[6]).duplicated == 1
    verdict = shared_verdict(first, [*second, *again, Processed(20.2, "p", 4, digest)], left_with=[4])
    assert (verdict.repeated, verdict.duplicated) == (1, 1)


def test_members_process_each_group_in_order_and_groups_in_any() -> None:
    def in_order(*order: int) -> SubscriberVerdict:
        seen: list[Event] = []
        for at, seq in enumerate(order):
            digest = DIGESTS["p"][seq - 1]
            seen += [Received(10.0 + at, "p", seq, digest), Processed(10.5 + at, "p", seq, digest)]
        history = SubscriberHistory("work", frozenset({"p"}), [Confirmed(0.0), *seen], is_shared=True, groups=2)
        return judge([PublisherHistory("p", DIGESTS["p"], published("p"))], [history]).subscribers[0]

    by_group: dict[int | None, list[int]] = {}
    for seq in range(1, ROWS + 1):
        by_group.setdefault(group_of(seq, 2), []).append(seq)
    none, first, second = by_group[None], by_group[0], by_group[1]
    assert in_order(*second, *reversed(none), *first).reordered == 0
    verdict = in_order(*second, *reversed(none), *reversed(first))
    assert (verdict.reordered, verdict.passed) == (len(first) - 1, False)
