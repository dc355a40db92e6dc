"""Journals over HTTP: ranges, a long poll, clear errors; who may read and change them (docs/rights.md)."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from bridges.doors.rules import HttpRule, allows, http_rules
from bridges.edge.settings_loading import load
from oncewire.cli.users_file import line_of, write
from oncewire.client import Client, connect
from oncewire.settings.parsers import NotAllowed
from tests.docs.code_blocks import ROOT, blocks_of
from tests.edge.edge_process import EdgeProcess, running_edge, settings
from tests.router.processes import RouterProcess
from tests.support.waiting import eventually

(RULES,) = [
    block.text for block in blocks_of(ROOT / "docs/rights.md") if block.run_by == "tests/edge/test_journals_http.py"
]
JOURNALS = '[[journal]]\nname = "orders"\ntopics = ["orders.#"]\n[[journal]]\nname = "public.news/1"\n'
ORDERS = "/api/v1/journals/orders"
NEWS = f"/api/v1/journals/{quote('public.news/1', safe='')}"
pytestmark = pytest.mark.timeout(300)


@pytest.fixture
async def edge(router: RouterProcess, tmp_path: Path) -> AsyncIterator[EdgeProcess]:
    text = settings(f"sqlite:///{tmp_path}/edge.db", [router.url], JOURNALS)
    async with running_edge(tmp_path / "edge.toml", text) as process:
        yield process


@pytest.fixture
async def client(router: RouterProcess) -> AsyncIterator[Client]:
    async with connect(router.url, container_id="shop") as connected:
        yield connected


async def publish(client: Client, *bodies: str) -> None:
    async with client.publisher("orders.new") as publisher:
        for body in bodies:
            assert (await publisher.send(body)).is_accepted


async def positions(edge: EdgeProcess, query: str) -> list[int]:
    status, answer = await edge.ask(f"{ORDERS}/messages?{query}")
    assert status == 200, answer
    if answer["messages"]:
        assert answer["next"] == answer["messages"][-1]["position"] + 1
    return [message["position"] for message in answer["messages"]]


async def test_ranges_are_read_from_any_start_and_a_body_as_it_was_sent(edge: EdgeProcess, client: Client) -> None:
    await publish(client, "one", "two", "three", "four")
    async with client.publisher("orders.raw") as publisher:
        await publisher.send(b"\x00\xff")
    assert await positions(edge, "") == [1, 2, 3, 4, 5]
    assert await positions(edge, "from=2&count=2") == [2, 3]
    assert await positions(edge, "from=last") == [5]
    assert await positions(edge, "from=next") == []
    assert await positions(edge, "from=2020-01-01T00:00:00Z&count=1") == [1]
    _, answer = await edge.ask(f"{ORDERS}/messages?from=4")
    four, raw = answer["messages"]
    assert (four["payload"], four["encoding"], four["topic"]) == ("four", "text", "orders.#")
    assert (raw["payload"], raw["encoding"]) == (base64.b64encode(b"\x00\xff").decode(), "base64")
    assert (answer["first"], answer["last"], answer["next"]) == (1, 5, 6)
    assert await edge.ask(f"{ORDERS}/messages/2/body") == (200, "two")
    _, listed = await edge.ask("/api/v1/journals")
    orders, news = listed["journals"]
    assert (orders["journal"], orders["messages"], orders["state"]) == ("orders", 5, "owner")
    assert (orders["rate"], orders["oldest_s"]) >= (0.0, 0.0)
    assert (news["journal"], news["messages"]) == ("public.news/1", 0)
    assert (await edge.ask(NEWS))[1]["readers"] == []


async def test_an_answer_has_so_many_bytes_and_one_message_at_least(edge: EdgeProcess, client: Client) -> None:
    async with client.publisher("orders.big") as publisher:
        for _ in range(3):
            assert (await publisher.send(bytes(3 << 20))).is_accepted
    assert await positions(edge, "") == [1]
    assert await positions(edge, "from=3") == [3]


async def test_a_long_poll_is_answered_by_the_next_message_or_without_one(edge: EdgeProcess, client: Client) -> None:
    await publish(client, "one")
    asked = asyncio.create_task(edge.ask(f"{ORDERS}/messages?from=2&wait=60s"))
    await asyncio.wait([asked], timeout=0.3)
    assert not asked.done()
    await publish(client, "two")
    _, answer = await asked
    assert [each["payload"] for each in answer["messages"]] == ["two"]
    _, answer = await edge.ask(f"{ORDERS}/messages?from=next&wait=100ms")
    assert (answer["messages"], answer["next"]) == ([], 3)


async def test_each_wrong_request_is_one_clear_error(edge: EdgeProcess, client: Client) -> None:
    await publish(client, "one", "two", "three")
    assert (await edge.ask(f"{ORDERS}/trim", "POST", json={"start": 2}))[0] == 200
    expected: list[tuple[str, str, dict[str, Any], int, str]] = [
        ("GET", "/api/v1/journals/nobody/messages", {}, 404, "there is no journal 'nobody'"),
        ("GET", f"{ORDERS}/messages?from=1", {}, 410, "it keeps 2 to 3"),
        ("GET", f"{ORDERS}/messages/1/body", {}, 410, "trimmed"),
        ("GET", f"{ORDERS}/messages?from=9", {}, 416, "its next message gets position 4"),
        ("GET", f"{ORDERS}/messages/4/body", {}, 400, "has no message 4"),
        ("GET", f"{ORDERS}/messages?from=soon", {}, 400, "nobody can start at 'soon'"),
        ("GET", f"{ORDERS}/messages?count=1001", {}, 400, "count is '1001'"),
        ("GET", f"{ORDERS}/messages?wait=61s", {}, 400, "wait is '61s'"),
        ("POST", f"{ORDERS}/trim", {"data": b"{"}, 400, "no start"),
        ("PUT", f"{ORDERS}/readers", {"json": {"start": "first"}}, 400, "names no reader"),
        ("DELETE", f"{ORDERS}/readers?reader=x", {}, 404, "has no cursor"),
        ("DELETE", ORDERS, {"headers": {"Origin": "https://elsewhere.example"}}, 403, "by a page"),
        ("GET", f"{ORDERS}/messages", {"headers": {"Host": "elsewhere.example"}}, 403, "logged in"),
    ]
    for method, path, options, status, text in expected:
        found, answer = await edge.ask(path, method, **options)
        assert (found, text in answer["error"]) == (status, True), (path, found, answer)
        assert answer["fix"]


async def test_a_cursor_is_moved_and_deleted_and_a_journal_deleted(edge: EdgeProcess, client: Client) -> None:
    await publish(client, "one", "two")
    async with client.journal("orders", start="first", name="bar") as reader:
        for _ in range(2):
            await (await reader.receive(60.0)).accept()
        await reader.suspend()
    name = "|shop|bar"

    async def has_read_all() -> bool:
        return bool((await edge.ask(ORDERS))[1]["readers"][0]["unread"] == 0)

    await eventually(has_read_all, "the cursor is behind the last message")
    path = f"{ORDERS}/readers?reader={quote(name)}"
    assert await edge.ask(path, "PUT", json={"start": 2}) == (200, {"journal": "orders", "reader": name, "next": 2})
    (shown,) = (await edge.ask(ORDERS))[1]["readers"]
    assert (shown["reader"], shown["unread"]) == (name, 1)
    assert (await edge.ask(f"{ORDERS}/trim", "POST", json={"start": "next"}))[0] == 200
    assert (await edge.ask(ORDERS))[1]["readers"][0]["is_late"]
    _, metrics = await edge.ask("/metrics")
    assert 'oncewire_edge_part_late_readers{kind="journal",name="orders"} 1.0' in metrics
    assert (await edge.ask(path, "DELETE"))[0] == 200
    assert (await edge.ask(ORDERS))[1]["readers"] == []
    assert (await edge.ask(NEWS, "DELETE"))[0] == 200
    assert (await edge.ask(NEWS))[0] == 404
    await edge.logged("management_done", doing="delete", name="public.news/1")


async def test_the_rules_of_the_page_say_who_reads_and_manages(router: RouterProcess, tmp_path: Path) -> None:
    write(str(tmp_path / "users"), [line_of(user, f"password of {user}") for user in ("ann", "ops", "eve")])
    file, http = tmp_path / "edge.toml", f'[http]\nusers_file = "{tmp_path}/users"\n'
    text = settings(f"sqlite:///{tmp_path}/edge.db", [router.url], RULES + JOURNALS, more=http)

    def login(user: str) -> dict[str, Any]:
        login = base64.b64encode(f"{user}:password of {user}".encode()).decode()
        return {"headers": {"Authorization": f"Basic {login}"}}

    async with running_edge(file, text) as edge:
        assert (await edge.ask(f"{ORDERS}/messages"))[0] == 401
        for user, path, right, is_allowed in (
            ("ann", ORDERS, "read", True),
            ("ann", NEWS, "read", False),
            ("ann", ORDERS, "manage", False),
            ("eve", ORDERS, "read", False),
            ("ops", NEWS, "read", True),
            ("ops", ORDERS, "manage", True),
        ):
            if right == "read":
                status, answer = await edge.ask(f"{path}/messages", **login(user))
            else:
                status, answer = await edge.ask(f"{path}/trim", "POST", json={"start": "first"}, **login(user))
            assert status == (200 if is_allowed else 403), (user, path, right, answer)
            if not is_allowed:
                assert f"no rule of http.rules lets {user} {right} journal" in answer["error"]
                assert f'users = ["{user}"], {right} = [' in answer["fix"]
        await edge.logged("management_refused")
        file.write_text(text.replace('users = ["ann", "audit-*"]', 'users = ["eve"]'))
        assert (await edge.ask("/api/v1/reload", "POST", **login("ops")))[0] == 200
        assert (await edge.ask(f"{ORDERS}/messages", **login("ann")))[0] == 403
        assert (await edge.ask(f"{ORDERS}/messages", **login("eve")))[0] == 200


def test_a_rule_allows_what_its_patterns_match_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "edge.toml").write_text(settings("sqlite:///e.db", ["amqp://r"], RULES + JOURNALS))
    rules = load(str(tmp_path / "edge.toml"), {}, {}).values["http.rules"]
    assert rules[0] == HttpRule(("ann", "audit-*"), ("orders", "audit.*"))
    for right, user, name, is_allowed in (
        ("read", "audit-7", "audit.2026", True),
        ("read", "audit", "orders", False),
        ("read", "ann", "orders.eu", False),
        ("manage", "ann", "orders", False),
        ("manage", "ops", "any.thing\n", True),
        ("read", "", "public.news", True),
        ("read", "", "orders", False),
        ("read", "eve", "public.news", False),
    ):
        assert allows(rules, right, user, name) is is_allowed, (right, user, name)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("[{", "in a text it is JSON"),
        ({"users": ["ann"]}, "it is a list of tables"),
        ([{"read": ["a"]}], "users is a list of texts, with one at least"),
        ([{"users": ["ann"], "write": ["a"]}], "a table has manage, read, users and nothing else"),
        ([{"users": ["ann"], "read": "a"}], "read is a list of texts"),
        ([{"users": ["ann"]}] * 1001, "there may be 1000 of them"),
    ],
)
def test_a_rule_that_cannot_be_used_is_refused(value: object, why: str) -> None:
    with pytest.raises(NotAllowed, match=why):
        http_rules(value)
