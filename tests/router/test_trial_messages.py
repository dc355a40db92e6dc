"""Test messages of operators: published as by a client, for those whom role and rules allow it, and a few at a time."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import Any

import aiohttp
import pytest
from yarl import URL

from oncewire.client import connect
from router.operator.trial_messages import CONTAINER_ID, MAX_BYTES, MAX_OPEN
from tests.router.processes import RouterProcess, running_router
from tests.router.raw_client import until

DEADLINE_S = 40.0
USERS = ("--users=ada:pw,otto:pw,vera:pw", "--roles=ada=admin,otto=operator,vera=viewer")


async def publish(
    router: RouterProcess, topic: str, body: object = "hello", user: str | None = None
) -> tuple[int, Any]:
    headers = {} if user is None else {"Authorization": "Basic " + b64encode(f"{user}:pw".encode()).decode()}
    path = URL(f"{router.http}/api/v1/management/topic/{topic}/publish", encoded=True)
    async with aiohttp.ClientSession(headers=headers) as session, session.post(path, json={"body": body}) as answer:
        return answer.status, await answer.json()


async def publishers(router: RouterProcess) -> list[str]:
    return [row["name"] for row in (await router.get("/api/v1/publishers"))[1]["items"]]


async def test_a_test_message_is_accepted_when_every_subscription_has_processed_it() -> None:
    async with running_router("--standalone") as router, connect(router.url, container_id="reader") as client:
        subscriber = await client.subscriber("orders", name="all")
        publishing = asyncio.create_task(publish(router, "orders", "Grüße"))
        delivery = await subscriber.receive(timeout=DEADLINE_S)
        assert delivery.body == "Grüße".encode()
        assert delivery.publisher.startswith(f"{CONTAINER_ID}-")
        await delivery.accept()
        status, reported = await publishing
        assert status == 200, reported
        assert (reported["outcome"], reported["tag"]) == ("accepted", delivery.tag.hex())
        assert 0 <= reported["seconds"] < DEADLINE_S

        async def names() -> list[str]:
            return await publishers(router)

        await until(names, lambda found: not found)
        (past,) = (await router.get(f"/api/v1/deliveries/{reported['tag']}"))[1]["found"]
        rules = [step["rule"] for step in past["rules"]]
        assert (past["role"], rules[0], "I-3" in rules) == ("past", "I-1", True), "its rules were traced"


async def test_one_that_waits_is_shown_as_any_delivery_and_ends_with_its_outcome() -> None:
    async with running_router("--standalone") as router, connect(router.url, container_id="reader") as client:
        subscriber = await client.subscriber("orders", name="slow")
        status, reported = await publish(router, "orders")
        assert (status, reported["outcome"], reported["seconds"]) == (200, None, None)
        path = f"/api/v1/deliveries/{reported['tag']}"
        answer = (await router.get(path))[1]["answer"]
        assert answer["text"] == "Not accepted yet: 1 of 1 subscriptions has not accepted it."
        assert [each["subscription"] for each in answer["waiting_for"]] == ["reader/slow"]
        assert await publishers(router) == [reported["publisher"]]
        await (await subscriber.receive(timeout=DEADLINE_S)).accept()

        async def read() -> Any:
            return (await router.get(path))[1]["answer"]["state"]

        assert await until(read, lambda state: state != "in-doubt") == "settled"


async def test_without_a_subscription_it_is_released() -> None:
    async with running_router("--standalone") as router:
        assert (await publish(router, "nobody"))[1]["outcome"] == "released"


async def test_a_few_may_wait_and_no_more() -> None:
    async with running_router("--standalone") as router, connect(router.url, container_id="reader") as client:
        _ = await client.subscriber("orders", name="slow")
        answers = await asyncio.gather(*(publish(router, "orders") for _ in range(MAX_OPEN + 2)))
        assert sorted(status for status, _ in answers) == [200] * MAX_OPEN + [409] * 2
        assert len({reported["tag"] for status, reported in answers if status == 200}) == MAX_OPEN


@pytest.mark.parametrize(
    ("topic", "body", "why"),
    [
        ("queue:%2F%2Forders", "x", "no topic"),
        ("$management", "x", "no topic"),
        ("_reply%2Fabc", "x", "no topic"),
        ("orders.*", "x", "topic"),
        ("orders", "x" * (MAX_BYTES + 1), "no text of at most"),
        ("orders", 7, "body"),
    ],
)
async def test_what_is_no_topic_or_too_long_is_refused(topic: str, body: object, why: str) -> None:
    async with running_router("--standalone") as router:
        status, reported = await publish(router, topic, body)
        assert status == 400
        assert why in reported["error"]
        assert reported["fix"]


async def test_role_and_rules_of_access_decide_who_may_publish_where() -> None:
    rules = '--access-rules=[{"users": ["otto"], "publish": ["orders.#"]}, {"users": ["vera"], "publish": ["#"]}]'
    async with running_router("--standalone", *USERS, rules) as router:
        assert (await publish(router, "orders.eu", user="vera"))[0] == 403, "a viewer changes nothing"
        status, reported = await publish(router, "orders.eu", user="otto")
        assert (status, reported["outcome"]) == (200, "released")
        status, reported = await publish(router, "prices", user="otto")
        assert (status, reported["error"]) == (403, "the rules do not let you publish to prices")
        assert (await publish(router, "orders.eu", user="ada"))[0] == 403, "no rule names ada"
        assert (await publish(router, "$crm%2Forders.eu", user="otto"))[0] == 403, "there is no such virtual host"


async def test_a_message_carries_the_user_and_stays_in_its_virtual_host() -> None:
    vhosts = '--vhosts=[{"name": "crm", "users": ["otto"]}]'
    async with running_router("--standalone", *USERS, vhosts) as router:
        url = router.url.replace("//", "//otto:pw@", 1)
        async with (
            connect(url, container_id="inside", hostname="crm") as inside,
            connect(url, container_id="outside") as outside,
        ):
            subscriber = await inside.subscriber("orders", name="s")
            other = await outside.subscriber("orders", name="s")
            publishing = asyncio.create_task(publish(router, "$crm%2Forders", user="otto"))
            delivery = await subscriber.receive(timeout=DEADLINE_S)
            assert delivery.user == "otto"
            await delivery.accept()
            assert (await publishing)[1]["outcome"] == "accepted"
            assert (await publish(router, "$crm%2Forders", user="ada"))[0] == 403
            with pytest.raises(TimeoutError):
                await other.receive(timeout=0.1)


async def test_an_operators_own_trace_is_left_alone() -> None:
    async with running_router("--standalone") as router, aiohttp.ClientSession(router.http) as session:
        name = (await router.get("/api/v1/overview"))[1]["router"]
        async with session.post(f"/api/v1/management/router/{name}/trace", json={"on": True, "topics": ["a"]}) as done:
            assert done.status == 200
        tag = (await publish(router, "orders"))[1]["tag"]
        assert (await router.get(f"/api/v1/deliveries/{tag}"))[1]["found"] == []
        tag = (await publish(router, "a"))[1]["tag"]
        assert [row["role"] for row in (await router.get(f"/api/v1/deliveries/{tag}"))[1]["found"]] == ["past"]
