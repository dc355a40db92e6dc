"""The outbox of a sink: staging, the first-wins manifest, numbers, owners and epochs, in real SQLite files."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from bridges.node.arrow_bodies import count_topics, encode_rows
from bridges.node.errors import (
    BadRequest,
    BatchForgotten,
    Fenced,
    OutboxFull,
    OwnedByAnother,
    PartMissing,
    StorageError,
    TooLarge,
)
from bridges.node.model import Manifest, StagedPart, Writer
from bridges.node.model import Publishing as How
from bridges.node.outbox import NEW_LIFE_AFTER_S, Outbox
from bridges.node.outbox_journal import OutboxJournal
from oncewire.client import JournalOwnerError, JournalUnusable
from oncewire.client.core_effects import SendTransfer
from oncewire.client.outcomes import ACCEPTED, RELEASED, Outcome
from oncewire.client.publisher_core import PublisherCore
from oncewire.client.transactions.sequence_header import read_header
from oncewire.client.transactions.sequencer import Batch, Sequencer
from oncewire.wire import decode_message, encode_data_message

WRITER = Writer("query", "run-1")
BORN_S = 1_700_000_000
CHILD = Path(__file__).parent / "outbox_child.py"


def body_of(*values: str, topic: str = "out") -> bytes:
    return encode_rows([topic] * len(values), [encode_data_message(value.encode()) for value in values])


def stage(
    outbox: Outbox,
    batch: int,
    attempt: str,
    *values: str,
    partition: int = 0,
    chunk: int = 0,
    topic: str = "out",
    writer: Writer = WRITER,
) -> StagedPart:
    body = body_of(*values, topic=topic)
    part = StagedPart(partition, attempt, chunk + 1, len(values))
    outbox.stage(writer, batch, part, chunk, count_topics(body), body)
    return part


class Publishing:
    """The publisher's core and the outbox as its journal, without a network."""

    def __init__(self, outbox: Outbox, topic: str = "out") -> None:
        self.topic = topic
        self.journal = OutboxJournal(outbox.path, outbox.sink)
        state = self.journal.open_publisher(topic)
        self.core = PublisherCore(resend_in_doubt=True, recovered=state)
        self.presented = self.core.begin_attach() or {}
        self.core.attached(capable=True, resume="resumed" if state.session else "new")
        self.sent = [e for e in self.core.flow(1 << 20, session=1) if isinstance(e, SendTransfer)]
        self.sent += self._commit()

    def take_all(self) -> None:
        """Submit every row that is decided."""
        while (rows := self.journal.rows_from(self.topic, self.core.next_number)) is not None:
            number = self.core.next_number
            for payload in self.journal.annotated(self.topic, rows, number, rows.first + len(rows.payloads)):
                self.core.submit(payload)
            self.sent += self._commit()

    def end(self, *numbers: int, outcome: Outcome = ACCEPTED) -> None:
        self.core.disposition([(n, n.to_bytes(8, "big")) for n in numbers], outcome, False)
        self.sent += self._commit()

    def _commit(self) -> list[SendTransfer]:
        sent = []
        while self.core.wants_commit:
            self.journal.begin()
            self.journal.write_publisher(self.topic, self.core.next_commit())
            self.journal.commit()
            sent += [e for e in self.core.committed() if isinstance(e, SendTransfer)]
        return sent

    def bodies(self) -> list[tuple[int, str]]:
        """(tag, text) of what was sent, in order."""
        found = []
        for transfer in self.sent:
            message = decode_message(transfer.payload)
            assert isinstance(message.body, bytes)
            assert message.annotations["x-opt-topic-seq"] == transfer.number + 1  # type: ignore[index]
            found.append((int.from_bytes(transfer.tag, "big"), message.body.decode()))
        return found


@pytest.fixture
def now() -> list[float]:
    return [float(BORN_S)]


@pytest.fixture
def outbox(tmp_path: Path, now: list[float]) -> Iterator[Outbox]:
    found = Outbox(tmp_path / "sink.db", "sink", clock=lambda: now[0])
    yield found
    found.close()


# --- the manifest -----------------------------------------------------------------------------------------------------


def test_only_what_is_in_the_manifest_is_published_in_its_order(outbox: Outbox) -> None:
    second = stage(outbox, 0, "a", "3", "4", partition=1)
    first = stage(outbox, 0, "b", "1", partition=0)
    first = stage(outbox, 0, "b", "2", partition=0, chunk=1)
    stage(outbox, 0, "loser", "no", partition=0)
    manifest = outbox.commit(WRITER, 0, [StagedPart(first.partition, "b", 2, 2), second])
    assert manifest == Manifest(0, 0, 4, True, False, 0)
    publishing = Publishing(outbox)
    publishing.take_all()
    assert publishing.bodies() == [(0, "1"), (1, "2"), (2, "3"), (3, "4")]
    publishing.journal.close()


def test_the_first_manifest_wins_for_ever(outbox: Outbox) -> None:
    first = stage(outbox, 0, "a", "first")
    other = stage(outbox, 0, "b", "other", "rows")
    decided = outbox.commit(WRITER, 0, [first])
    again = outbox.commit(WRITER, 0, [other])
    assert (decided.is_first, again.is_first) == (True, False)
    assert again.rows == 1
    new_run = Writer("query", "run-2")
    assert not outbox.stage(new_run, 0, StagedPart(0, "c", 1, 1), 0, {"out": 1}, body_of("late"))
    assert outbox.commit(new_run, 0, [StagedPart(0, "c", 1, 1)]).rows == 1
    publishing = Publishing(outbox)
    publishing.take_all()
    assert publishing.bodies() == [(0, "first")]
    publishing.journal.close()


def test_numbers_are_dense_for_each_topic_over_batches(outbox: Outbox) -> None:
    for batch in range(3):
        parts = [
            stage(outbox, batch, f"a{batch}", f"{batch}a", f"{batch}b", topic="out"),
            stage(outbox, batch, f"b{batch}", f"{batch}x", topic="errors", partition=1),
        ]
        outbox.commit(WRITER, batch, parts)
    for topic, expected in (("out", ["0a", "0b", "1a", "1b", "2a", "2b"]), ("errors", ["0x", "1x", "2x"])):
        publishing = Publishing(outbox, topic)
        publishing.take_all()
        assert publishing.bodies() == list(enumerate(expected))
        publishing.journal.close()


def test_one_part_may_go_to_several_topics(outbox: Outbox) -> None:
    topics = ["out", "errors", "out", "errors", "errors"]
    body = encode_rows(topics, [encode_data_message(b"%d" % n) for n in range(5)])
    part = StagedPart(0, "a", 1, 5)
    outbox.stage(WRITER, 0, part, 0, count_topics(body), body)
    outbox.commit(WRITER, 0, [part])
    for topic, expected in (("out", ["0", "2"]), ("errors", ["1", "3", "4"])):
        publishing = Publishing(outbox, topic)
        publishing.take_all()
        assert [text for _, text in publishing.bodies()] == expected
        publishing.journal.close()


def test_an_empty_batch_is_done_at_once(outbox: Outbox) -> None:
    assert outbox.commit(WRITER, 0, []) == Manifest(0, 0, 0, True, True, 0)
    assert outbox.commit(WRITER, 0, []) == Manifest(0, 0, 0, False, True, 0)


def test_a_part_that_is_missing_or_has_other_rows_decides_nothing(outbox: Outbox) -> None:
    part = stage(outbox, 0, "a", "1")
    for wrong in (
        StagedPart(0, "b", 1, 1),
        StagedPart(0, "a", 2, 1),
        StagedPart(0, "a", 1, 2),
        StagedPart(1, "a", 1, 1),
    ):
        with pytest.raises(PartMissing, match="run the batch again"):
            outbox.commit(WRITER, 0, [part, wrong])
    assert outbox.marks().manifests == 0
    assert outbox.commit(WRITER, 0, [part]).is_first


def test_a_chunk_that_is_staged_again_replaces_itself(outbox: Outbox) -> None:
    stage(outbox, 0, "a", "1", "2")
    part = stage(outbox, 0, "a", "3")
    assert outbox.commit(WRITER, 0, [part]).rows == 1


def test_what_lost_is_deleted_by_batch_number(outbox: Outbox) -> None:
    ahead = stage(outbox, 7, "x", "speculative")
    winner = stage(outbox, 5, "a", "1")
    stage(outbox, 5, "b", "2")
    stage(outbox, 4, "c", "3")
    outbox.commit(WRITER, 5, [winner])
    assert outbox.marks().staged_bytes == len(body_of("speculative"))
    assert outbox.commit(WRITER, 7, [ahead]).is_first


def test_a_batch_from_before_the_newest_is_refused_unless_it_is_known(
    outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bridges.node.outbox.KEPT_MANIFESTS", 10)
    outbox.commit(WRITER, 3, [])
    with pytest.raises(BatchForgotten, match="batch 3 was decided before"):
        outbox.commit(WRITER, 2, [])
    for batch in range(4, 16):
        outbox.commit(WRITER, batch, [])
    with pytest.raises(BatchForgotten):
        outbox.commit(WRITER, 3, [])
    assert not outbox.commit(WRITER, 8, []).is_first


# --- publishing and done ----------------------------------------------------------------------------------------------


def test_a_batch_is_done_when_every_row_has_its_outcome_whatever_the_order(outbox: Outbox) -> None:
    outbox.commit(WRITER, 0, [stage(outbox, 0, "a", "1", "2", "3")])
    outbox.commit(WRITER, 1, [stage(outbox, 1, "b", "4")])
    publishing = Publishing(outbox)
    publishing.take_all()
    publishing.end(2, 3)
    assert not outbox.commit(WRITER, 1, []).is_done  # the floor is below it
    publishing.end(0, outcome=RELEASED)
    assert not outbox.commit(WRITER, 0, []).is_done
    publishing.end(1)
    assert outbox.commit(WRITER, 0, []) == Manifest(0, 0, 3, False, True, 1)
    assert outbox.commit(WRITER, 1, []) == Manifest(1, 1, 1, False, True, 0)
    marks = outbox.marks()
    assert (marks.waiting_manifests, marks.waiting_bytes, marks.staged_bytes) == (0, 0, 0)
    assert publishing.journal.outcomes == {"accepted": 3, "released": 1}
    publishing.journal.close()


def test_a_publisher_goes_on_with_its_unsettled_map(outbox: Outbox) -> None:
    outbox.commit(WRITER, 0, [stage(outbox, 0, "a", *map(str, range(6)))])
    before = Publishing(outbox)
    before.take_all()
    before.end(0, 3)
    before.journal.close()
    again = Publishing(outbox)
    assert sorted(int.from_bytes(tag, "big") for tag in again.presented) == [1, 2, 4, 5]
    assert again.bodies() == [(n, str(n)) for n in (1, 2, 4, 5)]
    outbox.commit(WRITER, 1, [stage(outbox, 1, "b", "6")])
    again.take_all()
    assert again.bodies()[-1] == (6, "6")
    again.journal.close()


def test_rows_carry_producer_sequence_floor_batch_and_the_end_of_the_batch(outbox: Outbox) -> None:
    atomic = How(is_atomic=True)
    outbox.commit(WRITER, 0, [stage(outbox, 0, "a", "0", "1")])
    parts = [stage(outbox, 1, "b", "2"), stage(outbox, 1, "c", "3", partition=1)]
    outbox.commit(WRITER, 1, parts, atomic)
    publishing = Publishing(outbox)
    publishing.take_all()
    publishing.end(0)
    publishing.journal.close()
    publishing = Publishing(outbox)
    reported = [decode_message(transfer.payload).annotations for transfer in publishing.sent]
    producer = f"sink/0/{outbox.marks().uuid}@{BORN_S}000"
    assert reported == [
        {
            "x-opt-topic-producer": producer,
            "x-opt-topic-seq": number,
            "x-opt-topic-floor": 2,
            "x-opt-topic-batch": batch,
            **more,
        }
        for number, batch, more in (
            (2, 0, {"x-opt-topic-batch-end": True}),
            (3, 1, {"x-opt-topic-transaction": "continue"}),
            (4, 1, {"x-opt-topic-transaction": "last 3", "x-opt-topic-batch-end": True}),
        )
    ]
    publishing.journal.close()


def test_every_row_is_in_the_sequence_of_a_reader_and_an_atomic_batch_comes_whole(outbox: Outbox) -> None:
    outbox.commit(WRITER, 0, [stage(outbox, 0, "a", "0", "1")])
    parts = [stage(outbox, 1, "b", "2", "3"), stage(outbox, 1, "c", "4", partition=1)]
    outbox.commit(WRITER, 1, parts, How(is_atomic=True))
    outbox.commit(WRITER, 2, [stage(outbox, 2, "d", "5")], How(is_atomic=True))
    publishing = Publishing(outbox)
    publishing.take_all()
    messages = [decode_message(transfer.payload) for transfer in publishing.sent]
    publishing.journal.close()
    sequencer: Sequencer[bytes] = Sequencer()
    seen: list[list[bytes]] = []
    shuffled = [messages[n] for n in (4, 3, 3, 1, 2, 0, 5)]  # overtaking and a repeat, as after a failover
    for position, message in enumerate(shuffled, 1):
        assert isinstance(message.body, bytes)
        header = read_header(message.annotations or {})
        step = sequencer.feed(position, header, message.body, float(BORN_S))
        assert not step.outcome.is_refusal
        for effect in step.effects:
            assert isinstance(effect, Batch)
            seen.append([placed.message for placed in effect.messages])
    assert seen == [[b"1"], [b"4", b"3", b"2"], [b"0"], [b"5"]]


def test_a_topic_that_was_silent_for_long_begins_a_new_life_when_nothing_is_under_way(
    outbox: Outbox, now: list[float]
) -> None:
    def headers(publishing: Publishing) -> list[tuple[int, int, int, int]]:
        publishing.take_all()
        found = []
        for transfer in publishing.sent:
            header = read_header(decode_message(transfer.payload).annotations or {})
            assert header is not None
            found.append((header.producer.born_ms, header.sequence, header.begins, header.floor))
        publishing.sent.clear()
        return found

    def write(batch: int, *values: str) -> None:
        outbox.commit(WRITER, batch, [stage(outbox, batch, f"a{batch}", *values)], How(is_atomic=True))

    first_ms = BORN_S * 1000
    write(0, "0", "1")
    publishing = Publishing(outbox)
    assert headers(publishing) == [(first_ms, 1, 0, 1), (first_ms, 2, 1, 1)]
    publishing.end(0)
    now[0] += NEW_LIFE_AFTER_S + 1
    write(1, "2")  # row 1 has no outcome yet: its life goes on
    assert headers(publishing) == [(first_ms, 3, 3, 2)]
    publishing.end(1, 2)
    now[0] += NEW_LIFE_AFTER_S - 1
    write(2, "3")
    assert headers(publishing) == [(first_ms, 4, 4, 4)]
    publishing.end(3)
    now[0] += NEW_LIFE_AFTER_S + 1
    write(3, "4", "5")
    second_ms = int(now[0] * 1000)
    assert headers(publishing) == [(second_ms, 1, 0, 1), (second_ms, 2, 1, 1)]
    publishing.end(4)
    publishing.journal.close()
    publishing = Publishing(outbox)  # the process starts again in the middle of the new life
    assert headers(publishing) == [(second_ms, 2, 1, 2)]
    publishing.journal.close()


def test_a_session_that_expired_is_remembered_as_doubt(outbox: Outbox) -> None:
    outbox.commit(WRITER, 0, [stage(outbox, 0, "a", "0", "1")])
    publishing = Publishing(outbox)
    publishing.take_all()
    publishing.core.expire()
    publishing._commit()
    publishing.journal.close()
    again = OutboxJournal(outbox.path, outbox.sink)
    state = again.open_publisher("out")
    assert [message.in_doubt for message in state.messages] == [True, True]
    again.close()


def test_one_process_publishes_and_only_under_the_sinks_name(outbox: Outbox) -> None:
    journal = OutboxJournal(outbox.path, outbox.sink)
    with pytest.raises(OwnedByAnother, match=f"process {os.getpid()}"):
        OutboxJournal(outbox.path, outbox.sink)
    with pytest.raises(JournalOwnerError):
        journal.bind("another")
    with pytest.raises(JournalUnusable, match="no batch of sink"):
        journal.open_publisher("nowhere")
    with pytest.raises(JournalUnusable):
        journal.open_subscriber("s")
    journal.close()
    OutboxJournal(outbox.path, outbox.sink).close()


# --- who may write ----------------------------------------------------------------------------------------------------


def test_an_older_run_is_fenced(outbox: Outbox) -> None:
    old, new = Writer("query", "old"), Writer("query", "new")
    part = stage(outbox, 0, "a", "1", writer=old)
    stage(outbox, 0, "b", "2", writer=new)
    with pytest.raises(Fenced, match="newer run"):
        outbox.commit(old, 0, [part])
    with pytest.raises(Fenced):
        stage(outbox, 0, "c", "3", writer=old)
    assert outbox.commit(new, 0, [part]).is_first  # the part is there; who staged it is all one
    assert outbox.marks().epoch == 2


def test_a_run_counts_from_its_first_request_even_if_that_fails(outbox: Outbox) -> None:
    old, new = Writer("query", "old"), Writer("query", "new")
    with pytest.raises(PartMissing):
        outbox.commit(old, 0, [StagedPart(0, "a", 1, 1)])
    outbox.commit(new, 0, [])
    with pytest.raises(Fenced):
        outbox.commit(old, 1, [])


def test_another_query_is_refused_unless_it_takes_over_and_the_old_one_ever_after(outbox: Outbox) -> None:
    outbox.commit(WRITER, 0, [stage(outbox, 0, "a", "old")])
    other = Writer("other", "run-9")
    with pytest.raises(OwnedByAnother, match="takeover=true"):
        outbox.commit(other, 0, [])
    taking = Writer("other", "run-9", takeover=True)
    manifest = outbox.commit(taking, 0, [stage(outbox, 0, "b", "new", writer=taking)])
    assert manifest.is_first
    assert manifest.number == 1
    for late in (WRITER, Writer("query", "run-7", takeover=True)):
        with pytest.raises(OwnedByAnother, match="taken the sink over"):
            outbox.commit(late, 1, [])
    assert outbox.commit(other, 1, []).is_first
    publishing = Publishing(outbox)
    publishing.take_all()
    assert publishing.bodies() == [(0, "old"), (1, "new")]
    publishing.journal.close()


def test_a_writer_that_repeats_publishes_again_what_an_earlier_run_decided(outbox: Outbox) -> None:
    first = Writer("query", "run-1", repeats=True)
    assert outbox.commit(first, 5, [stage(outbox, 5, "a", "first", writer=first)]).is_first
    assert not outbox.commit(first, 5, []).is_first  # the same run: its call came again
    second = Writer("query", "run-2", repeats=True)
    for batch in (4, 5):  # even an older batch: the checkpoint may be a copy
        part = stage(outbox, batch, "b", f"again {batch}", writer=second)
        assert outbox.commit(second, batch, [part]).is_first
    with pytest.raises(Fenced):
        outbox.commit(first, 6, [])
    with pytest.raises(OwnedByAnother):
        outbox.commit(Writer("other", "run-3", repeats=True), 0, [])
    publishing = Publishing(outbox)
    publishing.take_all()
    assert publishing.bodies() == [(0, "first"), (1, "again 4"), (2, "again 5")]
    publishing.journal.close()


# --- limits and files -------------------------------------------------------------------------------------------------


def test_a_full_outbox_takes_nothing_until_something_is_published(tmp_path: Path) -> None:
    size = len(body_of("x"))
    outbox = Outbox(tmp_path / "o.db", "sink", max_bytes=size)
    outbox.commit(WRITER, 0, [stage(outbox, 0, "a", "x")])
    with pytest.raises(OutboxFull) as caught:
        stage(outbox, 1, "a", "y")
    assert caught.value.is_temporary
    publishing = Publishing(outbox)
    publishing.take_all()
    publishing.end(0)
    publishing.journal.close()
    stage(outbox, 1, "a", "y")
    with pytest.raises(TooLarge, match="batches smaller"):
        stage(outbox, 1, "b", "z")
    outbox.close()


@pytest.mark.parametrize("payload", [b"", b"text", b"\x00\x53\x72\xff"])
def test_a_row_that_could_not_be_published_is_refused_when_it_is_staged(payload: bytes) -> None:
    with pytest.raises(BadRequest, match="no AMQP message"):
        count_topics(encode_rows(["out"], [payload]))


def test_bodies_that_are_no_rows_are_refused() -> None:
    for body in (b"", b"nothing Arrow would write", body_of("a")[:-60]):
        with pytest.raises(BadRequest):
            count_topics(body)
    with pytest.raises(BadRequest, match="no rows"):
        count_topics(encode_rows([], []))


@pytest.mark.parametrize("topics", [{"": 1}, {"x" * 256: 1}, {"a|b": 1}, {"a": 0}])
def test_topics_that_cannot_be_are_refused(outbox: Outbox, topics: dict[str, int]) -> None:
    with pytest.raises(BadRequest):
        outbox.stage(WRITER, 0, StagedPart(0, "a", 1, 1), 0, topics, body_of("x"))


@pytest.mark.parametrize("sink", ["", "../etc", "a b", ".hidden", "x" * 101])
def test_a_sinks_id_is_a_plain_word(tmp_path: Path, sink: str) -> None:
    with pytest.raises(BadRequest, match="sinkId"):
        Outbox(tmp_path / "o.db", sink)


def test_an_outbox_serves_its_own_sink_and_version_only(outbox: Outbox) -> None:
    with pytest.raises(BadRequest, match="belongs to sink 'sink'"):
        Outbox(outbox.path, "other")
    with closing(sqlite3.connect(outbox.path)) as database, database:
        database.execute("UPDATE oncewire_versions SET version = 99 WHERE feature = 'spark-sink'")
    with pytest.raises(StorageError, match="version 99"):
        Outbox(outbox.path, "sink")


def test_an_outbox_of_an_earlier_version_is_refused_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "sink.db"
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE node_outbox (version INTEGER NOT NULL, sink TEXT NOT NULL)")
        database.execute("INSERT INTO node_outbox VALUES (1, 'sink')")
    with pytest.raises(StorageError, match="let that version process what it has begun"):
        Outbox(path, "sink")
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT * FROM node_outbox").fetchall() == [(1, "sink")]


def test_kill_9_of_writer_and_publisher_tears_no_batch_and_gives_no_number_two_contents(tmp_path: Path) -> None:
    """Batches are nondeterministic: run again they would hold other rows. What is once sent under a number stays."""
    path = tmp_path / "sink.db"
    sent: dict[int, str] = {}
    ended: list[int] = []
    for _ in range(6):
        with subprocess.Popen([sys.executable, "-P", CHILD, path], stdout=subprocess.PIPE, text=True) as child:
            assert child.stdout is not None
            seen = 0
            for line in child.stdout:
                if not line.endswith("\n"):
                    continue
                what, number, text = line.split()
                if what == "sent":
                    assert sent.setdefault(int(number), text) == text
                else:
                    ended.append(int(number))
                seen += 1
                if seen == 150:
                    child.send_signal(signal.SIGKILL)
    assert sorted(sent) == list(range(len(sent)))
    rows_of: dict[str, int] = {}
    for text in sent.values():
        batch, run, _ = text.split("/")
        rows_of[batch] = rows_of.get(batch, 0) + 1
        assert sum(other.split("/")[0] == batch and other.split("/")[1] != run for other in sent.values()) == 0
    assert len(ended) > 100
    outbox = Outbox(path, "sink")
    done = [m for n in range(outbox.marks().manifests) if (m := outbox.manifest(n)) is not None and m.is_done]
    outbox.close()
    assert done
    assert all(rows_of[str(manifest.batch)] == manifest.rows for manifest in done)
