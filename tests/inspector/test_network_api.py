"""The API of a real network, three routers and an etcd: what one router shows of all of them, and who is missing."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from base64 import b64decode
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from rich.console import Console

from oncewire.cli.errors import CliError
from oncewire.client import connect
from oncewire.wire import decode_message
from router.commands.local_network import LocalNetwork
from tests.router.raw_client import RawClient, until
from topology.inspector.ask_cli import Api
from topology.inspector.follow_cli import Wanted, document_of, documents_of
from topology.inspector.rows_core import COLLECTIONS
from topology.inspector.schema.catalogue import entity_of
from topology.inspector.schema.own import OVERVIEW
from topology.inspector.show_cli import shown

DEADLINE_S = 40.0
TAG = b"t1"
BODY = b"what was ordered"


pytestmark = pytest.mark.routers(3)


async def get(network: LocalNetwork, router: str, path: str, status: int = 200) -> Any:
    async with aiohttp.ClientSession() as session, session.get(network.routers[router].http + path) as answer:
        assert answer.status == status, await answer.text()
        return await answer.json()


async def client(network: LocalNetwork, router: str, name: str) -> RawClient:
    return await RawClient.connect(network.routers[router].amqp_port, name)


def text_of(what: str, document: dict[str, Any], width: int = 100) -> str:
    console = Console(width=width)
    with console.capture() as reported:
        console.print(shown(what, document, width))
    return reported.get()


async def test_one_router_shows_who_waits_for_whom_in_the_whole_network(network: LocalNetwork) -> None:
    here = await (await client(network, "r1", "store")).subscriber("orders", "all")
    there = await (await client(network, "r2", "far")).subscriber("orders", "poor", credit=0)
    publisher = await (await client(network, "r3", "till")).publisher("orders")
    publisher.send(TAG, BODY)
    delivery = await here.delivery()

    async def waits() -> Any:
        return await get(network, "r1", "/api/v1/waits?network=true")

    # What a subscription's own router says: one client has it, the other gives no credit.
    def states(reported: Any) -> list[set[str]]:
        return [{each["state"] for each in row["waiting_for"]} for row in reported["items"]]

    found = await until(waits, lambda reported: states(reported) == [{"in-doubt", "held"}])
    (row,) = found["items"]
    assert (row["publisher"], row["router"], row["reason"], row["unsettled"]) == ("till/pub", "r3", "subscriptions", 1)
    assert {(e["subscription"], e["router"], e["state"]) for e in row["waiting_for"]} == {
        ("store/all", "r1", "in-doubt"),
        ("far/poor", "r2", "held"),
    }
    assert {each["ends_with"] for each in row["waiting_for"]} == {
        "oncewire manage delete subscription store/all",
        "oncewire manage delete subscription far/poor",
    }
    assert {each["owner"] for each in row["waiting_for"]} == {"client"}
    assert row["oldest_tag"] == delivery.tag.hex()
    assert found["missing"] == []
    assert (await get(network, "r1", "/api/v1/waits"))["items"] == []
    assert (await get(network, "r1", "/api/v1/waits?network=true&min_s=3600"))["items"] == []
    assert "waits for far/poor at r2 (held, " in text_of("waits", {"waits": [row]})
    there.client.cut()
    found = await until(waits, lambda reported: "detached" in json.dumps(reported))
    here.accept(delivery)
    found = await until(waits, lambda reported: len(reported["items"][0]["waiting_for"]) == 1)
    assert found["items"][0]["waiting_for"][0]["state"] == "detached"
    subscriptions = await get(network, "r2", "/api/v1/subscriptions?router=r2")
    assert [(row["state"], row["expires_in_s"] > 0) for row in subscriptions["items"]] == [("detached", True)]


@pytest.mark.slow
async def test_the_router_of_a_subscription_without_credit_says_that_it_holds_deliveries(network: LocalNetwork) -> None:
    async with (
        connect(network.routers["r2"].url, container_id="far") as far,
        connect(network.routers["r3"].url, container_id="till") as till,
    ):
        poor = await far.subscriber("orders", name="poor", prefetch=1)
        publisher = await till.publisher("orders", name="pub")
        sendings = [await publisher.submit(BODY) for _ in range(5)]

        async def counts() -> Any:
            return [(await get(network, name, "/api/v1/overview"))["counts"] for name in ("r2", "r3")]

        hosts, sends = await until(counts, lambda reported: reported[0]["held_10s"] and reported[1]["stuck_10s"])
        assert (hosts["held_10s"], hosts["stuck_10s"]) == (1, 0), "no publisher of its own waits"
        assert (sends["held_10s"], sends["stuck_10s"]) == (0, 1)
        for sending in sendings:
            await (await poor.receive(DEADLINE_S)).accept()
            await sending
        await until(counts, lambda reported: not reported[0]["held_10s"])


async def test_a_delivery_that_moves_with_its_publisher_in_a_drain_is_shown_as_older(network: LocalNetwork) -> None:
    urls = [network.routers[name].url for name in ("r1", "r3")]
    async with (
        connect(network.routers["r2"].url, container_id="far") as far,
        connect(urls, container_id="mover") as mover,
    ):
        poor = await far.subscriber("moves", name="poor")
        publisher = await mover.publisher("moves", name="pub")
        sending = await publisher.submit(BODY)

        async def row() -> Any:
            reported = await get(network, "r2", "/api/v1/waits?network=true")
            return next((row for row in reported["items"] if row["publisher"] == "mover/pub"), None)

        first = await until(row, lambda found: found is not None)
        assert first["oldest_is_older"] is False
        await network.terminate(first["router"])
        moved = await until(row, lambda found: found is not None and found["router"] != first["router"])
        assert moved["oldest_is_older"] is True
        assert "the oldest since over" in text_of("waits", {"waits": [moved]})
        await (await poor.receive(DEADLINE_S)).accept()
        await sending
    await network.restart(first["router"])


async def test_a_delivery_is_followed_through_all_routers_by_either_tag(network: LocalNetwork) -> None:
    here = await (await client(network, "r1", "store")).subscriber("orders", "all")
    there = await (await client(network, "r2", "far")).subscriber("orders", "slow")
    publisher = await (await client(network, "r3", "till")).publisher("orders")
    publisher.send(TAG, BODY)
    delivery = await here.delivery()
    await there.delivery()
    here.accept(delivery)

    async def found_by(tag: bytes, router: str, query: str = "") -> dict[str, Any]:
        reported = await get(network, router, f"/api/v1/deliveries/{tag.hex()}?network=true{query}")
        assert reported["missing"] == []
        return {f"{record['role']} {record['router']}": record for record in reported["found"]}

    async def followed() -> Any:
        return await found_by(delivery.tag, "r1")

    def others(record: dict[str, Any]) -> dict[str, tuple[str, int]]:
        return {each["router"]: (each["state"], each["owing"]) for each in record["other_routers"]}

    accepted = await until(followed, lambda reported: others(reported["ingress r3"])["r1"] == ("accepted", 0))
    assert accepted.keys() == {"ingress r3", "egress r1", "egress r2"}
    ingress = accepted["ingress r3"]
    assert (ingress["publisher"], ingress["publisher_tag"], ingress["network_tag"]) == (
        "till/pub",
        TAG.hex(),
        delivery.tag.hex(),
    )
    bare = b64decode(ingress["first_bytes"])
    assert decode_message(bare).body == BODY
    assert (ingress["size"], ingress["digest"]) == (len(bare), hashlib.sha256(bare).hexdigest())
    assert others(ingress) == {"r1": ("accepted", 0), "r2": ("in-doubt", 1)}
    assert ingress["arrived_s"] >= 0
    assert ingress["rules"] == []
    assert ingress["rules_off"]
    assert [(e["name"], e["state"], e["detail"]) for e in accepted["egress r2"]["local_subscriptions"]] == [
        ("far/slow", "in-doubt", "sent")
    ]
    # A viewer gets no body, although the routers ask each other from this machine, where no login makes admins.
    async with (
        aiohttp.ClientSession(headers={"X-Forwarded-For": "192.0.2.7"}) as session,
        session.get(f"{network.routers['r1'].http}/api/v1/deliveries/{delivery.tag.hex()}?network=true") as answer,
    ):
        seen = (await answer.json())["found"]
    assert {record["router"]: record["first_bytes"] for record in seen} == dict.fromkeys(("r1", "r2", "r3"))
    # The publisher's own tag is known at its ingress; from there the network tag leads on.
    assert (await found_by(TAG, "r2")).keys() == accepted.keys()
    assert (await found_by(TAG, "r2", "&publisher=till/pub")).keys() == accepted.keys()
    assert await found_by(TAG, "r2", "&publisher=somebody/else") == {}
    async with Api.at(network.routers["r1"].http) as api:
        reported = await document_of(api, Wanted("delivery", delivery.tag.hex(), network=True))
    text = text_of("delivery", reported, 80)
    assert text.splitlines()[0] == "Not accepted yet: 1 of 2 subscriptions has not accepted it."
    assert re.match(r"  far/slow at r2 \(in doubt, \d", text.splitlines()[1]), text
    assert text.rstrip().splitlines()[-1].startswith("rules are not traced") or "trace on=true" in text[-200:]
    assert all(word in text for word in ("ingress at router r3", "till/pub", "far/slow", "pending"))


async def test_with_tracing_on_the_whole_life_of_a_settled_delivery_is_reported(network: LocalNetwork) -> None:
    for name, router in network.routers.items():
        async with aiohttp.ClientSession() as session:
            path = f"{router.http}/api/v1/management/router/{name}/trace"
            async with session.post(path, json={"on": True}) as answer:
                assert answer.status == 200, await answer.text()
    there = await (await client(network, "r2", "far")).subscriber("orders", "slow")
    publisher = await (await client(network, "r3", "till")).publisher("orders")
    number = publisher.send(TAG, BODY)
    delivery = await there.delivery()
    there.accept(delivery)
    await publisher.outcome(TAG)
    publisher.settle(number)
    await there.settled(delivery.tag)
    reported = await get(network, "r1", f"/api/v1/deliveries/{delivery.tag.hex()}?network=true")
    every = {record["router"]: [step["rule"] for step in record["rules"]] for record in reported["found"]}
    assert {"T-2", "T-4"} & set(every["r3"])
    # Between routers, a path that has moved since they started may have had it sent again (T-4, I-5).
    rules = {router: [rule for rule in met if rule[:2] != "T-" and rule != "I-5"] for router, met in every.items()}
    assert {record["role"] for record in reported["found"]} == {"past"}
    assert rules["r3"] == ["I-1", "I-2", "I-3", "I-4"]
    assert rules["r2"][-3:] == ["E-3", "E-4", "E-5"]
    step = next(record for record in reported["found"] if record["router"] == "r3")["rules"][0]
    assert step["text"].startswith("received whole")
    assert step["at_s"] >= 0
    text = text_of("delivery", reported, 100)
    assert text.startswith("It is settled: no router has a record of it any more.")
    assert "settled by its publisher, and forgotten" in text


@pytest.mark.slow
async def test_a_router_that_does_not_reply_is_listed_and_delays_no_reply(network: LocalNetwork) -> None:
    await (await client(network, "r1", "store")).subscriber("orders", "all")
    publisher = await (await client(network, "r1", "till")).publisher("orders")
    publisher.send(TAG, BODY)
    network.sigstop("r3")
    try:
        reported = await get(network, "r1", "/api/v1/waits?network=true")
        assert [row["publisher"] for row in reported["items"]] == ["till/pub"]
        assert [(each["router"], each["why"]) for each in reported["missing"]] == [("r3", "no answer within 2 s")]
        assert "no reply from router r3" in text_of("waits", {"waits": [], "missing": reported["missing"]})
        async with aiohttp.ClientSession() as session:

            async def ask() -> int:
                async with session.get(network.routers["r1"].http + "/api/v1/waits?network=true") as answer:
                    assert answer.status == 200 or "fix" in await answer.json()
                    return answer.status

            assert sorted(set(await asyncio.gather(*(ask() for _ in range(12))))) == [200, 503]
    finally:
        network.sigcont("r3")


async def test_a_moved_subscription_changes_rows_of_a_watch_at_any_router(network: LocalNetwork) -> None:
    moving = await client(network, "r1", "store")
    await moving.subscriber("orders", "all")
    async with Api.at(network.routers["r3"].http) as api:
        documents = documents_of(api, Wanted("subscriptions"), with_ages=False)
        assert [row["router"] for row in (await anext(documents))["subscriptions"]] == ["r1"]
        await (await client(network, "r2", "store")).subscriber("orders", "all")
        async with asyncio.timeout(DEADLINE_S):
            while [row["router"] for row in (await anext(documents))["subscriptions"]] != ["r2"]:
                pass
        await documents.aclose()


async def test_what_makes_no_sense_is_refused_with_what_to_do(network: LocalNetwork) -> None:
    for path in (
        "subscriptions?limit=0",
        "subscriptions?limit=501",
        "subscriptions?cursor=zz",
        "subscriptions?topik=a",
        "subscriptions?topic=a.*/b",
        "links?network=true&own=true",
        "connections?network=true&cursor=WyJhIiwiYiJd",
        "waits?network=true&cursor=WyJhIiwiYiJd",
        "waits?min_s=x",
        "events?network=true&after=3",
        "deliveries/xyz",
        "deliveries/00?network=maybe",
        "events?after=x",
        "watch",
        "holders?of=00",
        "holders",
    ):
        reported = await get(network, "r1", f"/api/v1/{path}", 400)
        assert reported["error"], path
        assert reported["fix"], path
    async with aiohttp.ClientSession() as session:
        async with session.get(network.routers["r1"].http + "/api/v1/windows") as answer:
            assert answer.status == 404
            assert (await answer.json())["fix"]
        async with session.post(network.routers["r1"].http + "/api/v1/topics", json={}) as answer:
            assert (answer.status, answer.headers["Allow"]) == (405, "GET")
            assert (await answer.json())["fix"]
        async with session.ws_connect(network.routers["r1"].http + "/api/v1/watch") as socket:
            for wish in ("no json", '{"id": "7", "tables": ["windows"]}', "[" * 5000, b"\x00\xff"):
                await (socket.send_bytes(wish) if isinstance(wish, bytes) else socket.send_str(wish))
                reported = await socket.receive_json()
                assert (reported["type"], reported.get("id")) == ("error", "7" if '"7"' in str(wish) else None)
            await socket.send_json({"id": "8", "tables": ["overview"]})
            assert (await socket.receive_json())["items"][0]["router"] == "r1"
    async with Api.at(network.routers["r1"].http) as api:
        with pytest.raises(CliError) as refused:
            await document_of(api, Wanted("delivery", "xyz"))
    assert "not hex" in refused.value.why


async def test_every_row_has_the_attributes_of_the_schema_and_no_others(network: LocalNetwork) -> None:
    text = (Path(__file__).parents[2] / "docs" / "inspector-api.md").read_text()
    store = await client(network, "r1", "store")
    await store.subscriber("orders", "all")
    publisher = await store.publisher("orders")
    publisher.send(TAG, BODY)
    await (await client(network, "r2", "far")).subscriber("orders", "slow")
    for table in COLLECTIONS:

        async def read(table: str = table) -> Any:
            return await get(network, "r1", f"/api/v1/{table}")

        reported = await until(read, lambda reported: bool(reported["items"]))
        attributes = entity_of(table).attributes
        for row in reported["items"]:
            assert set(row) == {each.name for each in attributes}, table
            for each in (each for each in attributes if each.parts):
                names = {part.name for part in each.parts}
                assert all(set(found) == names for found in row[each.name]), each.name
    overview = await get(network, "r1", "/api/v1/overview")
    record = (await get(network, "r1", f"/api/v1/deliveries/{TAG.hex()}"))["found"][0]
    assert set(overview) == {each.name for each in OVERVIEW.attributes}
    for each in (each for each in OVERVIEW.attributes if overview[each.name] and each.parts):
        assert set(overview[each.name]) == {part.name for part in each.parts}, each.name
    for field in (*overview, *overview["counts"], *record):
        assert f'"{field}"' in text, field


async def test_the_page_and_its_files_are_served(network: LocalNetwork) -> None:
    async with aiohttp.ClientSession() as session:
        for path in ("/", "/inspector"):
            async with session.get(network.routers["r1"].http + path) as answer:
                assert (answer.status, answer.content_type) == (200, "text/html")
