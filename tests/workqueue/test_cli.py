"""`oncewire queue`, as somebody types it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bridges.workqueue.cli import queue as group
from tests.store.shell import Shell
from tests.workqueue.queue_world import Database


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(group, f"sqlite:///{tmp_path}/q.db")


@pytest.fixture
def mongo_shell(mongo_database: Database) -> Shell:
    return Shell(group, mongo_database.url)


def test_an_item_goes_from_push_to_history(shell: Shell) -> None:
    (pushed,) = shell.json("push", "orders", '{"order": 17}')
    assert (pushed["id"], pushed["is_new"]) == (1, True)
    (item,) = shell.json("reserve", "orders", "--timeout", "60")
    assert (item["id"], item["item"], item["reservation"]) == ("1.1", 1, 1)
    assert (item["payload"], item["encoding"]) == ({"order": 17}, "json")
    shell.json("extend", item["id"], "--timeout", "90")
    shell.json("commit", item["id"], "--result", '"paid"')
    (entry,) = shell.json("history", "orders", "--field", "order=17")
    assert (entry["ending"], entry["result"], entry["payload"]) == ("done", "paid", {"order": 17})
    assert shell.json("history", "orders", "--field", "order=18") == []
    assert shell.json("replay", "orders", str(entry["entry"])) == [{"queue": "orders", "items": [2]}]


def test_a_payload_is_shown_as_json_or_text_where_it_is_one_and_else_as_base64(shell: Shell, tmp_path: Path) -> None:
    shell.run("push", "q", "plain words")
    shell.run("push", "q", "--file", "-", stdin=b"\xff\x00")
    (tmp_path / "body").write_bytes(b"[1]")
    shell.run("push", "q", "--file", str(tmp_path / "body"))
    shell.run("push", "q", "1e999")
    shell.run("push", "q", "-", stdin="two\nlines, \u00e9".encode())
    shell.run("push", "q", "\x1b[2J")
    found = [shell.json("pop", "q")[0] for _ in range(6)]
    assert [(item["payload"], item["encoding"]) for item in found] == [
        ("plain words", "text"),
        ("/wA=", "base64"),
        ([1], "json"),
        ("1e999", "text"),  # JSON, but no number that Python can write again
        ("two\nlines, \u00e9", "text"),
        ("G1sySg==", "base64"),  # it would clear the screen
    ]
    shell.run("push", "q", "hello")
    assert "payload: hello" in shell.run("pop", "q")


def test_failures_end_among_the_dead_and_come_back_by_replay(shell: Shell) -> None:
    shell.run("configure", "q", "--max-retries", "1")
    shell.run("push", "q", "1")
    for _ in range(2):
        (item,) = shell.json("reserve", "q")
        shell.run("rollback", item["id"], "--delay", "0", "--reason", "bad luck")
    (dead,) = shell.json("dead", "q")
    assert dead["reason"] == "failed 2 times; the last time: bad luck"
    assert shell.json("stats", "q")[0]["dead"] == 1
    assert shell.json("replay", "q", "--ending", "dead")[0]["items"] == [2]
    assert shell.json("dead", "q") == []
    (item,) = shell.json("reserve", "q")
    shell.run("rollback", item["id"], "--untried")
    (item,) = shell.json("reserve", "q")
    assert item["retries"] == 0


def test_a_dead_letter_is_discarded(shell: Shell) -> None:
    shell.run("configure", "q", "--max-retries", "0")
    shell.run("push", "q", "1")
    shell.run("rollback", shell.json("reserve", "q")[0]["id"])
    shell.run("dead", "q", "--discard", str(shell.json("dead", "q")[0]["entry"]))
    assert shell.json("dead", "q") == []


def test_an_item_moves_and_forks(shell: Shell) -> None:
    for name in ("in", "a", "b"):
        shell.run("configure", name)
    shell.run("push", "in", "1", "--key", "k")
    assert shell.json("push", "in", "1", "--key", "k")[0]["is_new"] is False
    (item,) = shell.json("reserve", "in")
    (moved,) = shell.json("move", item["id"], "a", "b", "--payload", "2")
    assert (moved["targets"], moved["items"]) == (["a", "b"], [2, 3])
    assert [shell.json("pop", name)[0]["payload"] for name in ("a", "b")] == [2, 2]
    assert [found["queue"] for found in shell.json("stats")[0]] == ["a", "b", "in"]


def test_schedules_are_added_listed_and_deleted(shell: Shell) -> None:
    shell.run("configure", "q")
    (added,) = shell.json("schedule", "q", "nightly", "0 3 * * *", '{"job": 1}', "--timezone", "Europe/Berlin")
    assert shell.json("schedule", "q") == [added]
    assert added["payload"] == {"job": 1}
    shell.run("schedule", "q", "nightly", "--delete")
    assert shell.json("schedule", "q") == []


def test_tail_prints_what_ends(shell: Shell) -> None:
    shell.run("configure", "q")
    command = [
        sys.executable,
        "-c",
        "from bridges.workqueue.cli import queue; queue()",
        "tail",
        "q",
        "--count",
        "1",
        "--json",
    ]
    with subprocess.Popen([*command, "--store", shell.url], stdout=subprocess.PIPE, text=True) as follower:
        # What ends while it starts is before its time, so there is always one more.
        while follower.poll() is None:
            shell.run("push", "q", '"x"')
            shell.run("pop", "q")
        assert follower.stdout is not None
        (line,) = follower.stdout.readlines()
    assert json.loads(line)["payload"] == "x"


def test_nothing_ready_is_exit_code_1(shell: Shell) -> None:
    shell.run("push", "q", "1", "--delay", "60")
    shell.run("push", "q", "1", "--when", "2099-01-01T00:00:00+00:00")
    assert "no item of q is ready" in shell.run("pop", "q", code=1)
    assert "no item of q is ready" in shell.run("reserve", "q", "--wait", "0.1", code=1)
    assert shell.json("stats", "q")[0]["waiting"] == 2


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["pop", "wrok"], "there is no queue of that name"),
        (["commit", "1.9"], "it was never reserved so often"),
        (["commit", "9.1"], "there is no such item"),
        (["commit", "one"], "a handle is an item's id"),
        (["move", "1.1", "wrok"], "there is no queue of that name"),
        (["push", "q", "x" * 2_000_000], "the queue takes 1048576"),
        (["push", "q"], "it takes either BODY or --file"),
        (["push", "q", "--file", "/nowhere/at/all"], "No such file"),
        (["push", "q", "1", "--when", "tomorrow"], "it is neither ISO 8601"),
        (["replay", "q"], "it takes either entries or a search"),
        (["replay", "q", "99"], "it never was, or it has expired"),
        (["replay", "q", "9" * 30], "too large"),
        (["history", "q", "--field", "order"], "a field is PATH=VALUE"),
        (["schedule", "q", "s", "never", "1"], "columns"),
        (["schedule", "q", "s"], "it has no CRON"),
    ],
)
def test_bad_input_gets_three_lines_and_changes_nothing(shell: Shell, words: list[str], why: str) -> None:
    shell.run("push", "q", "1")
    shell.json("reserve", "q", "--timeout", "300")
    output = shell.run(*words, code=2)
    what, cause, fix = output.splitlines()
    assert (what.startswith("error: "), cause.startswith("why: "), fix.startswith("what to do: ")) == (True,) * 3
    assert why in cause
    assert shell.json("stats", "q")[0]["reserved"] == 1
    shell.run("commit", "1.1")


@pytest.mark.parametrize("url", ["mongodb://127.0.0.1:1", "mysql://host/db", "sqlite:////nowhere/at/all/q.db", "q.db"])
def test_a_store_that_cannot_be_opened_gets_three_lines(url: str) -> None:
    output = Shell(group, url).run("pop", "q", code=2)
    assert len(output.splitlines()) == 3


@pytest.mark.needs("mongodb")
def test_every_command_works_on_a_mongodb_store(mongo_shell: Shell) -> None:
    shell = mongo_shell
    shell.json("configure", "next", "--max-retries", "0")
    assert shell.json("push", "q", '{"order": 17}', "--key", "k")[0]["is_new"] is True
    assert shell.json("push", "q", '{"order": 17}', "--key", "k")[0]["is_new"] is False
    (item,) = shell.json("reserve", "q", "--timeout", "60")
    shell.json("extend", item["id"], "--timeout", "90")
    shell.json("move", item["id"], "next", "--payload", "2")
    shell.json("rollback", shell.json("reserve", "next")[0]["id"], "--reason", "bad luck")
    (dead,) = shell.json("dead", "next")
    shell.json("replay", "next", str(dead["entry"]))
    (item,) = shell.json("reserve", "next")
    shell.json("commit", item["id"], "--result", '"done"')
    assert [entry["ending"] for entry in shell.json("history", "next")] == ["done", "replayed"]
    assert [found["queue"] for found in shell.json("stats")[0]] == ["next", "q"]
    (added,) = shell.json("schedule", "q", "nightly", "0 3 * * *", "1")
    assert shell.json("schedule", "q") == [added]
    shell.json("schedule", "q", "nightly", "--delete")
    shell.run("pop", "q", code=1)
    shell.json("push", "next", "3")
    shell.json("rollback", shell.json("reserve", "next")[0]["id"])
    shell.json("dead", "next", "--discard", str(shell.json("dead", "next")[0]["entry"]))


@pytest.mark.needs("mongodb")
def test_what_a_mongodb_store_cannot_do_gets_three_lines(mongo_shell: Shell) -> None:
    mongo_shell.run("configure", "a")
    mongo_shell.run("push", "q", "1")
    (item,) = mongo_shell.json("reserve", "q")
    lines = mongo_shell.run("move", item["id"], "a", "q", code=2).splitlines()
    assert lines[0] == "error: a fork into 2 queues was not done"
    assert lines[2].endswith("or use a SQLite or PostgreSQL store")
    mongo_shell.run("commit", item["id"])
