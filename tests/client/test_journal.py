"""The durable journal: what is committed survives SIGKILL, effect and acceptance together; faults have clear errors."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncewire.client.errors import JournalCorrupt, JournalFull, JournalLocked, JournalOwnerError, JournalUnusable
from oncewire.client.journal import MemoryJournal
from oncewire.client.journal_records import (
    DoneId,
    MessageIdentity,
    PublisherChanges,
    PublisherState,
    StoredMessage,
    SubscriberChanges,
    SubscriberState,
)
from oncewire.client.outcomes import ACCEPTED, Outcome, OutcomeKind, Subscriptions, rejected
from oncewire.client.sqlite_journal import SqliteJournal

CHILD = Path(__file__).with_name("journal_child.py")


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[SqliteJournal]:
    opened = SqliteJournal(tmp_path / "journal.db")
    yield opened
    opened.close()


def write_publisher(journal: SqliteJournal, changes: PublisherChanges) -> None:
    journal.begin()
    journal.write_publisher("p", changes)
    journal.commit()


def write_subscriber(journal: SqliteJournal, changes: SubscriberChanges) -> None:
    journal.begin()
    journal.write_subscriber("s", changes)
    journal.commit()


def reopen(journal: SqliteJournal) -> SqliteJournal:
    journal.close()
    return SqliteJournal(journal.path)


def test_links_that_are_not_known_have_the_empty_state(journal: SqliteJournal) -> None:
    assert journal.open_publisher("p") == PublisherState()
    assert journal.open_subscriber("s") == SubscriberState()


def test_a_publishers_changes_are_read_back_after_reopening(journal: SqliteJournal) -> None:
    stored = tuple(StoredMessage(number, b"m%d" % number) for number in range(5))
    write_publisher(journal, PublisherChanges(stored, 5, 3, 77))
    reported = rejected("amqp:not-allowed", "why not")
    write_publisher(journal, PublisherChanges((), 5, 4, 77, decided=((0, ACCEPTED), (1, reported)), doubted=(2,)))
    again = reopen(journal)
    assert again.open_publisher("p") == PublisherState(
        5,
        4,
        77,
        (
            StoredMessage(1, b"m1", outcome=reported),
            StoredMessage(2, b"m2", in_doubt=True),
            StoredMessage(3, b"m3"),
            StoredMessage(4, b"m4"),
        ),
    )
    write_publisher(again, PublisherChanges((), 5, 4, 77, forgotten=(1,)))
    assert [message.number for message in again.open_publisher("p").messages] == [2, 3, 4]
    again.close()


def test_a_subscribers_changes_are_read_back_in_order_after_reopening(journal: SqliteJournal) -> None:
    unusual = Outcome(OutcomeKind.REJECTED, "c", "d", in_doubt=True, subscriptions=Subscriptions(9, ("a/b", "c/d")))
    write_subscriber(journal, SubscriberChanges(9, ((b"z", ACCEPTED), (b"a", unusual), (b"k", ACCEPTED))))
    write_subscriber(journal, SubscriberChanges(9, ((b"z2", ACCEPTED),), forgotten=(b"z",)))
    again = reopen(journal)
    assert again.open_subscriber("s") == SubscriberState(9, ((b"a", unusual), (b"k", ACCEPTED), (b"z2", ACCEPTED)))
    again.close()


def test_an_entry_stored_without_an_outcome_gets_it_at_its_place(journal: SqliteJournal) -> None:
    write_subscriber(journal, SubscriberChanges(9, ((b"a", None), (b"b", None), (b"c", ACCEPTED))))
    again = reopen(journal)
    assert again.open_subscriber("s").entries == ((b"a", None), (b"b", None), (b"c", ACCEPTED))
    write_subscriber(again, SubscriberChanges(9, ((b"b", rejected("x")), (b"d", ACCEPTED)), forgotten=(b"a",)))
    assert again.open_subscriber("s").entries == ((b"b", rejected("x")), (b"c", ACCEPTED), (b"d", ACCEPTED))
    again.close()


def test_ids_of_what_is_done_are_read_back_in_order_and_without_the_forgotten_ones(journal: SqliteJournal) -> None:
    """D-3."""
    one, two, three = (MessageIdentity(user, b"7") for user in ("ann", "bob", ""))
    write_subscriber(journal, SubscriberChanges(9, done_ids=(DoneId(one), DoneId(two, is_rejected=True))))
    write_subscriber(journal, SubscriberChanges(9, done_ids=(DoneId(three), DoneId(one)), forgotten_ids=(one,)))
    again = reopen(journal)
    assert again.open_subscriber("s").done_ids == (DoneId(two, is_rejected=True), DoneId(three), DoneId(one))
    assert again.open_subscriber("other").done_ids == ()
    write_subscriber(again, SubscriberChanges(9, done_ids=(DoneId(two),), forgotten_ids=(three,)))
    assert again.open_subscriber("s").done_ids == (DoneId(one), DoneId(two))
    again.close()


def test_a_journal_of_an_earlier_release_keeps_ids_from_now_on(journal: SqliteJournal) -> None:
    journal.connection.execute("DROP TABLE oncewire_done_ids")
    again = reopen(journal)
    write_subscriber(again, SubscriberChanges(9, done_ids=(DoneId(MessageIdentity("ann", b"7")),)))
    assert len(again.open_subscriber("s").done_ids) == 1
    again.close()


def test_links_of_one_journal_do_not_mix(journal: SqliteJournal) -> None:
    journal.begin()
    journal.write_publisher("a", PublisherChanges((StoredMessage(0, b"a"),), 1, 0, 1))
    journal.write_publisher("b", PublisherChanges((StoredMessage(0, b"b"),), 1, 0, 2))
    journal.write_subscriber("a", SubscriberChanges(1, ((b"t", ACCEPTED),)))
    journal.write_subscriber("b", SubscriberChanges(2, ((b"t", ACCEPTED),)))
    journal.commit()
    assert journal.open_publisher("b").messages[0].payload == b"b"
    assert journal.open_subscriber("a").incarnation == 1


def test_a_rollback_leaves_nothing(journal: SqliteJournal) -> None:
    journal.begin()
    journal.write_subscriber("s", SubscriberChanges(1, ((b"t", ACCEPTED),)))
    journal.rollback()
    assert journal.open_subscriber("s") == SubscriberState()


def test_the_file_is_readable_by_its_owner_only(journal: SqliteJournal) -> None:
    assert journal.path.stat().st_mode & 0o077 == 0


def test_a_second_opener_is_reported_which_process_has_it(journal: SqliteJournal) -> None:
    with pytest.raises(JournalLocked, match=f"process {os.getpid()} is using it"):
        SqliteJournal(journal.path)


def test_another_container_is_reported_whose_journal_it_is(journal: SqliteJournal) -> None:
    journal.bind("shop-1")
    journal.bind("shop-1")
    with pytest.raises(JournalOwnerError, match="shop-1"):
        journal.bind("shop-2")


def test_a_file_that_is_no_database_is_refused_and_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("x" * 5000)
    with pytest.raises(JournalCorrupt):
        SqliteJournal(path)
    assert path.read_text() == "x" * 5000


def test_a_journal_of_a_newer_version_is_refused(journal: SqliteJournal) -> None:
    journal.connection.execute("UPDATE oncewire_journal SET version = 99")
    journal.close()
    with pytest.raises(JournalCorrupt, match="version 99"):
        SqliteJournal(journal.path)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalUnusable, match="nowhere"):
        SqliteJournal(tmp_path / "nowhere" / "journal.db")


def test_a_full_disk_is_named_and_what_was_committed_stays(journal: SqliteJournal) -> None:
    write_publisher(journal, PublisherChanges((StoredMessage(0, b"first"),), 1, 1, 1))
    pages = journal.connection.execute("PRAGMA page_count").fetchone()[0]
    journal.connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    journal.begin()
    with pytest.raises(JournalFull):
        journal.write_publisher("p", PublisherChanges((StoredMessage(1, bytes(100_000)),), 2, 2, 1))
    assert not journal.connection.in_transaction
    assert journal.open_publisher("p").messages == (StoredMessage(0, b"first"),)
    journal.rollback()


def test_another_program_holding_the_database_is_reported(
    journal: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal.connection.execute("PRAGMA busy_timeout = 10")
    other = sqlite3.connect(journal.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(JournalLocked):
        journal.begin()
    other.close()
    journal.begin()
    journal.rollback()


def test_ending_the_transaction_inside_it_is_reported_as_misuse(journal: SqliteJournal) -> None:
    journal.begin()
    journal.connection.execute("COMMIT")
    with pytest.raises(JournalUnusable, match="was ended inside"):
        journal.commit()


def test_the_applications_own_tables_share_the_transaction(journal: SqliteJournal) -> None:
    journal.connection.execute("CREATE TABLE mine (x)")
    journal.begin()
    journal.connection.execute("INSERT INTO mine VALUES (1)")
    journal.write_subscriber("s", SubscriberChanges(1, ((b"t", ACCEPTED),)))
    journal.rollback()
    assert journal.connection.execute("SELECT * FROM mine").fetchall() == []


def test_the_memory_journal_keeps_what_subscribers_are_done_with_and_serves_any_container() -> None:
    journal = MemoryJournal()
    journal.bind("a")
    journal.bind("b")
    assert journal.open_subscriber("s") == SubscriberState()
    journal.begin()
    journal.write_subscriber("s", SubscriberChanges(1, ((b"t", ACCEPTED), (b"u", None))))
    journal.write_publisher("p", PublisherChanges((StoredMessage(0, b""),), 1, 1, 1))
    journal.commit()
    assert journal.open_subscriber("s") == SubscriberState(1, ((b"t", ACCEPTED), (b"u", None)))
    journal.write_subscriber("s", SubscriberChanges(0, ((b"u", ACCEPTED),), (b"t",)))
    assert journal.open_subscriber("s") == SubscriberState(0, ((b"u", ACCEPTED),))
    journal.write_subscriber("s", SubscriberChanges(0, (), (b"u",)))
    assert journal.open_subscriber("s") == SubscriberState()
    assert journal.open_publisher("p") == PublisherState()
    assert not journal.is_durable
    journal.rollback()
    journal.close()


def run_until_killed(role: str, path: Path, lines: int) -> int:
    """Runs the child until it has said `lines` lines, kills it at once, returns the last number it said."""
    child = subprocess.Popen([sys.executable, str(CHILD), role, str(path)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    with child:
        for _ in range(lines):
            assert child.stdout.readline(), "the child ended by itself"
        child.send_signal(signal.SIGKILL)
        rest = child.stdout.read().split("\n")
    complete = [line for line in rest[:-1] if line]
    return int(complete[-1]) if complete else 0


@pytest.mark.parametrize("lines", [1, 5, 23, 60])
def test_a_killed_publisher_finds_every_message_it_had_stored_and_its_place(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "journal.db"
    before = 0
    for _ in range(2):  # the second run goes on where the first was killed
        said = run_until_killed("publisher", path, lines)
        journal = SqliteJournal(path)
        state = journal.open_publisher("p")
        (place,) = journal.connection.execute("SELECT next FROM place").fetchone()
        journal.close()
        assert state.next_number == place, "message and place in the source are one transaction"
        assert state.next_number >= max(said, before + 7)
        numbers = [message.number for message in state.messages]
        assert numbers == sorted(numbers)
        assert all(message.payload == b"message %d" % message.number for message in state.messages)
        assert numbers[-1] == state.next_number - 1
        assert state.exposed_before <= state.next_number
        before = state.next_number


@pytest.mark.parametrize("lines", [1, 30, 90])
def test_a_killed_subscriber_has_effect_and_acceptance_of_the_same_deliveries(tmp_path: Path, lines: int) -> None:
    path = tmp_path / "journal.db"
    for _ in range(2):
        said = run_until_killed("subscriber", path, lines)
        journal = SqliteJournal(path)
        done = {tag for tag, outcome in journal.open_subscriber("s").entries if outcome}
        effects = {row[0] for row in journal.connection.execute("SELECT tag FROM effects")}
        journal.close()
        assert len(effects) > said
        assert done <= effects, "an acceptance without its effect would be a loss"
        settled = {b"tag %08d" % number for number in range(len(effects) - 20)}
        assert effects - done <= settled, "an effect without its acceptance would be a duplicate"


@pytest.mark.parametrize("lines", [1, 12, 60])
def test_a_subscriber_killed_while_it_finishes_out_of_order_has_no_gap_before_a_done_entry(
    tmp_path: Path, lines: int
) -> None:
    """S-a: what arrived earlier in the session of a done entry is in the journal, or its effect is."""
    path = tmp_path / "journal.db"
    unfinished = 0
    for _ in range(2):
        run_until_killed("jumbler", path, lines)
        journal = SqliteJournal(path)
        entries = dict(journal.open_subscriber("s").entries)
        effects = {row[0] for row in journal.connection.execute("SELECT tag FROM effects")}
        arrived = [row[0] for row in journal.connection.execute("SELECT tag FROM arrived ORDER BY rowid")]
        journal.close()
        place = {tag: at for at, tag in enumerate(arrived)}
        assert all((tag in effects) == (outcome is not None) for tag, outcome in entries.items())
        unfinished += sum(outcome is None for outcome in entries.values())
        for session in {tag[1:11] for tag in entries}:
            stored = [tag for tag in entries if tag[1:11] == session]
            assert stored == sorted(stored, key=place.__getitem__), "the order of arrival is kept"
            last_done = max((place[tag] for tag in stored if entries[tag]), default=-1)
            for tag in arrived[:last_done]:
                assert tag[1:11] != session or tag in effects or tag in entries, "it would be taken for skipped"
    assert unfinished > 0
