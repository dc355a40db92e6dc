"""The journal of events: what it keeps over kills, and what it refuses to read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.clients.events import (
    Accepted,
    Attached,
    Closed,
    Confirmed,
    Disconnected,
    Event,
    EventJournal,
    Incarnation,
    JournalError,
    JournalTail,
    Opened,
    OutcomeUnknown,
    Processed,
    Received,
    Refused,
    Resumed,
    Sent,
    decode_event,
    digest_of,
    encode_event,
    read_journal,
)

TIMES = st.floats(min_value=0, max_value=1e9, allow_nan=False)
SEQS = st.integers(min_value=1, max_value=2**40)
EVENTS: st.SearchStrategy[Event] = st.one_of(
    st.builds(Opened, TIMES, st.text(), SEQS),
    st.builds(Attached, TIMES, st.text()),
    st.builds(Resumed, TIMES, st.text(), SEQS),
    st.builds(Disconnected, TIMES, st.text()),
    st.builds(Sent, TIMES, SEQS, st.text()),
    st.builds(Accepted, TIMES, SEQS),
    st.builds(Refused, TIMES, SEQS, st.text()),
    st.builds(OutcomeUnknown, TIMES, SEQS),
    st.builds(Incarnation, TIMES, SEQS),
    st.builds(Confirmed, TIMES),
    st.builds(Received, TIMES, st.text(), SEQS, st.text(), st.booleans()),
    st.builds(Processed, TIMES, st.text(), SEQS, st.text()),
    st.builds(Closed, TIMES),
)


@given(EVENTS)
def test_every_event_is_read_back_as_it_was_written(event: Event) -> None:
    line = encode_event(event)
    assert "\n" not in line
    assert decode_event(line) == event


@pytest.mark.parametrize("line", ['{"event":"sent"}', '{"event":"eaten","t":1}', "[1]", "", '{"t":1}', "{"])
def test_a_line_that_is_no_event_is_refused(line: str) -> None:
    with pytest.raises(JournalError, match="not an event"):
        decode_event(line)


def test_a_torn_last_line_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with EventJournal(path) as journal:
        journal.write(Opened(1.0, "p"), Sent(2.0, 1, "d"), Accepted(3.0, 1))
    for cut in range(1, len(encode_event(Accepted(3.0, 1))) + 1):
        data = path.read_bytes()
        torn = tmp_path / "torn"
        torn.write_bytes(data[: -1 - cut])
        assert read_journal(torn) == [Opened(1.0, "p"), Sent(2.0, 1, "d")]


def test_a_second_life_goes_on_after_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_text(encode_event(Opened(1.0, "s")) + '\n{"event":"recei')
    with EventJournal(path) as journal:
        journal.write(Opened(5.0, "s"), Closed(6.0))
    assert read_journal(path) == [Opened(1.0, "s"), Opened(5.0, "s"), Closed(6.0)]


def test_a_broken_line_that_no_kill_explains_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_text("\n".join([encode_event(Opened(1.0, "s")), "garbage", encode_event(Closed(2.0)), ""]))
    with pytest.raises(JournalError, match=r"journal: not an event: 'garbage"):
        read_journal(path)


def test_what_was_written_survives_a_sigkill(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    program = (
        "import sys, os\n"
        "from pathlib import Path\n"
        "from chaos.clients.events import EventJournal, Accepted\n"
        "journal = EventJournal(Path(sys.argv[1]))\n"
        "for seq in range(1, 10_000_000):\n"
        "    journal.write(Accepted(0.0, seq))\n"
        "    if seq == 1000: os.write(1, b'x')\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    assert os.read(writer.stdout.fileno(), 1) == b"x"
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    events = read_journal(path)
    assert len(events) >= 1000
    assert events == [Accepted(0.0, seq) for seq in range(1, len(events) + 1)]


def test_the_tail_of_a_growing_journal_gives_each_event_once(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    tail = JournalTail(path)
    assert tail.read() == []
    lines = "".join(encode_event(Accepted(1.0, seq)) + "\n" for seq in range(1, 21)).encode()
    seen: list[Event] = []
    with path.open("ab", buffering=0) as file:
        for start in range(0, len(lines), 7):
            file.write(lines[start : start + 7])
            seen += tail.read()
    assert seen == [Accepted(1.0, seq) for seq in range(1, 21)]
    assert tail.read() == []


def test_digests_notify_bodies_apart() -> None:
    assert digest_of(b"2013,1,1") == digest_of(b"2013,1,1")
    assert digest_of(b"2013,1,1") != digest_of(b"2013,1,2")
