"""Work queues in the inspector: viewers see them, admins their payloads, operators replay, and no other site does."""

from __future__ import annotations

import asyncio
import json
import re
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from bridges.edge.inspection import EdgeInspection
from bridges.workqueue import NewItem, Queue, new_message
from oncewire.cli.errors import CliError
from router.operator.queues import queue_reader
from tests.router.processes import RouterProcess, run_to_end, running_router

USERS = (
    "--users=ann:a,olga:o,vic:v",
    "--roles=ann=admin,olga=operator,vic=viewer",
    "--http-loopback-role=none",
    "--http-anonymous-role=none",
)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'work.db'}"


async def work(url: str) -> None:
    """One item is done, one dead, one reserved, one waits, one is ready."""
    async with Queue.open(url, "mails", max_retries=0) as mails:
        await mails.push({"to": "ada"})
        async with mails.reserve(wait=0) as item:
            item.result = {"sent": True}
        await mails.push({"to": "bob"})
        (failed,) = await mails.reserve_many(1)
        await failed.rollback("no such address")
        await mails.push({"to": "cy"})
        await mails.reserve_many(1, timeout=600)
        await mails.push_many([NewItem(b"\xff", delay=600), NewItem(b'"ready"')])


@pytest.fixture
async def router(url: str) -> AsyncIterator[RouterProcess]:
    await work(url)
    async with running_router("--standalone", f"--queue-store={url}", *USERS) as found:
        yield found


async def ask(router: RouterProcess, path: str, user: str = "", method: str = "GET", **more: Any) -> tuple[int, Any]:
    """Status and content; who asks logs in by the first letter as password."""
    login = {"Authorization": f"Basic {b64encode(f'{user}:{user[0]}'.encode()).decode()}"} if user else {}
    address = f"{router.http}/api/v1/queues{path}"
    async with aiohttp.ClientSession(headers=login) as session, session.request(method, address, **more) as answer:
        return answer.status, await answer.json()


async def replay(router: RouterProcess, entry: int, user: str, **more: Any) -> tuple[int, Any]:
    more = {"json": {}} | more
    return await ask(router, f"/mails/entries/{entry}/replay", user, "POST", **more)


async def test_queues_are_shown_in_numbers(router: RouterProcess) -> None:
    status, answer = await ask(router, "", "vic")
    (mails,) = answer["items"]
    assert status == 200
    assert mails.pop("oldest_s") >= 0
    assert mails.pop("next_s") > 0
    assert mails == {
        "key": "mails",
        "queue": "mails",
        "depth": 3,
        "ready": 1,
        "waiting": 1,
        "reserved": 1,
        "dead": 1,
        "ended_last_minute": 2,
        "count_limit": 10_000,
    }


async def metrics(router: RouterProcess) -> dict[str, float]:
    login = {"Authorization": f"Basic {b64encode(b'vic:v').decode()}"}
    async with aiohttp.ClientSession(headers=login) as session, session.get(f"{router.http}/metrics") as answer:
        families = [*text_string_to_metric_families(await answer.text())]
    samples = [sample for family in families for sample in family.samples]
    return {sample.name: sample.value for sample in samples if re.match("oncewire_(outbox|queue_store)_", sample.name)}


async def test_what_waits_in_the_outbox_is_in_the_metrics(router: RouterProcess, url: str) -> None:
    async with Queue.open(url, "mails") as mails:
        await mails.transact(lambda do: do.publish([new_message("paid", 1), new_message("sent", 2)]))
        await mails.transact(lambda do: do.execute("UPDATE oncewire_outbox SET created = created - 120000000"))
    found = await metrics(router)
    assert found.pop("oncewire_outbox_oldest_seconds") >= 120
    assert found == {
        "oncewire_queue_store_readable": 1,
        "oncewire_outbox_messages": 2,
        "oncewire_outbox_unpublished_messages": 0,
    }
    _, answer = await ask(router, "", "vic")
    assert [(each["topic"], each["unsent"]) for each in answer["outbox"]] == [("paid", 1), ("sent", 1)]


async def test_a_store_that_cannot_be_read_is_in_the_metrics(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/nowhere/work.db"
    async with running_router("--standalone", f"--queue-store={url}", *USERS) as router:
        assert await metrics(router) == {"oncewire_queue_store_readable": 0}


async def test_what_ended_comes_newest_first_in_pages_and_by_ending(router: RouterProcess) -> None:
    _, first = await ask(router, "/mails/entries?limit=1", "vic")
    _, rest = await ask(router, f"/mails/entries?cursor={first['next']}", "vic")
    assert [item["ending"] for item in first["items"] + rest["items"]] == ["dead", "done"]
    assert rest["next"] is None
    _, dead = await ask(router, "/mails/entries?ending=dead", "vic")
    (bob,) = dead["items"]
    assert bob["reason"].endswith("no such address")
    assert bob["size"] == len(b'{"to":"bob"}')


async def test_an_items_payload_is_for_admins(router: RouterProcess) -> None:
    _, done = await ask(router, "/mails/entries?ending=done", "olga")
    path = f"/mails/entries/{done['items'][0]['entry']}"
    _, seen = await ask(router, path, "olga")
    assert (seen["payload"], seen["result"], seen["encoding"]) == (None, None, None)
    _, seen = await ask(router, path, "ann")
    assert (seen["payload"], seen["result"], seen["encoding"]) == ({"to": "ada"}, {"sent": True}, "json")
    assert seen["is_cut"] is False


async def test_of_a_long_payload_the_first_bytes_are_shown(router: RouterProcess, url: str) -> None:
    async with Queue.open(url, "large") as large:
        await large.push(b"7" * 5000)
        await large.pop()
    _, ended = await ask(router, "/large/entries", "ann")
    _, seen = await ask(router, f"/large/entries/{ended['items'][0]['entry']}", "ann")
    assert (seen["encoding"], seen["is_cut"], seen["size"]) == ("base64", True, 5000)
    assert b64decode(seen["payload"]) == b"7" * 4096


async def test_operators_replay_and_viewers_and_other_sites_do_not(router: RouterProcess, url: str) -> None:
    _, dead = await ask(router, "/mails/entries?ending=dead", "vic")
    entry = dead["items"][0]["entry"]
    assert (await replay(router, entry, "vic"))[0] == 403
    assert (await replay(router, entry, ""))[0] == 401
    assert (await replay(router, entry, "olga", headers={"Origin": "http://evil.example"}))[0] == 403
    assert (await replay(router, entry, "olga", headers={"Sec-Fetch-Site": "cross-site"}))[0] == 403
    assert (await replay(router, entry, "olga", json=None, data="x"))[0] == 415
    assert (await replay(router, entry, "olga", json={"delay": 1}))[0] == 400
    async with Queue.open(url, "mails") as mails:
        assert (await mails.statistics()).ready == 1, "nothing has happened yet"
        status, answer = await replay(router, entry, "olga")
        assert (status, answer["queue"], answer["entry"]) == (200, "mails", entry)
        assert (await mails.statistics()).ready == 2
        status, again = await replay(router, entry, "olga")
        assert status == 400, again  # W-16: a dead letter is replayed once
        assert "was replayed before" in again["error"]
        assert (await mails.statistics()).ready == 2


async def test_rules_of_access_decide_who_sees_payloads_and_replays_in_the_place_of_roles(url: str) -> None:
    await work(url)
    rules = [
        {"users": ["vic"], "view": ["queue://mails"]},
        {"users": ["olga"], "replay": ["queue://mails"], "view": ["queue://other"]},
    ]
    flags = ("--standalone", f"--queue-store={url}", f"--access-rules={json.dumps(rules)}", *USERS)
    async with running_router(*flags) as router:
        _, dead = await ask(router, "/mails/entries?ending=dead", "vic")
        entry = dead["items"][0]["entry"]
        seen = [(await ask(router, f"/mails/entries/{entry}", user))[1]["payload"] for user in ("vic", "olga", "ann")]
        assert seen == [{"to": "bob"}, None, None], "an admin has no rule either"
        for user in ("vic", "ann"):
            status, answer = await replay(router, entry, user)
            assert (status, answer["error"]) == (403, "no rule of access.rules lets you replay queue://mails")
        assert (await replay(router, entry, "olga"))[0] == 200
        log = await router.stop()
    assert '"doing": "replay", "name": "queue://mails"' in log
    assert '"event": "management_refused"' in log


@pytest.mark.parametrize(
    ("path", "status", "error"),
    [
        ("/none/entries", 404, "none"),
        ("/mails/entries/99999", 404, "no history entry"),
        ("/mails/entries/x", 400, "no number"),
        ("/mails/entries?ending=lost", 400, "no ending"),
        ("/mails/entries?limit=0", 400, "limit"),
        ("/mails/entries?cursor=1", 400, "cursor"),
        ("/mails/entries?order=up", 400, "order"),
    ],
)
async def test_bad_questions_get_a_reason_and_a_fix(router: RouterProcess, path: str, status: int, error: str) -> None:
    found, answer = await ask(router, path, "vic")
    assert found == status, answer
    assert error in answer["error"]
    assert answer["fix"]


async def test_an_entry_of_another_queue_is_not_shown_under_this_one(router: RouterProcess, url: str) -> None:
    async with Queue.open(url, "other"):
        _, done = await ask(router, "/mails/entries?ending=done", "vic")
        found, answer = await ask(router, f"/other/entries/{done['items'][0]['entry']}", "vic")
    assert found == 404, answer


async def test_a_router_without_a_store_says_what_to_set(tmp_path: Path) -> None:
    async with running_router("--standalone") as alone:
        status, answer = await ask(alone, "")
        assert (status, answer["fix"]) == (404, "set queue_store to the address of the store of an edge")
        assert (await alone.get("/api/v1/overview"))[1]["can"]["queues"] is False


async def test_a_store_that_cannot_be_opened_is_an_answer_and_no_fault_of_the_router(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    async with running_router("--standalone", f"--queue-store=sqlite:///{folder / 'work.db'}") as found:
        status, answer = await ask(found, "")
        assert status == 503, answer
        folder.mkdir()
        await work(f"sqlite:///{folder / 'work.db'}")
        assert (await ask(found, ""))[0] == 200


async def test_an_address_that_means_no_store_ends_the_start_with_a_reason() -> None:
    code, _, err = await run_to_end("--standalone", "--listen-port=0", "--http-port=0", "--queue-store=redis://x")
    assert code == 2
    assert "use sqlite:///queue.db" in err


def test_the_reader_is_found_by_its_entry_point() -> None:
    assert queue_reader("") is None
    with pytest.raises(CliError):
        queue_reader("oracle://x")

    async def found() -> object:
        return queue_reader("sqlite:///work.db")

    assert isinstance(asyncio.run(found()), EdgeInspection)
