"""J-5: where a batch of a subscription's query ends is decided once, durably, however often it is asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bridges.node import batch_ends
from bridges.node.errors import BadRequest, RangeNotThere
from bridges.node.journal import Arrival, JournalControl, ReceiverJournal
from oncewire.client import SqliteJournal


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A journal with 100 messages."""
    path = tmp_path / "flights.db"
    client = SqliteJournal(path)
    journal = ReceiverJournal(client.connection, path, "flights")
    source = journal.source_id("orders")
    client.begin()
    journal.append([Arrival(source, b"x")] * 100, 1)
    client.commit()
    client.close()
    return path


@pytest.fixture
def control(path: Path) -> Iterator[JournalControl]:
    found = JournalControl(path)
    yield found
    found.close()


def test_the_first_end_of_a_batch_stays_whoever_asks_again(path: Path, control: JournalControl) -> None:
    assert control.choose_end(0, 10) == 10
    assert control.choose_end(0, 70) == 10
    other = JournalControl(path)
    assert other.choose_end(0, 3) == 10
    assert other.choose_end(10, 30) == 30
    other.close()
    assert control.choose_end(10, 100) == 30


def test_an_end_that_cannot_be_is_refused(control: JournalControl) -> None:
    with pytest.raises(BadRequest, match="cannot be empty"):
        control.choose_end(10, 10)
    with pytest.raises(RangeNotThere, match="the newest position is 100"):
        control.choose_end(10, 101)
    assert control.choose_end(10, 100) == 100


def test_ends_of_batches_that_are_gone_are_forgotten_and_only_the_newest_are_kept(
    path: Path, control: JournalControl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batch_ends, "KEPT_ENDS", 3)
    for start in range(0, 50, 10):
        control.choose_end(start, start + 10)

    def known() -> list[int]:
        with control._file.looking() as do:
            return [row[0] for row in do.execute("SELECT start FROM node_ends ORDER BY start")]

    assert known() == [20, 30, 40]
    control.trim(35, 1.0)
    assert not control.delete_expired(1.0)
    control.choose_end(50, 60)
    assert known() == [40, 50]


def test_a_query_that_comes_after_a_release_makes_batches_of_its_own(control: JournalControl) -> None:
    control.claim("one")
    assert control.choose_end(0, 10) == 10
    control.release()
    assert control.choose_end(0, 20) == 20
