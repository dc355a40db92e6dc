"""`oncewire journal` and `oncewire sub journal://NAME`, as somebody types them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from bridges.journal import cursors, log
from bridges.journal.cli import journal as group
from bridges.journal.contents import JOURNALS
from bridges.journal.model import NewMessage, Place
from oncewire.client import connect
from oncewire.store.contents import Contents
from oncewire.store.opening import open_store
from oncewire.wire import encode_data_message
from router.commands.local_network import LocalNetwork
from tests.journal.network_world import edge, publish
from tests.store.shell import Shell
from tests.support.commands import run as typed


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(group, f"sqlite:///{tmp_path}/edge.db")


def test_a_journal_is_made_filled_read_trimmed_and_deleted(shell: Shell, tmp_path: Path) -> None:
    (made,) = shell.json("create", "orders", "--keep", "7d", "--max-bytes", "1GiB", "--when-full", "drop")
    assert (made["keep_s"], made["max_bytes"], made["when_full"]) == (7 * 86400, 1 << 30, "drop")
    (changed,) = shell.json("create", "orders", "--max-messages", "1000")
    assert (changed["keep_s"], changed["max_messages"]) == (7 * 86400, 1000)
    (tmp_path / "body").write_bytes(b"\xff\x00")
    assert shell.json("append", "orders", '{"order": 17}', "--subject", "new") == [{"journal": "orders", "position": 1}]
    shell.run("append", "orders", "plain words")
    shell.run("append", "orders", "--file", str(tmp_path / "body"))
    shell.run("append", "orders", "-", stdin=b"piped")
    found = shell.json("read", "orders")
    assert [(each["position"], each["payload"], each["encoding"]) for each in found] == [
        (1, {"order": 17}, "json"),
        (2, "plain words", "text"),
        (3, "/wA=", "base64"),
        (4, "piped", "text"),
    ]
    assert (found[0]["subject"], found[0]["topic"]) == ("new", "")
    assert [each["position"] for each in shell.json("read", "orders", "--start", "2", "--count", "2")] == [2, 3]
    assert [each["position"] for each in shell.json("read", "orders", "--start", "last")] == [4]
    assert shell.json("read", "orders", "--start", "2100-01-01") == []
    assert "payload: plain words" in shell.run("read", "orders", "--start", "2", "--count", "1")
    (trimmed,) = shell.json("trim", "orders", "3")
    assert (trimmed["first"], trimmed["last"], trimmed["messages"]) == (3, 4, 2)
    assert shell.json("trim", "orders", "2")[0]["first"] == 3
    assert shell.json("trim", "orders", "next")[0]["messages"] == 0
    (listed,) = shell.json("list")
    assert (listed["journal"], listed["first"], listed["oldest_s"]) == ("orders", 5, None)
    assert shell.json("delete", "orders") == [{"journal": "orders", "deleted": True}]
    assert shell.json("list") == []


def test_many_messages_are_read_and_trimmed_in_portions(shell: Shell) -> None:
    shell.run("create", "orders")
    with_store(shell, lambda do: _append(do, 5_000))
    assert [each["position"] for each in shell.json("read", "orders")] == list(range(1, 5_001))
    assert shell.json("trim", "orders", "4999")[0]["messages"] == 2


def test_cursors_are_listed_moved_and_deleted(shell: Shell) -> None:
    shell.run("create", "orders")
    for number in range(5):
        shell.run("append", "orders", str(number))
    with_store(shell, lambda do: cursors.attach_cursor(do, "orders", "|shop|reports", Place.FIRST))
    (reader,) = shell.json("readers", "orders")
    assert reader == {"reader": "|shop|reports", "next": 1, "unread": 5, "read_ahead": 0, "is_late": False}
    assert shell.json("seek", "orders", "|shop|reports", "4")[0]["next"] == 4
    assert shell.json("readers", "orders")[0]["unread"] == 2
    shell.run("trim", "orders", "5")
    assert [(each["is_late"], each["unread"]) for each in shell.json("readers", "orders")] == [(True, 1)]
    shell.run("readers", "orders", "--delete", "|shop|reports")
    assert shell.json("readers", "orders") == []
    assert "it never had one" in shell.run("readers", "orders", "--delete", "|shop|reports", code=2)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("read", "ordres"), "there is no journal 'ordres'"),
        (("read", "orders", "--start", "begin"), "it is no place, position or time"),
        (("read", "orders", "--start", "9"), "its next message gets position 1"),
        (("trim", "orders", "9"), "its next message gets position 1"),
        (("create", "orders", "--keep", "7"), "it has no unit"),
        (("create", "orders", "--keep", "soon"), "ms, s, m, h or d"),
        (("create", "orders", "--max-bytes", "some"), "it is no size"),
        (("create", " orders"), "cannot be the name of a journal"),
        (("append", "orders"), "either BODY or --file"),
        (("seek", "orders", "x", "2"), "its next message gets position 1"),
        (("delete", "ordres"), "there is no journal 'ordres'"),
    ],
)
def test_what_cannot_be_is_one_clear_error(shell: Shell, words: tuple[str, ...], says: str) -> None:
    shell.run("create", "orders")
    output = shell.run(*words, code=2)
    assert says in output
    assert "Traceback" not in output


def with_store(shell: Shell, job: Any) -> None:
    """Do a job in the store of a shell."""
    store = open_store(shell.url, Contents([JOURNALS]))
    try:
        store.transact([job])
    finally:
        store.close()


def _append(do: Any, count: int) -> None:
    log_messages = [NewMessage(encode_data_message(b"%d" % number)) for number in range(count)]
    log.append(do, "orders", log_messages)


async def test_sub_reads_a_journal_of_an_edge_and_goes_on_where_it_was(tmp_path: Path) -> None:
    async with LocalNetwork(1, log_folder=tmp_path) as network:
        url = network.routers["r1"].url
        async with edge(f"sqlite:///{tmp_path}/edge.db", url), connect(url) as client:
            await publish(client, 0, 6)
            address = ("sub", "journal://orders", "--url", url)
            code, out, err = await typed(*address, "--start", "5", "--count", "2", "--json")
            assert (code, err) == (0, "reading journal://orders\n")
            lines = [json.loads(line) for line in out.splitlines()]
            assert [(each["position"], each["body"], each["topic"]) for each in lines] == [
                (5, "order 4", "orders.#"),
                (6, "order 5", "orders.#"),
            ]
            kept = ("--name", "reports", "--journal", str(tmp_path / "reports.db"))
            for first in (0, 3):
                code, out, err = await typed(*address, *kept, "--count", "3")
                assert (code, out.splitlines()) == (0, [f"order {number}" for number in range(first, first + 3)]), err
            code, _, err = await typed(*address, "--start", "99")
            assert (code, "its next message gets position 7" in err) == (2, True)
            code, _, err = await typed("sub", "orders.new", "--url", url, "--start", "first")
            assert (code, "--start is of a journal" in err) == (2, True)
            code, _, err = await typed(*address, "--share", "workers")
            assert (code, "--share is of a topic" in err) == (2, True)
            code, _, err = await typed(*address, "--start", "begin")
            assert (code, "it is no place, position or time" in err) == (2, True)
