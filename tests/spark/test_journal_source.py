"""A source of journals without a JVM: planner and tasks, driven as Spark drives them, against a real edge."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trustme

from bridges.journal.model import JournalSettings, KeyOf
from bridges.journal.pages import decode_page
from bridges.node.errors import (
    BadRequest,
    JournalReplaced,
    NodeError,
    NodeUnavailable,
    NotAuthenticated,
    RangeNotThere,
    RangeTrimmed,
)
from bridges.spark.edge_client import EdgeAddress, EdgeClient, JournalMissing
from bridges.spark.journal_options import AtTime, Places, journal_options
from bridges.spark.journal_reading import JournalPlanner, JournalRange, plan_journal_read, read_journal
from bridges.spark.option_values import Place, TooLate
from bridges.spark.reading import Limits
from oncewire.cli.users_file import line_of, write
from tests.spark.journal_edge import JournalEdge
from tests.spark.query_life import Clock, numbers

EDGE = "http://127.0.0.1:7074"
GIVEN = {"journal": "orders", "edge": EDGE}


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[JournalEdge]:
    with JournalEdge(tmp_path_factory.mktemp("edge")) as found:
        yield found


@pytest.fixture
def journal(edge: JournalEdge, request: pytest.FixtureRequest) -> str:
    """A journal of this test alone."""
    name = request.node.name.partition("[")[0][:90]
    edge.make(name)
    return str(name)


PLANNERS: list[JournalPlanner] = []


@pytest.fixture(autouse=True)
def no_connection_is_left_open() -> Iterator[None]:
    yield
    while PLANNERS:
        PLANNERS.pop().close()


class Query:
    """A streaming query's life as Spark lives it: ends are written down first, as text; then tasks; then the commit."""

    def __init__(self, edge: JournalEdge, journal: str, **given: str) -> None:
        self.options = journal_options({"edge": edge.url, "journal": journal, **given}, is_stream=True)
        self.clock = Clock()
        self.log: list[str] = []
        self.start_over()

    def start_over(self) -> None:
        """The driver dies and is started again: Spark asks for the beginning again, if no batch is committed."""
        self.planner = JournalPlanner(self.options, EdgeClient(self.options.edge, patience_s=0.0), self.clock)
        PLANNERS.append(self.planner)

    def place(self, batch: int) -> dict[str, Any]:
        if batch < 0:
            return self.planner.initial()
        found: dict[str, Any] = json.loads(self.log[batch])
        return found

    def plan(self) -> bool:
        """Write down the next batch, if there is one."""
        start = self.place(len(self.log) - 1)
        end = self.planner.latest(start, Limits(self.options.max_rows, self.options.max_bytes, self.options.min_rows))
        if self.log and json.dumps(end) == self.log[-1]:
            return False
        self.log.append(json.dumps(end))
        return True

    def ranges(self, batch: int) -> list[JournalRange]:
        return self.planner.ranges(self.place(batch - 1), self.place(batch))

    def rows(self, batch: int) -> list[str]:
        return [value for part in self.ranges(batch) for value in self.read(part)]

    def read(self, part: JournalRange) -> list[str]:
        with EdgeClient(self.options.edge, patience_s=0.0) as client:
            return texts(read_journal(self.options, client, part))

    def run(self) -> list[str]:
        """The next batch; nothing if there is none."""
        return self.rows(len(self.log) - 1) if self.plan() else []


def texts(batches: Iterator[Any]) -> list[str]:
    return [value.decode() for batch in batches for value in batch.column("value").to_pylist()]


def batch_read(edge: JournalEdge, journal: str, **given: str) -> list[str]:
    options = journal_options({"edge": edge.url, "journal": journal, **given}, is_stream=False)
    with EdgeClient(options.edge, patience_s=0.0) as client:
        return [v for part in plan_journal_read(options, client) for v in texts(read_journal(options, client, part))]


# --- exactly once from the offsets alone ------------------------------------------------------------------------------


def test_a_batch_that_is_repeated_has_the_same_rows_whatever_came_meanwhile(edge: JournalEdge, journal: str) -> None:
    edge.append_numbers(journal, 0, 10)
    query = Query(edge, journal, startingOffsets="earliest", maxOffsetsPerTrigger="6")
    assert query.run() == numbers(0, 6)
    edge.append_numbers(journal, 10, 12)
    query.start_over()
    assert query.rows(0) == numbers(0, 6)
    assert (query.run(), query.run(), query.run()) == (numbers(6, 12), [], [])
    assert query.rows(1) == numbers(6, 12)


@pytest.mark.parametrize("rows", [0, 3])
def test_the_first_batch_comes_again_as_it_was_though_it_began_with_latest(
    edge: JournalEdge, request: pytest.FixtureRequest, rows: int
) -> None:
    """Spark asks for the beginning again when it repeats batch 0, and latest is elsewhere then."""
    journal = f"latest-{rows}"
    edge.make(journal)
    edge.append_numbers(journal, 0, 10)
    query = Query(edge, journal)
    start = query.place(-1)
    edge.append_numbers(journal, 10, 10 + rows)
    query.log = [json.dumps(query.planner.latest(start, Limits()))]
    assert [v for part in query.planner.ranges(start, query.place(0)) for v in query.read(part)] == numbers(
        10, 10 + rows
    )
    edge.append_numbers(journal, 50, 55)
    query.start_over()
    assert query.rows(0) == numbers(10, 10 + rows)
    assert query.run() == numbers(50, 55)


def test_queries_of_one_journal_do_not_know_of_each_other(edge: JournalEdge, journal: str) -> None:
    edge.append_numbers(journal, 0, 5)
    first, second = Query(edge, journal, startingOffsets="earliest"), Query(edge, journal, startingOffsets="earliest")
    assert first.run() == second.run() == numbers(0, 5)
    edge.append_numbers(journal, 5, 7)
    assert first.run() == numbers(5, 7)
    assert batch_read(edge, journal) == numbers(0, 7)
    assert second.run() == numbers(5, 7)


def test_rows_have_kafkas_columns_and_the_name_of_their_journal(edge: JournalEdge, journal: str) -> None:
    edge.append(journal, ["one"], "orders.new")
    edge.append(journal, ["two"], "")  # sent to the journal itself
    options = journal_options({"edge": edge.url, "journal": journal}, is_stream=False)
    with EdgeClient(options.edge) as client:
        (part,) = plan_journal_read(options, client)
        (batch,) = read_journal(options, client, part)
    one, two = batch.to_pylist()
    assert (one["topic"], one["partition"], one["offset"], one["journal"]) == ("orders.new", 0, 1, journal)
    assert (two["topic"], two["offset"]) == ("", 2)
    stored = edge.messages(journal)[0].arrived_us
    assert one["timestamp"] == datetime.fromtimestamp(stored / 1e6, UTC)


# --- where it starts and ends -----------------------------------------------------------------------------------------


def test_a_stream_starts_at_the_newest_message_and_a_batch_read_at_the_oldest(edge: JournalEdge, journal: str) -> None:
    """As Kafka's connector does."""
    edge.append_numbers(journal, 0, 3)
    assert Query(edge, journal).run() == []
    assert batch_read(edge, journal) == numbers(0, 3)


def test_offsets_of_kafkas_form_name_the_first_row_and_the_one_behind_the_last(edge: JournalEdge, journal: str) -> None:
    edge.append_numbers(journal, 0, 10)  # with the offsets 1 to 10
    kafkas = {"startingOffsets": {journal: {"0": 4}}, "endingOffsets": {journal: {"0": 8}}}
    ours = {"startingOffsets": {journal: 3}, "endingOffsets": {journal: 7}}
    for given in (kafkas, ours):
        assert batch_read(edge, journal, **{key: json.dumps(value) for key, value in given.items()}) == numbers(3, 7)
    assert Query(edge, journal, startingOffsets=json.dumps({journal: {"0": -2}})).run() == numbers(0, 10)


def test_a_time_is_the_first_message_that_was_stored_then_or_later(edge: JournalEdge, journal: str) -> None:
    for number in range(4):
        edge.append_numbers(journal, number, number + 1)
    times = [message.arrived_us for message in edge.messages(journal)]
    at = datetime.fromtimestamp(times[2] / 1e6, UTC).isoformat()
    late = str(times[3] // 1000 + 60_000)
    assert batch_read(edge, journal, startingTimestamp=at) == numbers(2, 4)
    assert batch_read(edge, journal, endingTimestamp=at, startingOffsets="earliest") == numbers(0, 2)
    named = json.dumps({journal: {"0": at}})
    assert batch_read(edge, journal, startingOffsetsByTimestamp=named, startingOffsets="latest") == numbers(2, 4)
    assert batch_read(edge, journal, endingOffsetsByTimestamp=named) == numbers(0, 2)
    assert batch_read(edge, journal, endingTimestamp=late) == numbers(0, 4)
    with pytest.raises(BadRequest, match="nothing was stored then or later; give an earlier time, or starting"):
        batch_read(edge, journal, startingTimestamp=late)
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert batch_read(edge, journal, startingTimestamp=late, **strategy) == []


def test_available_now_reads_what_was_there_when_it_was_started(edge: JournalEdge, journal: str) -> None:
    edge.append_numbers(journal, 0, 5)
    query = Query(edge, journal, startingOffsets="earliest", maxOffsetsPerTrigger="3", minOffsetsPerTrigger="2")
    query.planner.fix_target()
    edge.append_numbers(journal, 5, 9)
    assert (query.run(), query.run(), query.run()) == (numbers(0, 3), numbers(3, 5), [])


def test_a_batch_waits_for_its_least_number_of_messages_and_no_longer_than_it_may(
    edge: JournalEdge, journal: str
) -> None:
    edge.append_numbers(journal, 0, 2)
    query = Query(edge, journal, startingOffsets="earliest", minOffsetsPerTrigger="3", maxTriggerDelay="10s")
    assert query.run() == []
    query.clock.now += 10
    assert query.run() == numbers(0, 2)
    edge.append_numbers(journal, 2, 5)
    assert query.run() == numbers(2, 5)


def test_batches_are_cut_into_tasks_and_limited_by_bytes(edge: JournalEdge, journal: str) -> None:
    edge.append(journal, [b"x" * 1000] * 40)
    query = Query(edge, journal, startingOffsets="earliest", maxBytesPerTrigger="21k", minPartitions="3")
    assert query.plan()
    assert [(part.low, part.high) for part in query.ranges(0)] == [(0, 6), (6, 13), (13, 20)]
    few = Query(edge, journal, startingOffsets="earliest", maxRecordsPerPartition="15")
    assert few.plan()
    assert [part.high - part.low for part in few.ranges(0)] == [13, 13, 14]


def test_several_journals_have_their_places_and_one_may_be_added_later(edge: JournalEdge) -> None:
    for name, count in (("north", 4), ("south", 2), ("west", 1)):
        edge.make(name)
        edge.append(name, [f"{name}-{number}" for number in range(count)])
    query = Query(edge, "north,south", startingOffsets="earliest", maxOffsetsPerTrigger="4")
    assert query.run() == ["north-0", "north-1", "south-0"]
    more = Query(edge, "north,south,west", maxOffsetsPerTrigger="10")
    more.log = list(query.log)
    assert more.run() == ["north-2", "north-3", "south-1", "west-0"]
    assert more.rows(1) == ["north-2", "north-3", "south-1", "west-0"]
    fewer = Query(edge, "north")
    fewer.log = list(query.log)
    with pytest.raises(BadRequest, match="it is of 'south', too"):
        fewer.plan()
    fewer.log = [json.dumps({"north": {"seq": 3}})]
    with pytest.raises(BadRequest, match="use the checkpoint of a query with the option `journal`"):
        fewer.plan()


def test_a_pattern_finds_journals_and_those_that_are_made_later_from_their_beginning(edge: JournalEdge) -> None:
    for name in ("sensors-1", "sensors-2", "others"):
        edge.make(name)
        edge.append(name, [f"{name} old"])
    query = Query(edge, "", journalPattern="sens.*", maxOffsetsPerTrigger="1")
    assert query.run() == []
    edge.make("sensors-3")
    for number in (1, 2, 3):
        edge.append(f"sensors-{number}", [f"{number} new"])
    assert query.run() == ["1 new", "2 new"]  # one of each at least
    query.clock.now += 30
    assert query.run() == ["3 new"]
    assert query.rows(2) == ["3 new"]
    assert batch_read(edge, "", journalPattern="sensors-[12]")[::2] == ["sensors-1 old", "sensors-2 old"]
    with pytest.raises(JournalMissing, match="no journal has a name that matches"):
        batch_read(edge, "", journalPattern="nobody.*")


# --- what is lost -----------------------------------------------------------------------------------------------------


def test_messages_that_retention_has_deleted_fail_the_query_unless_it_may_go_on(
    edge: JournalEdge, journal: str, caplog: pytest.LogCaptureFixture
) -> None:
    edge.append_numbers(journal, 0, 10)
    query = Query(edge, journal, startingOffsets="earliest", maxOffsetsPerTrigger="2")
    assert query.run() == numbers(0, 2)
    edge.trim(journal, 5)
    with pytest.raises(
        RangeTrimmed, match=r"position 3: its retention, or somebody, has deleted messages up to 5; it h"
    ):
        query.plan()
    with pytest.raises(RangeTrimmed):
        query.rows(0)
    lenient = Query(edge, journal, failOnDataLoss="false")
    lenient.log = list(query.log)
    with caplog.at_level(logging.WARNING, "oncewire.spark"):
        assert lenient.run() == numbers(5, 10)
    assert "failOnDataLoss is false" in caplog.text
    assert lenient.rows(0) == []


def test_what_is_deleted_while_a_task_reads_is_noticed(edge: JournalEdge, journal: str) -> None:
    edge.append_numbers(journal, 0, 10)
    query = Query(edge, journal, startingOffsets="earliest")
    assert query.plan()
    (part,) = query.ranges(0)
    edge.trim(journal, 4)
    with pytest.raises(RangeTrimmed):
        query.read(part)
    lenient = Query(edge, journal, failOnDataLoss="false")
    assert lenient.read(part) == numbers(4, 10)
    edge.replace(journal)
    edge.append_numbers(journal, 0, 20)
    with pytest.raises(JournalReplaced):
        query.read(part)
    assert lenient.read(part) == []


def test_a_journal_that_was_made_again_is_refused_unless_the_query_may_go_on(edge: JournalEdge, journal: str) -> None:
    edge.append_numbers(journal, 0, 10)
    query = Query(edge, journal, startingOffsets="earliest")
    assert query.run() == numbers(0, 10)
    edge.replace(journal)
    edge.append_numbers(journal, 20, 23)
    with pytest.raises(
        JournalReplaced, match="deleted and made again, or its store was restored; start with a new check"
    ):
        query.plan()
    lenient = Query(edge, journal, failOnDataLoss="false")
    lenient.log = list(query.log)
    assert lenient.run() == numbers(20, 23)
    edge.append_numbers(journal, 23, 24)
    assert lenient.run() == numbers(23, 24)


def test_a_compacted_journal_has_holes_and_they_are_no_loss(edge: JournalEdge) -> None:
    edge.make("compacted", JournalSettings(compact_by=KeyOf.SUBJECT))
    edge.append_numbers("compacted", 0, 3)
    assert batch_read(edge, "compacted", minPartitions="3") == numbers(0, 3)


@pytest.mark.parametrize(
    ("given", "error", "what"),
    [
        ({"journal": "nobody"}, JournalMissing, "there is no journal 'nobody'"),
        ({"startingOffsets": '{"small": 7}'}, RangeNotThere, "it has 1 to 3"),
        ({"startingOffsets": '{"small": {"journal": "abc", "seq": 2}}'}, JournalReplaced, "is of journal abc"),
    ],
)
def test_places_that_are_not_there_are_refused(
    edge: JournalEdge, given: dict[str, str], error: type[NodeError], what: str
) -> None:
    edge.make("small")
    if not edge.messages("small"):
        edge.append_numbers("small", 0, 3)
    with pytest.raises(error, match=what):
        Query(edge, **{"journal": "small", **given}).plan()


def test_a_checkpoint_of_kafkas_connector_is_refused_and_the_error_says_how_to_go_on(edge: JournalEdge) -> None:
    edge.make("small")
    query = Query(edge, "small")
    query.log.append('{"orders": {"0": 17, "1": 3}}')
    with pytest.raises(BadRequest, match=r"Kafka's connector, which read orders; give a new checkpointLocation"):
        query.plan()


# --- the edge ---------------------------------------------------------------------------------------------------------


def test_an_edge_that_is_started_again_or_another_one_is_waited_for(tmp_path: Path) -> None:
    with JournalEdge(tmp_path) as edge:
        edge.make("orders")
        edge.append_numbers("orders", 0, 3)
        client = EdgeClient(EdgeAddress(("http://127.0.0.1:1", edge.url)))
        assert client.standing("orders").last == 3
        edge.end()
        edge.start(int(edge.url.rpartition(":")[2]))
        assert [len(page.messages) for page in client.read("orders", 0, 3)] == [3]
        client.close()
    with pytest.raises(NodeUnavailable, match="see whether `oncewire edge serve` runs there"):
        EdgeClient(EdgeAddress((edge.url,)), patience_s=0.0).standing("orders")


def test_executors_log_in_over_tls_with_secrets_that_no_plan_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "edge.pem"))
    write(str(tmp_path / "users"), [line_of("spark", "a long password")])
    (tmp_path / "password").write_text("a long password\n")
    http = f"""[http]
host = "localhost"
tls = true
users_file = "{tmp_path}/users"
rules = [{{users = ["spark"], read = ["orders"]}}]
[tls]
cert_file = "{tmp_path}/edge.pem"
"""
    with JournalEdge(tmp_path, http) as edge:
        edge.make("orders")
        edge.make("secrets")
        edge.append_numbers("orders", 0, 3)
        assert edge.url.startswith("https://localhost:")
        tls = {"edge": edge.url, "edge.tls.ca": str(tmp_path / "ca.pem"), "edge.user": "spark"}
        by_file = {**tls, "edge.passwordFile": str(tmp_path / "password")}

        def read(given: dict[str, str], journal: str = "orders") -> list[str]:
            options = pickle.loads(pickle.dumps(journal_options({**given, "journal": journal}, is_stream=False)))
            assert b"long password" not in pickle.dumps(options)
            with EdgeClient(options.edge, patience_s=0.0) as client:
                parts = plan_journal_read(options, client)
                return [value for part in parts for value in texts(read_journal(options, client, part))]

        assert read(by_file) == numbers(0, 3)
        with pytest.raises(NotAuthenticated, match=r"no rule of http\.rules lets spark read journal 'secrets'"):
            read(by_file, "secrets")
        with pytest.raises(BadRequest, match=r"neither edge\.passwordFile nor ONCEWIRE_PASSWORD"):
            read(tls)
        monkeypatch.setenv("ONCEWIRE_PASSWORD", "a long password")
        assert read(tls) == numbers(0, 3)
        monkeypatch.setenv("ONCEWIRE_PASSWORD", "another one")
        with pytest.raises(NotAuthenticated):
            read(tls)
        with pytest.raises(NotAuthenticated, match=r"set edge\.tls\.ca to its authority's file"):
            read({"edge": edge.url})


@pytest.mark.parametrize("data", [b"", b"\0\0\0\5", b"\0\0\0\2{}", b"<html>"])
def test_an_answer_that_is_no_page_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        decode_page(data)


# --- options ----------------------------------------------------------------------------------------------------------


def test_options_of_journals_become_places() -> None:
    options = journal_options({**GIVEN, "edge": f"{EDGE}/, {EDGE}", "journal": "a, b"}, is_stream=True)
    assert (options.edge.urls, options.journals) == ((EDGE, EDGE), ("a", "b"))
    assert options.starts == Places(Place("latest"))
    options = journal_options({**GIVEN, "startingTimestamp": "1700000000000"}, is_stream=False)
    assert options.starts == Places(AtTime(1_700_000_000_000_000, TooLate.ERROR))
    assert options.ends.of("orders") == Place("latest")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"edge": ""}, "the option edge is missing"),
        ({"journal": "a,,b"}, "one of the names is empty"),
        ({"edge": "tcp://h:1"}, "no address of an edge's HTTP"),
        ({"edge": "http://ann:secret@h:1"}, "see edge.user"),
        ({"edge": "http://h:1,https://h:2"}, "some have TLS and some do not"),
        ({"edge.tls.ca": "/ca.pem"}, "write https://HOST:PORT"),
        ({"edge.passwordFile": "/p"}, "a user has a name and a password"),
        ({"subscription": "billing"}, "it is of subscriptions, and journals are read"),
        ({"startingOffsets": '{"sensors": {"0": 5}}'}, "it names 'sensors'; name all journals that are read, 'orders'"),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": 5, "1": 6}}'}, "has one partition, 0"),
        ({"journalPattern": "a.*"}, "journal is given, too"),
        ({"journal": "", "journalPattern": "a("}, "it is no regular expression"),
        ({"journal": "", "journalPattern": "a.*", "startingOffsets": '{"a": 1}'}, "journalPattern may find others"),
        ({"startingTimestamp": "yesterday"}, "it is no time; give milliseconds since 1970"),
        ({"endingTimestamp": "5"}, "a stream has no end"),
        ({"journal": "a,b", "maxOffsetsPerTrigger": "1"}, "there are 2 journals"),
        ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "more than maxOffsetsPerTrigger"),
    ],
)
def test_what_cannot_be_used_is_refused_and_the_error_says_why(change: dict[str, str], what: str) -> None:
    with pytest.raises(BadRequest) as caught:
        journal_options({**GIVEN, **change}, is_stream=True)
    assert what in str(caught.value)
