"""`oncewire demo-journal`: its checker, its errors, its end by Ctrl-C, and small runs with real kills."""

from __future__ import annotations

import signal
from contextlib import ExitStack, closing
from pathlib import Path

import click
import pytest

from bridges.journal import log
from bridges.journal.contents import JOURNALS
from bridges.journal.model import JournalSettings, NewMessage
from chaos.experiments.journal_demo.cli import demo_journal
from chaos.experiments.journal_demo.report import Kind
from chaos.experiments.journal_demo.run import EXTRA_KILLS, JournalOptions, Stored
from chaos.experiments.journal_demo.verdict_core import body_of, judge, topic_of
from oncewire.cli.run import run
from oncewire.store.contents import Contents
from oncewire.store.opening import open_store
from oncewire.wire import Message, encode_message
from tests.chaos.demo_process import break_off, run_to_its_end
from tests.store.databases import Servers, SqlDatabase, new_address

ROW = b"2013,1,1,517,515,2,830,819,11,%s,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z"
A1, B2, A3, B4 = BODIES = [body_of(number, ROW % carrier) for number, carrier in enumerate([b"AA", b"B6"] * 2, 1)]


def test_each_row_is_published_to_the_topic_of_its_carrier() -> None:
    assert [topic_of(body) for body in BODIES] == ["flights.AA", "flights.B6"] * 2


def test_a_journal_may_mix_topics_and_a_reader_may_not_mix_the_journal() -> None:
    mixed = [B2, A1, A3, B4]
    assert judge("journal", BODIES, mixed, topic_of).is_exact
    assert judge("reader", BODIES, mixed).reordered == 1
    assert judge("reader", mixed, mixed).is_exact


@pytest.mark.parametrize(
    ("found", "fault"),
    [
        ([A1, B2, A3], "lost"),
        ([A1, B2, A3, B4, B2], "twice"),
        ([A3, A1, B2, B4], "reordered"),
        ([*BODIES, b"x"], "unexpected"),
    ],
)
def test_the_verdict_sees_each_fault(found: list[bytes], fault: str) -> None:
    finding = judge("journal", BODIES, found, topic_of)
    faults = {name: getattr(finding, name) for name in ("lost", "twice", "reordered", "unexpected")}
    assert faults == {name: int(name == fault) for name in faults}
    assert not finding.is_exact


def test_each_kind_is_killed_as_often() -> None:
    schedule = JournalOptions(messages=1000, kills=6, routers=3, seed=7).schedule()
    assert sorted(kind.value for kind in schedule) == sorted([kind.value for kind in Kind] * 2)


def test_the_journal_is_taken_out_of_the_store_and_leaves_no_message_there(tmp_path: Path) -> None:
    stored = Stored(f"sqlite:///{tmp_path / 'edge.db'}", "flights")
    assert stored.take() == []
    messages = [NewMessage(encode_message(Message(body=body))) for body in BODIES]
    with closing(open_store(stored.url, Contents([JOURNALS]))) as store:
        store.transact([lambda do: log.configure(do, "flights", JournalSettings())])
        store.transact([lambda do: log.append(do, "flights", messages)])
        assert stored.take() == BODIES
        count = "SELECT count(*) FROM oncewire_journal_messages"
        assert store.transact([lambda do: (log.journals(do), do.execute(count))])[0] == [([], [(0,)])]


def test_a_store_that_cannot_be_opened_is_an_error_before_anything_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["demo-journal", "--messages", "1000", "--store", f"file://{tmp_path}"]
    assert run(arguments, click.Group(commands={"demo-journal": demo_journal})) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: ")
    assert "what to do: use sqlite:///store.db or postgresql://" in said


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))])
def test_a_run_is_exact_and_ends_with_its_json_line_and_leaves_nothing_behind(kind: str, tmp_path: Path) -> None:
    words = ["--messages", "2000", "--routers", "2"]
    with ExitStack() as stack:
        if kind == "postgresql":
            words += ["--store", SqlDatabase(kind, new_address(kind, tmp_path, Servers(stack))).url]
        result, _ = run_to_its_end(tmp_path / "temporary", "demo-journal", *words)
    assert result["published"] == result["stored"] == 2000
    assert (result["lost"], result["duplicated"], result["reordered"], result["unexpected"]) == (0, 0, 0, 0)
    assert [place["count"] for place in result["places"]] == [2000] * 5
    assert result["kills"] == {"router": 2, "edge": 2, "reader": 2 + EXTRA_KILLS}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_a_run_that_is_broken_off(tmp_path: Path, number: signal.Signals) -> None:
    break_off(tmp_path / "temporary", number, "demo-journal")
