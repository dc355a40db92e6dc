"""The journal of a subscription: real SQLite files, real processes, kill -9."""

from __future__ import annotations

import itertools
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bridges.node.errors import (
    BadRequest,
    JournalReplaced,
    OwnedByAnother,
    RangeHole,
    RangeNotThere,
    RangeTrimmed,
    StorageError,
)
from bridges.node.journal import EARLIEST, LATEST, ROW_BYTES, Arrival, JournalControl, ReceiverJournal
from bridges.node.journal_reader import CHUNK_ROWS, JournalReader
from bridges.node.producers_core import Identity, Judgement
from oncewire.client import JournalLocked, SqliteJournal

CHILD = Path(__file__).parent / "journal_child.py"


class Receiving:
    """The receiver's end of a journal without a network."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.client = SqliteJournal(path)
        self.journal = ReceiverJournal(self.client.connection, path, "flights")

    def append(self, *payloads: bytes) -> None:
        source = self.journal.source_id("orders")
        self.append_arrivals([Arrival(source, payload) for payload in payloads])

    def append_arrivals(self, arrivals: list[Arrival]) -> list[Judgement]:
        self.client.begin()
        judged = self.journal.append(arrivals, 1_700_000_000_000_000)
        self.client.commit()
        return judged


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "flights.db"


@pytest.fixture
def receiving(path: Path) -> Iterator[Receiving]:
    found = Receiving(path)
    yield found
    found.client.close()


@pytest.fixture
def control(receiving: Receiving) -> Iterator[JournalControl]:
    found = JournalControl(receiving.path)
    yield found
    found.close()


@pytest.fixture
def reader(receiving: Receiving) -> Iterator[JournalReader]:
    found = JournalReader(receiving.path)
    yield found
    found.close()


def everything(reader: JournalReader, low: int = 0) -> list[bytes]:
    marks = reader.marks()
    chunks = list(reader.read(low, marks.last))
    assert [chunk.first for chunk in chunks] == [
        low + 1 + sum(len(c.payloads) for c in chunks[:i]) for i in range(len(chunks))
    ]
    return [payload for chunk in chunks for payload in chunk.payloads]


# --- positions and ranges ---------------------------------------------------------------------------------------------


def test_a_range_is_what_was_appended_between_two_positions(receiving: Receiving, reader: JournalReader) -> None:
    receiving.append(b"a", b"b", b"c")
    receiving.append(b"d")
    (chunk,) = reader.read(1, 3)
    assert (chunk.first, chunk.payloads, chunk.topics) == (2, [b"b", b"c"], ["orders", "orders"])
    assert chunk.arrived == [1_700_000_000_000_000] * 2
    assert list(reader.read(4, 4)) == []


def test_long_ranges_come_in_chunks_by_rows_and_by_bytes(receiving: Receiving, reader: JournalReader) -> None:
    receiving.append(*(b"%d" % n for n in range(2 * CHUNK_ROWS + 5)))
    receiving.append(*(bytes(3 << 20) for _ in range(4)))
    sizes = [len(chunk.payloads) for chunk in reader.read(0, reader.marks().last)]
    assert sum(sizes) == 2 * CHUNK_ROWS + 9
    assert max(sizes) == CHUNK_ROWS
    assert everything(reader)[:3] == [b"0", b"1", b"2"]


def test_positions_do_not_restart_when_everything_was_trimmed(
    receiving: Receiving, reader: JournalReader, control: JournalControl
) -> None:
    receiving.append(b"a", b"b")
    control.trim(2, now=1.0)
    assert not control.delete_expired(now=1.0)
    assert reader.marks().live_bytes == 0
    receiving.client.close()
    again = Receiving(receiving.path)
    again.append(b"c")
    assert [(chunk.first, chunk.payloads) for chunk in reader.read(2, 3)] == [(3, [b"c"])]
    again.client.close()


def test_a_transaction_that_is_rolled_back_uses_no_position_and_forgets_no_identity(
    receiving: Receiving, reader: JournalReader
) -> None:
    source = receiving.journal.source_id("orders")
    receiving.client.begin()
    receiving.journal.append([Arrival(source, b"lost", Identity("p", 0, 0))], 0)
    receiving.client.rollback()
    receiving.journal.reload()
    judged = receiving.append_arrivals([Arrival(source, b"kept", Identity("p", 0, 0))])
    assert judged == [Judgement.NEW]
    assert everything(reader) == [b"kept"]


def test_a_message_with_an_identity_is_appended_once(receiving: Receiving, reader: JournalReader) -> None:
    source = receiving.journal.source_id("orders")
    first = Arrival(source, b"one", Identity("p", 4, 4))
    assert receiving.append_arrivals([first, first]) == [Judgement.NEW, Judgement.DUPLICATE]
    receiving.client.close()
    again = Receiving(receiving.path)
    assert again.append_arrivals([first]) == [Judgement.DUPLICATE]
    assert again.append_arrivals([Arrival(source, b"one"), Arrival(source, b"one")]) == [Judgement.NEW] * 2
    assert everything(reader) == [b"one"] * 3
    again.client.close()


def test_limits_by_rows_and_bytes_end_a_range_but_never_before_one_message(
    receiving: Receiving, reader: JournalReader
) -> None:
    receiving.append(*(bytes(100) for _ in range(50)))
    receiving.append(bytes(10_000))
    assert reader.end_within(0) == 51
    assert reader.end_within(7, max_rows=10) == 17
    each = 100 + ROW_BYTES
    for low, rows in itertools.product((0, 10), (1, 2, 7)):
        assert reader.end_within(low, max_bytes=rows * each) == low + rows
        assert reader.end_within(low, max_bytes=rows * each + each - 1) == low + rows
    assert reader.end_within(10, max_bytes=1) == 11
    assert reader.end_within(50, max_bytes=1) == 51
    assert reader.end_within(51, max_bytes=1) == 51


# --- nothing is missing silently --------------------------------------------------------------------------------------


def test_a_trimmed_range_is_refused(receiving: Receiving, reader: JournalReader, control: JournalControl) -> None:
    receiving.append(b"a", b"b", b"c")
    control.trim(2, now=1.0)
    control.delete_expired(now=1.0)
    with pytest.raises(RangeTrimmed, match="up to 2 was trimmed"):
        list(reader.read(1, 3))
    with pytest.raises(RangeTrimmed):
        reader.end_within(0, max_bytes=100)
    assert everything(reader, 2) == [b"c"]


def test_a_hole_is_found(receiving: Receiving, reader: JournalReader) -> None:
    receiving.append(b"a", b"b", b"c")
    receiving.client.connection.execute("DELETE FROM oncewire_journal_messages WHERE entry & 1099511627775 = 2")
    with pytest.raises(RangeHole, match="2 messages of 3"):
        list(reader.read(0, 3))
    receiving.client.connection.execute("DELETE FROM oncewire_journal_messages WHERE entry & 1099511627775 = 3")
    with pytest.raises(RangeHole):
        list(reader.read(0, 3))


def test_offsets_beyond_the_end_and_of_another_journal_are_refused(receiving: Receiving, reader: JournalReader) -> None:
    receiving.append(b"a")
    with pytest.raises(RangeNotThere, match="older than the offsets"):
        list(reader.read(0, 2))
    with pytest.raises(RangeNotThere):
        reader.end_within(5)
    with pytest.raises(BadRequest):
        list(reader.read(1, 0))
    with pytest.raises(JournalReplaced, match="deleted or replaced"):
        list(reader.read(0, 1, uuid="0123"))
    assert len(list(reader.read(0, 1, uuid=reader.marks().uuid))) == 1


def test_a_range_that_is_trimmed_while_it_is_read_ends_in_an_error(
    receiving: Receiving, reader: JournalReader, control: JournalControl
) -> None:
    receiving.append(*(b"%d" % n for n in range(CHUNK_ROWS + 100)))
    chunks = reader.read(0, CHUNK_ROWS + 100)
    next(chunks)
    control.trim(CHUNK_ROWS + 50, now=1.0)
    while control.delete_expired(now=1.0):
        pass
    with pytest.raises(RangeTrimmed):
        next(chunks)


# --- owners, start, retention -----------------------------------------------------------------------------------------


def test_the_initial_offset_is_decided_once(receiving: Receiving, control: JournalControl) -> None:
    receiving.append(b"a", b"b")
    assert control.initial_offset(LATEST) == 2
    receiving.append(b"c")
    assert control.initial_offset(LATEST) == 2
    assert control.initial_offset(EARLIEST) == 2
    other = JournalControl(receiving.path)
    assert other.initial_offset(0) == 2
    other.close()


@pytest.mark.parametrize("start", [-1, 4, "newest"])
def test_a_start_that_is_not_in_the_journal_is_refused(
    receiving: Receiving, control: JournalControl, start: int | str
) -> None:
    receiving.append(b"a", b"b", b"c")
    with pytest.raises(BadRequest, match="cannot start"):
        control.initial_offset(start)
    assert control.initial_offset(3) == 3


def test_a_second_query_is_refused_until_the_first_is_released_and_the_first_ever_after(
    receiving: Receiving, control: JournalControl, reader: JournalReader
) -> None:
    receiving.append(b"a")
    control.initial_offset(LATEST)
    control.claim("one")
    control.claim("one")
    with pytest.raises(OwnedByAnother, match="query one reads"):
        control.claim("two")
    with pytest.raises(OwnedByAnother):
        list(reader.read(0, 1, owner="two"))
    with pytest.raises(OwnedByAnother):
        control.trim(1, now=1.0, owner="two")
    control.release()
    control.claim("two")
    assert control.initial_offset(EARLIEST) == 0
    with pytest.raises(OwnedByAnother, match="it was taken from query one"):
        control.claim("one")


def test_trimmed_messages_are_kept_for_the_retention(receiving: Receiving, reader: JournalReader) -> None:
    receiving.append(*(b"%d" % n for n in range(10)))
    control = JournalControl(receiving.path, retention_s=100.0)
    for position, now in ((2, 1000.0), (4, 1000.4), (5, 1050.0), (3, 1060.0)):
        control.trim(position, now)
        assert not control.delete_expired(now)
    assert control.marks().trimmed == 5
    assert everything(reader)[0] == b"0"
    assert not control.delete_expired(1101.0)
    assert control.marks().deleted == 4
    assert not control.delete_expired(1150.0)
    assert everything(reader, 5)[0] == b"5"
    assert control.marks().trimmed == control.marks().deleted == 5
    with pytest.raises(RangeNotThere):
        control.trim(11, 1200.0)
    control.close()


def test_trims_in_quick_succession_do_not_keep_messages_for_ever(receiving: Receiving) -> None:
    receiving.append(*(b"%d" % n for n in range(200)))
    control = JournalControl(receiving.path, retention_s=10.0)
    for step in range(200):
        control.trim(step + 1, 1000.0 + step * 0.5)
        control.delete_expired(1000.0 + step * 0.5)
    assert control.marks().deleted > 150
    control.close()


# --- files ------------------------------------------------------------------------------------------------------------


def test_one_receiver_at_a_time(receiving: Receiving) -> None:
    with pytest.raises(JournalLocked):
        SqliteJournal(receiving.path)


def test_a_journal_serves_its_own_subscription_only(receiving: Receiving) -> None:
    with pytest.raises(BadRequest, match="belongs to subscription 'flights'"):
        ReceiverJournal(receiving.client.connection, receiving.path, "trains")


def test_no_file_another_file_and_a_newer_version_are_reported_apart(tmp_path: Path, receiving: Receiving) -> None:
    for opening in (JournalControl, JournalReader):
        with pytest.raises(StorageError, match="does not exist"):
            opening(tmp_path / "absent.db")
    garbage = tmp_path / "garbage.db"
    garbage.write_bytes(b"no database at all, " * 100)
    with pytest.raises(StorageError, match="not a database"):
        JournalReader(garbage)
    newer = "UPDATE oncewire_versions SET version = 99 WHERE feature = 'spark-subscription'"
    receiving.client.connection.execute(newer)
    with pytest.raises(StorageError, match="version 99"):
        ReceiverJournal(receiving.client.connection, receiving.path, "flights")


def test_a_journal_of_an_earlier_version_is_refused_and_stays_as_it_is(path: Path) -> None:
    with closing(SqliteJournal(path)) as client:
        client.connection.execute("CREATE TABLE node_journal (version INTEGER NOT NULL, last INTEGER NOT NULL)")
        client.connection.execute("INSERT INTO node_journal VALUES (2, 7)")
        for opening in (lambda: ReceiverJournal(client.connection, path, "flights"), lambda: JournalControl(path)):
            with pytest.raises(StorageError, match="let that version process what it has begun"):
                opening()
        assert client.connection.execute("SELECT * FROM node_journal").fetchall() == [(2, 7)]


def test_kill_9_loses_nothing_that_was_durable_and_doubles_nothing(path: Path) -> None:
    durable: list[int] = []
    for _ in range(4):
        with subprocess.Popen([sys.executable, "-P", CHILD, path], stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            durable += [int(line) for line in itertools.islice(child.stdout, 150)]
            child.send_signal(signal.SIGKILL)
            durable += [int(line) for line in child.stdout if line.endswith(b"\n")]
        reader = JournalReader(path)
        stored = [int(payload) for payload in everything(reader)]
        reader.close()
        assert len(stored) == len(set(stored))
        assert set(durable) <= set(stored)
    # The client's half of the same transactions: every message that is there was accepted, and nothing else.
    database = sqlite3.connect(path)
    (accepted,) = database.execute("SELECT count(*) FROM oncewire_deliveries WHERE outcome IS NOT NULL").fetchone()
    database.close()
    assert accepted >= len(stored)
