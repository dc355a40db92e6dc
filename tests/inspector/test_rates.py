"""Rates and times of acceptance: from counters that exist anyway, few deliveries timed, memory bounded."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from delivery_records.model.effects import Dispose
from delivery_records.publisher.arrivals import FEW_MARKS, Arrivals
from delivery_records.publisher.window import Window
from oncewire.client import Publisher, Subscriber, connect
from router.commands.local_network import LocalNetwork
from router.node import RouterNode
from router.settings.config import RouterConfig
from tests.support.waiting import eventually
from topology.inspector.merging_core import histories, is_own, merged
from topology.inspector.rates_core import (
    ACCEPTANCE_S,
    ACCEPTANCES,
    MAX_SERIES,
    MAX_TOPICS,
    MINUTE_S,
    POINTS,
    Acceptances,
    Counters,
    Series,
)
from topology.inspector.rows_core import Row

DEADLINE_S = 60.0


# --- the core ---------------------------------------------------------------------------------------------------------


def test_a_count_of_another_link_begins_at_zero_and_a_smaller_one_counts_nothing() -> None:
    counters = Counters()
    assert counters.differences([("a", 1, 10)]) == {"a": 10}
    assert counters.differences([("a", 1, 25), ("b", 2, 3)]) == {"a": 15, "b": 3}
    assert counters.differences([("a", 7, 4), ("b", 2, 1)]) == {"a": 4}
    assert counters.differences([]) == {}
    assert counters.differences([("a", 7, 9)]) == {"a": 9}, "it had left"


def test_a_series_has_sixty_points_the_newest_last() -> None:
    series = Series()
    for number in range(1, 2 * POINTS):
        series.take({"a": 5.0 * number}, 5.0)
    assert series.points("a") == [float(number) for number in range(POINTS, 2 * POINTS)]
    assert series.latest == {"a": 2.0 * POINTS - 1}
    assert series.points("nobody") == [0.0] * POINTS


def test_a_series_in_which_nothing_moved_for_five_minutes_is_forgotten() -> None:
    series = Series()
    series.take({"a": 1.0, "b": 1.0}, 1.0)
    for _ in range(POINTS - 1):
        series.take({"b": 1.0, "quiet": 0.0}, 1.0)
    assert set(series.moved()) == {"a", "b"}
    assert series.points("a") == [1.0, *[0.0] * (POINTS - 1)]
    series.take({"b": 1.0}, 1.0)
    assert set(series.moved()) == {"b"}


def test_there_are_no_more_series_than_the_limit_and_further_things_still_have_a_rate() -> None:
    series = Series()
    series.take({f"k{number}": 2.0 for number in range(MAX_SERIES + 10)}, 1.0)
    assert len(list(series.moved())) == MAX_SERIES
    assert series.latest[f"k{MAX_SERIES + 9}"] == 2.0
    for _ in range(POINTS):
        series.take({"new": 1.0}, 1.0)
    assert set(series.moved()) <= {"new"}


def test_quantiles_count_what_waits_with_its_age_and_forget_what_is_old() -> None:
    found = Acceptances()
    for number in range(1, 101):
        found.note("orders", 0.0, number / 1000)
    found.note("stock", 200.0, 0.5)
    reported = found.quantiles(1.0, {})
    assert (reported["orders"].p50, reported["orders"].p99) == (0.05, 0.099)
    reported = found.quantiles(1.0, {"orders": [30.0, 30.0], "late": [7.0]})
    assert (reported["orders"].p99, reported["late"].p50) == (30.0, 7.0)
    assert reported[""].p99 == 30.0
    reported = found.quantiles(ACCEPTANCE_S + 1, {})
    assert reported.keys() == {"stock", ""}
    assert found.quantiles(2 * ACCEPTANCE_S, {}) == {}


def test_quantiles_of_the_last_minute_count_no_older_acceptance() -> None:
    found = Acceptances()
    found.note("orders", 0.0, 9.0)
    found.note("orders", MINUTE_S, 0.5)
    assert found.quantiles(MINUTE_S + 1, {})["orders"].p99 == 9.0
    assert found.quantiles(MINUTE_S + 1, {}, MINUTE_S)["orders"].p99 == 0.5
    assert found.quantiles(2 * MINUTE_S + 1, {}, MINUTE_S) == {}
    assert found.quantiles(2 * MINUTE_S + 1, {"orders": [70.0]}, MINUTE_S)["orders"].p50 == 70.0, "what waits counts"


def test_acceptances_are_kept_of_so_many_topics_and_so_many_of_each() -> None:
    found = Acceptances()
    for number in range(2 * ACCEPTANCES):
        found.note("orders", 0.0, 9.0 if number < ACCEPTANCES else 1.0)
    for number in range(2 * MAX_TOPICS):
        found.note(f"t{number}", 0.0, 1.0)
    reported = found.quantiles(0.0, {})
    assert len(reported) == MAX_TOPICS + 1
    assert reported["orders"].p99 == 1.0


def test_an_arrival_whose_mark_is_no_longer_there_is_not_guessed() -> None:
    window = Window()
    arrivals = Arrivals(0, 0.0)
    for number in range(2 * FEW_MARKS):
        window.append(b"%d" % number)
        arrivals.mark(window, float(number))
        if number < FEW_MARKS:
            slot = window.at(number)
            assert slot is not None
            window.remove(slot)
    assert arrivals.known(2 * FEW_MARKS - 1) == 2.0 * FEW_MARKS - 1
    assert arrivals.known(0) is None


def test_rows_of_all_routers_are_joined_by_who_knows_what() -> None:
    topics = [
        {
            "key": "t",
            "published_rate": 1.0,
            "delivered_rate": 0.0,
            "waiting": 1,
            "accepted_p50_s": None,
            "accepted_p99_s": 0.1,
            "publishers": 2,
        }
    ]
    more = {
        "key": "t",
        "published_rate": 2.5,
        "delivered_rate": 4.0,
        "waiting": 2,
        "accepted_p50_s": 0.2,
        "accepted_p99_s": 0.3,
        "publishers": 9,
    }
    assert merged("topics", topics, [more, {"key": "other"}]) == [
        {
            "key": "t",
            "published_rate": 3.5,
            "delivered_rate": 4.0,
            "waiting": 3,
            "accepted_p50_s": 0.2,
            "accepted_p99_s": 0.3,
            "publishers": 2,
        }
    ]
    here: list[Row] = [{"key": "s", "rid": "2", "state": "elsewhere"}]
    assert merged("subscriptions", here, [{"key": "s", "rid": "1", "state": "detached"}]) == here, "it has moved on"
    assert merged("subscriptions", here, [{"key": "s", "rid": "2", "state": "attached"}])[0]["state"] == "attached"
    links = [{"key": "1>2", "on_best_path": True, "bytes_rate": None}]
    assert merged("links", links, [{"key": "1>2", "on_best_path": False, "bytes_rate": 8.0}]) == [
        {"key": "1>2", "on_best_path": True, "bytes_rate": 8.0}
    ]
    assert is_own("topics", more, "1")
    assert not is_own("topics", {"key": "t", "published_rate": 0.0}, "1")
    assert histories("topics", [[{"key": "t", "p": [1.0, 2.0]}], [{"key": "t", "p": [1.0, 0.5]}]]) == [
        {"key": "t", "p": [2.0, 2.5]}
    ]


# --- real routers -----------------------------------------------------------------------------------------------------


async def accept_all(subscriber: Subscriber) -> None:
    async for delivery in subscriber:
        await delivery.accept()


async def publish(publisher: Publisher) -> None:
    while True:
        _ = await publisher.submit(b"an order")
        await asyncio.sleep(0.01)


async def state_of(session: aiohttp.ClientSession, url: str) -> Any:
    async with session.get(url) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


pytestmark = pytest.mark.routers(2)


@pytest.mark.slow
async def test_each_router_shows_the_rates_of_all_of_them(network: LocalNetwork) -> None:
    one, two = (network.routers[name] for name in ("r1", "r2"))
    async with (
        connect(one.url, container_id="till") as till,
        connect(two.url, container_id="store") as store,
        aiohttp.ClientSession() as session,
        asyncio.timeout(DEADLINE_S),
    ):
        tasks = [
            asyncio.create_task(accept_all(await store.subscriber("orders", name="all"))),
            asyncio.create_task(publish(await till.publisher("orders", name="sales"))),
        ]

        async def get(path: str, at: str) -> Any:
            return await state_of(session, f"{at}/api/v1/{path}")

        try:
            for http in (one.http, two.http):
                while True:
                    (topic,) = (await get("topics?network=true", http))["items"]
                    if topic["published_rate"] and topic["delivered_rate"] and topic["accepted_p99_s"]:
                        break
                    await asyncio.sleep(0.1)
                assert 0 < topic["accepted_p50_s"] <= topic["accepted_p99_s"] < DEADLINE_S
                (subscription,) = (await get("subscriptions?network=true", http))["items"]
                assert (subscription["state"], subscription["delivered_rate"] > 0) == ("attached", True)
                (publisher,) = (await get("publishers?network=true", http))["items"]
                assert publisher["published_rate"] > 0
                assert publisher["granted"] >= publisher["unsettled"]
                links = (await get("links?network=true", http))["items"]
                assert all(each["bytes_rate"] > 0 for each in links)
                routers = {each["id"]: each for each in (await get("routers?network=true", http))["items"]}
                assert (routers["r1"]["published_rate"] > 0, routers["r2"]["delivered_rate"] > 0) == (True, True)
                reported = await get("rates/topics?network=true&topic=orders", http)
                (item,) = reported["items"]
                assert [len(item[name]) for name in ("published_rate", "delivered_rate")] == [POINTS, POINTS]
                assert (reported["point_s"], reported["points"], reported["missing"]) == (5.0, POINTS, [])
                clients = (await get("connections?network=true", http))["items"]
                assert {(each["container_id"], each["router"]) for each in clients} == {("till", "r1"), ("store", "r2")}
                assert len({each["key"] for each in clients}) == 2
                events = (await get("events?network=true&limit=50", http))["items"]
                assert {each["router"] for each in events} == {"r1", "r2"}
            (alone,) = (await get("topics", one.http))["items"]
            assert alone["delivered_rate"] == 0, "the subscription is at the other router"
            for task in tasks:
                task.cancel()
            while True:  # what has stopped is shown as stopped
                routers = (await get("routers?network=true", one.http))["items"]
                (topic,) = (await get("topics?network=true", one.http))["items"]
                rows = [*routers, topic]
                if not any(each["published_rate"] or each["delivered_rate"] for each in rows):
                    break
                await asyncio.sleep(0.1)
            (item,) = (await get("rates/routers", one.http))["items"]
            assert item["published_rate"][-1] == 0 < max(item["published_rate"])
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def test_outcomes_are_looked_at_only_while_a_delivery_is_timed() -> None:
    node = RouterNode(RouterConfig(id="r1", listen_port=0, http_port=0, standalone=True), "1.0")
    running = asyncio.ensure_future(node.run())
    try:
        async with asyncio.timeout(DEADLINE_S):
            await node.wait_ready()
            assert node.lifecycle.incarnation is not None
            driver = node.lifecycle.incarnation.driver
            handlers = driver._handlers
            plain = handlers[Dispose]
            async with connect(node.amqp_url, container_id="c") as client:
                subscriber = await client.subscriber("orders")
                publisher = await client.publisher("orders")
                sending = await publisher.submit(b"one")
                await eventually(lambda: handlers[Dispose] != plain)  # the publisher has sent: its next one is chosen
                await (await subscriber.receive()).accept()
                await sending
                assert handlers[Dispose] != plain, "the one before does not count"
                sending = await publisher.submit(b"two")
                await (await subscriber.receive()).accept()
                await sending
                assert handlers[Dispose] == plain
    finally:
        node.stop()
        await running
