"""Logs of several routers as one timeline: both forms, packed, from stdin, with lines of others in between."""

from __future__ import annotations

import gzip
import itertools
import json
import logging
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from delivery_records.model.effects import Note
from delivery_records.model.outcomes import Decision
from oncewire.cli.log_output import JsonFormatter, TextFormatter
from router.commands.log_merge_core import ATTACHED_LINES, entries, merged, parse
from router.process.logs import EventLog, RouterEvent
from tests.delivery_records.harness import Net

START = datetime(2026, 11, 21, 12, tzinfo=UTC)


def stamp(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def text(seconds: float, router: str, event: str, **fields: object) -> str:
    return " ".join([stamp(seconds), "info", event, f"router={router}", *(f"{k}={v}" for k, v in fields.items())])


def as_json(seconds: float, router: str, event: str, **fields: object) -> str:
    return json.dumps({"time": stamp(seconds), "level": "info", "event": event, "router": router, **fields})


def merge(*arguments: str | Path, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    program = "import sys; from oncewire.cli.run import run; sys.exit(run(sys.argv[1:]))"
    return subprocess.run(
        [sys.executable, "-c", program, "logs", "merge", *map(str, arguments)],
        input=stdin,
        capture_output=True,
        check=False,
        timeout=60,
    )


WHY = 'he said "no" = no\nand left\x1b[2J\r\u2028'


@pytest.mark.parametrize("form", [JsonFormatter(), TextFormatter()])
def test_what_the_router_logs_is_read_back_in_both_forms(
    form: logging.Formatter, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="oncewire.router")
    log = EventLog("r1")
    log.incarnation = "7f"
    log.event(RouterEvent.NEIGHBOUR_DOWN, neighbour="r2", why=WHY, empty="")
    line = form.format(caplog.records[0])
    assert line.isprintable()  # one line, and nothing a terminal obeys
    found = parse(line, "r1.log")
    assert found is not None
    assert (found.router, found.level, found.event) == ("r1", "info", "neighbour_down")
    assert found.as_text().isprintable()
    fields = {key: value for key, value in found.fields.items() if key != "router_rid"}
    assert fields == {"neighbour": "r2", "why": WHY, "empty": ""}
    assert found.fields.get("router_rid", "7f") == "7f"


def test_a_json_log_names_the_routers_life(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="oncewire.router")
    log = EventLog("r1")
    log.event(RouterEvent.STORE_BACK)
    log.incarnation = "7f"
    log.event(RouterEvent.STORE_BACK)
    lines = [json.loads(JsonFormatter().format(record)) for record in caplog.records]
    assert [line.get("router_rid") for line in lines] == [None, "7f"]


def test_no_event_of_the_record_core_hides_the_name_of_its_router() -> None:
    net = Net(2)
    subscriber, publisher = net.subscriber(net.nodes[1]), net.publisher(net.nodes[0])
    publisher.send(b"1")
    subscriber.drop()
    net.kill(net.nodes[1])
    reported = [note for node in net.nodes for note in node.all(Note)]
    assert Decision.CHANNEL_UP in {note.decision for note in reported}
    assert [note for note in reported if {"time", "level", "event", "router", "router_rid"} & set(note.fields)] == []


def test_entries_of_several_logs_come_in_the_order_of_their_times() -> None:
    logs = [
        ("a", [text(0, "r1", "x"), text(3, "r1", "x"), text(4, "r1", "x")]),
        ("b", [as_json(1, "r2", "x"), as_json(3, "r2", "x"), as_json(9, "r2", "x")]),
        ("c", []),
    ]
    assert [(entry.router, entry.at.second) for entry in merged(logs)] == [
        ("r1", 0),
        ("r2", 1),
        ("r1", 3),
        ("r2", 3),
        ("r1", 4),
        ("r2", 9),
    ]


def test_a_foreign_line_stays_with_the_line_before_it() -> None:
    lines = ["a banner", text(0, "r1", "x"), "Traceback (most recent call last):", "  File ...", "", text(2, "r1", "y")]
    other = [text(1, "r2", "z")]
    found = list(merged([("a", lines), ("b", other)]))
    assert [(entry.event, entry.lines) for entry in found] == [
        ("", ["a banner"]),
        ("x", ["Traceback (most recent call last):", "  File ...", ""]),
        ("z", []),
        ("y", []),
    ]


def test_lines_that_only_look_like_ours_are_foreign() -> None:
    time = stamp(0)
    for line in ("{not json", "[1]", '{"time": 3}', '{"event": "x"}', time, f"{time} shout x", f"{time} info", ""):
        assert parse(line, "a") is None, line


@pytest.mark.parametrize(
    "line",
    [
        '{"time":"2026-01-01T00:00:00Z","level":"info","event":"x","a":' + "[" * 100_000,
        '{"time":"2026-01-01T00:00:00Z","level":"info","event":"x","a":' + "1" * 5_000 + "}",
        "9999-12-31T23:59:59-05:00 info x router=r1",
        "0001-01-01T00:00:00+05:00 info x router=r1",
    ],
    ids=["deep", "long-number", "after-the-calendar", "before-it"],
)
def test_a_broken_line_is_foreign_and_ends_nothing(line: str) -> None:
    found = list(merged([("a", [text(1, "r1", "one"), line, text(2, "r1", "two")])]))
    assert [entry.event for entry in found] == ["one", "two"]
    assert found[0].lines == [line]
    assert all(entry.as_text() and json.dumps(entry.as_data()) for entry in found)


def test_nothing_in_a_log_acts_on_a_terminal_or_breaks_the_output(tmp_path: Path) -> None:
    said = {"who": "\ud800\x1b[2J\rnobody", "number": float("nan"), "traceback": "one\x1b[2J\n  two\ud800"}
    log = tmp_path / "a.log"
    log.write_text(as_json(0, "r\x1b1", "fault\ud800", **said) + "\n" + "another program\x1b[2J\n")
    done = merge(log)
    assert done.returncode == 0, done.stderr
    shown = done.stdout.decode()
    assert all(c.isprintable() or c == "\n" for c in shown)
    assert "nobody" in shown
    assert [line.strip() for line in shown.splitlines()[1:]] == ["one\\x1b[2J", "two\\ud800", "another program\\x1b[2J"]
    printed = merge("--json", log)
    assert json.loads(printed.stdout, parse_constant=pytest.fail)["fields"]["number"] == "NaN"


def test_a_name_with_control_characters_stays_on_its_line_in_a_text_log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="oncewire.router")
    EventLog("r1").event(RouterEvent.NEIGHBOUR_DOWN, neighbour="r2\r2026-01-01\x1b[2J\u2028")
    line = TextFormatter().format(caplog.records[0])
    assert line.isprintable()
    found = parse(line, "r1.log")
    assert found is not None
    assert found.fields["neighbour"] == "r2\r2026-01-01\x1b[2J\u2028"


def test_a_flood_of_foreign_lines_is_kept_in_pieces() -> None:
    flood = [f"line {number}" for number in range(3 * ATTACHED_LINES)]
    found = list(entries([text(0, "r1", "x"), *flood], "a"))
    assert [line for entry in found for line in entry.lines] == flood
    assert max(len(entry.lines) for entry in found) == ATTACHED_LINES


def test_a_clock_that_was_set_back_keeps_the_order_of_its_own_log() -> None:
    lines = [text(5, "r1", "a"), text(1, "r1", "b"), text(6, "r1", "c")]
    found = list(merged([("a", lines), ("b", [text(3, "r2", "z"), text(5.5, "r2", "z")])]))
    assert [entry.event for entry in found] == ["z", "a", "b", "z", "c"]


def test_a_log_is_read_no_further_than_the_timeline_has_come() -> None:
    read = {"a": 0, "b": 0}

    def endless(name: str) -> Iterator[str]:
        for second in itertools.count():
            read[name] += 1
            yield text(second, name, "x")

    for entry in itertools.islice(merged([("a", endless("a")), ("b", endless("b"))]), 1000):
        assert entry.event == "x"
    assert max(read.values()) <= 510


def test_any_split_of_a_timeline_is_put_together_again() -> None:
    rng = random.Random(1)
    whole = [(number / 10, f"r{rng.randrange(4)}") for number in range(2000)]
    logs: dict[str, list[str]] = {f"r{number}": [] for number in range(4)}
    for number, (second, router) in enumerate(whole):
        logs[router].append((text if number % 2 else as_json)(second, router, f"e{number}"))
    assert [entry.event for entry in merged(logs.items())] == [f"e{number}" for number in range(2000)]


# --- the command --------------------------------------------------------------------------------------------------


def logs_of(folder: Path) -> tuple[Path, Path]:
    one, other = folder / "r1.log", folder / "r2.log.gz"
    failed = text(2, "r1", "store_failed", why='"no quorum"')
    one.write_text("\n".join([text(0, "r1", "router_started"), failed, "boom"]))
    other.write_bytes(gzip.compress((as_json(1, "r2", "neighbour_up", neighbour="r1") + "\n").encode()))
    return one, other


def test_the_command_prints_one_timeline_of_plain_packed_and_piped_logs(tmp_path: Path) -> None:
    one, other = logs_of(tmp_path)
    done = merge(one, other, "-", stdin=gzip.compress(text(1.5, "r3", "paths_changed").encode()))
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().splitlines() == [
        f"{stamp(0)} r1 info router_started",
        f"{stamp(1)} r2 info neighbour_up neighbour=r1",
        f"{stamp(1.5)} r3 info paths_changed",
        f'{stamp(2)} r1 info store_failed why="no quorum"',
        "    boom",
    ]


def test_the_command_prints_json_and_chooses_by_router_event_and_time(tmp_path: Path) -> None:
    one, other = logs_of(tmp_path)
    lines = [json.loads(line) for line in merge(one, other, "--json").stdout.splitlines()]
    assert [line["event"] for line in lines] == ["router_started", "neighbour_up", "store_failed"]
    assert lines[2] == {
        "time": stamp(2),
        "router": "r1",
        "source": "r1.log",
        "level": "info",
        "event": "store_failed",
        "fields": {"why": "no quorum"},
        "lines": ["boom"],
    }
    assert merge(one, other, "--router", "r2").stdout.count(b"\n") == 1
    assert merge(one, other, "--event", "store_failed", "--event", "neighbour_up").stdout.count(b"info") == 2
    assert merge(one, other, "--since", stamp(1)).stdout.count(b"info") == 2
    assert merge(one, other, "--since", "1h").stdout == b""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["/no/such.log"], "cannot be read"),
        (["/"], "cannot be read"),
        (["-", "-"], "can be read once"),
        (["-", "--since", "yesterday"], "--since yesterday cannot be used"),
        ([], "Missing argument"),
    ],
)
def test_misuse_is_reported_in_three_lines(arguments: list[str], said: str) -> None:
    done = merge(*arguments, stdin=b"")
    assert (done.returncode, done.stdout) == (2, b"")
    assert said in done.stderr.decode()
    assert len(done.stderr.decode().splitlines()) == 3


def test_a_log_whose_end_is_missing_is_reported_and_what_there_is_is_printed(tmp_path: Path) -> None:
    whole = gzip.compress("\n".join(text(second, "r1", "x", n=os.urandom(20).hex()) for second in range(50)).encode())
    (tmp_path / "cut.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "r2.log").write_text(text(0, "r2", "y") + "\n")
    done = merge(tmp_path / "cut.gz", tmp_path / "r2.log")
    assert done.returncode == 2
    assert f"the log {tmp_path / 'cut.gz'} cannot be read to its end".encode() in done.stderr
    assert 2 < len(done.stdout.splitlines()) < 50
