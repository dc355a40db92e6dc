"""Management over HTTP at real routers: what is seen is what the schema says, and every change takes effect."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from oncewire.client import ClientEvent, NewIncarnation, SubscriptionExpired, connect
from oncewire.wire import ConnectionClosed, Symbol
from router.commands.local_network import LocalNetwork
from router.operator.reload import compare, values_of
from router.operator.schema import TYPES
from router.operator.service import MAX_ROWS
from router.settings.config import RouterConfig
from tests.router.management_calls import PREFIX, call, entity
from tests.router.processes import RouterProcess, running_router
from tests.router.raw_client import RawClient, until
from tests.router.relay import assert_no_internal_error

LONG_S = 60.0


@pytest.fixture
async def network(tmp_path: Path) -> AsyncIterator[LocalNetwork]:
    async with LocalNetwork(3, log_folder=tmp_path, log_level="info") as found:
        for name in found.routers:
            await until(partial(costs, found, name), lambda links: len(links) == 6)  # each with each, both ways
        yield found
    assert_no_internal_error(tmp_path)


async def shown(http: str, type_name: str, name: str) -> Any:
    status, row = await call(http, "GET", entity(type_name, name))
    assert status == 200, row
    return row


async def all_of(http: str, type_name: str) -> list[dict[str, Any]]:
    status, found = await call(http, "GET", f"{PREFIX}/{type_name}")
    assert status == 200, found
    assert len(found["items"]) == found["total"]
    return list(found["items"])


# --- reading ----------------------------------------------------------------------------------------------------------


async def test_every_entity_has_the_attributes_of_the_schema_and_no_others(network: LocalNetwork) -> None:
    r1 = network.routers["r1"]
    source = await RawClient.connect(r1.amqp_port, "till")
    await source.publisher("orders")
    store = await RawClient.connect(r1.amqp_port, "store")
    await store.subscriber("orders")
    for type_name, known in TYPES.items():
        if known.is_stored:  # these: inspector/test_stored_entities.py
            continue
        rows = await all_of(r1.http, type_name)
        assert rows, type_name
        for row in rows:
            assert set(row) == {each.name for each in known.attributes}, type_name
            named = await shown(r1.http, type_name, row["key"])
            assert named["key"] == row["key"]


async def test_the_schema_is_served() -> None:
    async with running_router("--standalone") as router:
        status, found = await call(router.http, "GET", f"{PREFIX}/schema")
    assert status == 200
    assert set(found["types"]) == set(TYPES)
    epoch = found["types"]["subscription"]["delete"]["arguments"][0]
    assert (epoch["name"], epoch["type"], epoch["required"]) == ("epoch", "integer", True)
    assert found["settings"].keys() == {each["name"] for each in found["types"]["config"]["attributes"]} - {"key"}
    level = found["settings"]["log.level"]
    assert (level["default"], level["takes_effect"], level["flag"]) == ("info", "now", "--log-level")
    assert [name for name, each in found["settings"].items() if each["secret"]] == [
        "users",
        "inter_router.password",
        "queue_store",
        "etcd.password",
    ]


def test_no_login_in_a_url_is_shown() -> None:
    before = RouterConfig(etcd_endpoints=("http://ann:secret@etcd:2379", "http://other:2379"))
    after = RouterConfig(telemetry_endpoint="https://ann:secret@spans.example/x")
    assert values_of(before)["etcd.endpoints"] == ["http://etcd:2379", "http://other:2379"]
    assert values_of(after)["telemetry.endpoint"] == "https://spans.example/x"
    assert "secret" not in " ".join(compare(before, after).needs_restart)


TRACE = entity("router", "alpha", "trace")
BAD_INPUT: list[tuple[str, str, object, int, str]] = [
    ("GET", f"{PREFIX}/exchange", None, 404, "there is no type exchange"),
    ("GET", f"{PREFIX}/topic?limit=0", None, 400, "offset 0 and limit 0 cannot be used"),
    ("GET", f"{PREFIX}/topic?limit={MAX_ROWS + 1}", None, 400, f"offset 0 and limit {MAX_ROWS + 1} cannot be used"),
    ("GET", f"{PREFIX}/topic?limit=-1", None, 400, "limit = -1 cannot be used"),
    ("GET", f"{PREFIX}/topic?page=2", None, 400, "page = 2 cannot be used"),
    ("GET", entity("subscription", "nobody/s"), None, 404, "there is no subscription nobody/s here"),
    ("GET", entity("log", "other"), None, 404, "there is no log other"),
    ("PUT", entity("log", "router"), {"level": "loud"}, 400, "level = 'loud' cannot be used"),
    ("PUT", entity("log", "router"), {"level": None}, 400, "level = None cannot be used"),
    ("PUT", entity("log", "router"), {"levels": "info"}, 400, "there is no attribute that can be set 'levels' here"),
    ("PUT", entity("log", "router"), {}, 400, "nothing is given to set"),
    ("PUT", entity("log", "router"), [1], 400, "the request is no JSON object"),
    ("PUT", entity("log", "router"), "{", 400, "the request is not JSON"),
    ("PUT", entity("log", "router"), "[" * 9000, 400, "the request is not JSON"),
    ("PUT", entity("log", "router"), '"' + "x" * 70_000 + '"', 413, "the request is longer than 65536 bytes"),
    ("PUT", entity("topic", "orders"), {"name": "x"}, 405, "nothing of a topic can be set"),
    ("PUT", entity("link", "r9"), {"cost": 5}, 404, "there is no link r9 here"),
    ("PUT", entity("link", "r9"), {"cost": 0}, 400, "cost = 0 cannot be used"),
    ("PUT", entity("link", "r9"), {"cost": True}, 400, "cost = True cannot be used"),
    ("DELETE", entity("router", "alpha"), {}, 405, "a router cannot be deleted"),
    ("DELETE", entity("subscription", "a/b"), {}, 400, "the argument epoch is missing"),
    ("DELETE", entity("subscription", "a/b"), {"epoch": "1"}, 400, "epoch = '1' cannot be used"),
    ("DELETE", entity("subscription", "a/b"), {"epoch": 1 << 63}, 400, f"epoch = {1 << 63} cannot be used"),
    ("DELETE", entity("subscription", "a/b"), {"epoch": 1}, 404, "there is no subscription a/b here"),
    ("POST", entity("router", "alpha", "stop"), {}, 404, "a router has no operation stop"),
    ("POST", entity("router", "beta", "drain"), {}, 404, "there is no router beta here"),
    ("POST", entity("router", "alpha", "drain"), {"now": True}, 400, "there is no argument 'now' here"),
    ("POST", entity("router", "alpha", "trace"), {}, 400, "the argument on is missing"),
    ("POST", TRACE, {"on": 1}, 400, "on = 1 cannot be used"),
    ("POST", TRACE, {"on": True, "topics": [1]}, 400, "topics = [1] cannot be used"),
    ("POST", TRACE, {"on": True, "sample": 0}, 400, "sample must be above 0 and at most 1"),
    ("POST", TRACE, {"on": True, "time_s": 9e9}, 400, "time_s = 9000000000.0 cannot be used"),
    ("POST", entity("router", "alpha", "reload"), {}, 409, "this router was started without a file of settings"),
    ("POST", entity("connection", "nobody", "close"), {}, 404, "there is no connection nobody here"),
    ("PUT", entity("exchange", "x"), {}, 405, f"{PREFIX}/exchange/x knows no PUT"),
    ("POST", f"{PREFIX}/subscription", {}, 405, f"{PREFIX}/subscription knows no POST"),
    ("GET", f"{PREFIX}/topic/", None, 404, f"there is nothing at {PREFIX}/topic/"),
]


async def test_bad_input_says_what_is_wrong_and_what_to_do(alpha: RouterProcess) -> None:
    for method, path, body, status, error in BAD_INPUT:
        headers = {"Content-Type": "application/json"} if isinstance(body, str) else None
        found, reported = await call(alpha.http, method, path, body, headers)
        assert (found, reported["error"]) == (status, error), (method, path, body)
        assert reported["fix"]


CHANGE = b"PUT /api/v1/management/log/router HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


async def test_what_is_no_http_or_ends_too_soon_is_no_fault_of_the_router() -> None:
    async with running_router("--standalone") as router:
        host, port = router.http.removeprefix("http://").split(":")
        for sent in (
            b"\x00\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
            CHANGE + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        ):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(sent)
            assert b" 400 " in await reader.readline()
            writer.close()
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(CHANGE + b"Expect: 100-continue\r\nContent-Length: 10\r\n\r\n")
        assert b" 100 " in await reader.readline()  # it waits for the content
        writer.transport.abort()
        assert (await call(router.http, "PUT", entity("log", "router"), {"level": "info"}))[0] == 200
        log = await router.stop()
    assert "Traceback" not in log
    assert "error" not in {json.loads(line)["level"] for line in log.splitlines()}


# --- subscriptions (K-5a) ---------------------------------------------------------------------------------------------


async def test_a_deleted_subscription_is_owed_nothing_more_and_its_client_is_notified(network: LocalNetwork) -> None:
    """Deleted at a third router: the subscriber is at one, its publisher at another."""
    source = await RawClient.connect(network.routers["r1"].amqp_port, "till")
    stuck = await RawClient.connect(network.routers["r2"].amqp_port, "stuck")
    subscriber = await stuck.subscriber("orders")
    publisher = await source.publisher("orders")
    publisher.send(b"1", b"1")
    await subscriber.delivery()
    http = network.routers["r3"].http
    row = await shown(http, "subscription", "stuck/sub")
    assert row["state"] == "elsewhere"
    path = entity("subscription", "stuck/sub")
    status, reported = await call(http, "POST", f"{path}/expire", {"epoch": row["epoch"]})
    assert (status, reported["fix"]) == (409, "ask router r2, or delete it")
    status, reported = await call(http, "DELETE", path, {"epoch": row["epoch"] - 1})
    assert (status, reported["error"]) == (
        409,
        f"stuck/sub has changed since epoch {row['epoch'] - 1}; its epoch is {row['epoch']}. It was not ended",
    )
    assert publisher.accepted_tags() == []
    assert await call(http, "DELETE", path, {"epoch": row["epoch"]}) == (200, {"deleted": "stuck/sub"})
    detached = await stuck.detached(subscriber.link)
    assert detached.error is not None
    assert detached.error.condition == "amqp:resource-deleted"
    assert (detached.error.info or {})[Symbol("x-opt-topic-resume")] == "expired"
    await publisher.outcome(b"1")
    status, reported = await call(http, "DELETE", path, {"epoch": row["epoch"]})
    assert status == 404


async def test_our_client_is_reported_of_the_end_and_begins_anew_behind_what_it_missed(alpha: RouterProcess) -> None:
    events: list[ClientEvent] = []
    async with connect(alpha.url, container_id="shop", on_event=events.append) as client:
        publisher = await client.publisher("orders")
        subscriber = await client.subscriber("orders", name="s")
        waits = await publisher.submit(b"missed")
        first = await subscriber.receive(LONG_S)
        row = await shown(alpha.http, "subscription", "shop/s")
        assert (await call(alpha.http, "DELETE", entity("subscription", "shop/s"), {"epoch": row["epoch"]}))[0] == 200
        assert (await waits).is_accepted  # there is nobody left to wait for
        await reported(events, NewIncarnation)
        assert any(isinstance(event, SubscriptionExpired) for event in events)
        sending = await publisher.submit(b"next")
        after = await subscriber.receive(LONG_S)
        assert (first.body, after.body) == (b"missed", b"next")
        await after.accept()
        assert (await sending).is_accepted


async def reported(events: list[ClientEvent], kind: type[NewIncarnation]) -> None:
    async def heard() -> bool:
        return any(isinstance(event, kind) for event in events)

    await until(heard, bool)


async def test_a_disconnected_subscription_is_expired_at_its_router(network: LocalNetwork) -> None:
    r2 = network.routers["r2"]
    away = await RawClient.connect(r2.amqp_port, "away")
    await away.subscriber("orders")
    away.cut()
    await away.closed()
    row = await until(lambda: shown(r2.http, "subscription", "away/sub"), lambda found: found["state"] == "detached")
    answer = await call(r2.http, "POST", entity("subscription", row["key"], "expire"), {"epoch": row["epoch"]})
    assert answer == (200, {"deleted": "away/sub"})
    assert await all_of(network.routers["r1"].http, "subscription") == []


async def test_a_subscription_whose_client_left_before_it_had_shown_life_says_how_long_it_really_stays(
    alpha: RouterProcess,
) -> None:
    client = await RawClient.connect(alpha.port, "brief")
    await client.subscriber("orders", timeout=900, exactly_once=False)  # it answers no echo
    client.cut()
    await client.closed()
    row = await until(
        lambda: shown(alpha.http, "subscription", "brief/sub"), lambda found: found["state"] == "detached"
    )
    assert (row["timeout_s"], 0 < row["expires_in_s"] <= 60.0) == (60.0, True)


# --- links ------------------------------------------------------------------------------------------------------------


async def costs(network: LocalNetwork, at: str) -> dict[tuple[str, str], int]:
    return {(row["from"], row["to"]): row["cost"] for row in await all_of(network.routers[at].http, "link")}


async def test_a_cost_changes_the_best_path_of_all_routers_and_drops_no_link(
    network: LocalNetwork, tmp_path: Path
) -> None:
    r1 = network.routers["r1"].http
    status, row = await call(r1, "PUT", entity("link", "r2"), {"cost": 50})
    assert (status, row["from"], row["to"], row["cost"]) == (200, "r1", "r2", 50)
    await until(lambda: shown(r1, "router", "r2"), lambda found: found["next_hop"] == "r3")
    seen = await until(lambda: costs(network, "r3"), lambda found: found.get(("r1", "r2")) == 50)
    assert seen[("r2", "r1")] == 1  # each direction has a cost of its own
    back = entity("link", f"{row['to_rid']}>{row['from_rid']}")
    status, reported = await call(r1, "PUT", back, {"cost": 9})
    assert (status, reported["fix"]) == (409, "ask r2: each router says what its own direction costs")
    status, row = await call(r1, "PUT", entity("link", "r2"), {"cost": None})
    assert row["cost"] == 1
    await until(lambda: shown(r1, "router", "r2"), lambda found: found["next_hop"] == "r2")
    assert "neighbour_down" not in (tmp_path / "r1.log").read_text()


async def test_a_cost_that_was_set_outlives_the_link(network: LocalNetwork) -> None:
    r1 = network.routers["r1"].http
    await call(r1, "PUT", entity("link", "r2"), {"cost": 7})
    await network.restart("r2")
    await until(lambda: costs(network, "r1"), lambda found: found.get(("r1", "r2")) == 7)


# --- the router itself ------------------------------------------------------------------------------------------------


async def test_an_operator_closes_a_connection_and_its_subscription_stays(alpha: RouterProcess) -> None:
    client = await RawClient.connect(alpha.port, "box")
    await client.subscriber("orders")
    status, reported = await call(alpha.http, "POST", entity("connection", "box", "close"), {})
    assert (status, reported) == (200, {"closed": client.address})
    closed = await client.wait_for(ConnectionClosed)
    assert closed.error is not None
    assert (closed.error.condition, closed.error.description) == (
        "amqp:connection:forced",
        "an operator has closed this connection",
    )
    row = await until(lambda: shown(alpha.http, "subscription", "box/sub"), lambda found: found["state"] == "detached")
    assert row["expires_in_s"] > 0


async def test_a_container_with_several_connections_is_named_by_address(alpha: RouterProcess) -> None:
    clients = [await RawClient.connect(alpha.port, "twins") for _ in range(2)]
    status, reported = await call(alpha.http, "POST", entity("connection", "twins", "close"), {})
    assert (status, reported["error"]) == (400, "twins is the name of 2")
    assert all(client.address in reported["fix"] for client in clients)
    assert (await call(alpha.http, "DELETE", entity("connection", clients[0].address), {}))[0] == 200
    await clients[0].wait_for(ConnectionClosed)
    assert not clients[1].is_gone


async def test_the_log_level_takes_effect_at_once_and_every_change_names_who_made_it() -> None:
    async with running_router("--standalone", "--log-level=warning") as router:
        assert (await call(router.http, "PUT", entity("log", "router"), {"level": "info"}))[0] == 200
        await RawClient.connect(router.port, "box")
        assert (await shown(router.http, "log", "router"))["level"] == "info"
        assert (await shown(router.http, "config", "router"))["log.level"] == "info"
        log = await router.stop()
    lines = [json.loads(line) for line in log.splitlines()]
    assert [line["event"] for line in lines[:2]] == ["management_done", "client_connected"]
    assert lines[0]["by"] == "a client at 127.0.0.1 without login"
    assert (lines[0]["doing"], lines[0]["given"]) == ("set log", "level=info")


async def test_tracing_is_switched_on_and_off(alpha: RouterProcess) -> None:
    path = entity("router", "alpha", "trace")
    status, reported = await call(
        alpha.http, "POST", path, {"on": True, "topics": ["orders"], "time_s": 60, "sample": 0.5}
    )
    assert (status, reported["on"], reported["topics"], reported["sample"]) == (200, True, ["orders"], 0.5)
    assert 0 < reported["left_s"] <= 60
    assert await call(alpha.http, "POST", path, {"on": False}) == (200, {"on": False, "steps": 0})


async def test_tracing_ends_when_its_time_is_over_also_where_it_meets_nothing(alpha: RouterProcess) -> None:
    async with connect(alpha.url, container_id="box") as client:
        subscriber = await client.subscriber("orders")
        publisher = await client.publisher("orders")
        outcome = await publisher.submit(b"held")
        delivery = await subscriber.receive(LONG_S)
        path = entity("router", "alpha", "trace")
        status, reported = await call(alpha.http, "POST", path, {"on": True, "topics": ["another"], "time_s": 0.1})
        assert (status, reported["on"]) == (200, True)

        async def rules_off() -> object:
            _, record = await call(alpha.http, "GET", f"/api/v1/deliveries/{delivery.tag.hex()}")
            return record["found"][0]["rules_off"]

        await until(rules_off, lambda found: found is not None)
        await delivery.accept()
        assert (await outcome).is_accepted


async def test_a_router_does_nothing_for_another_one_and_says_where_to_ask(network: LocalNetwork) -> None:
    status, reported = await call(network.routers["r1"].http, "POST", entity("router", "r2", "drain"), {})
    assert (status, reported["error"]) == (409, "this is router r1, not r2")
    assert reported["fix"] == f"ask at {network.routers['r2'].http}"


async def test_a_router_without_etcd_can_be_drained(tmp_path: Path) -> None:
    async with LocalNetwork(1, settings={"etcd.lease_ttl_s": "3"}, log_folder=tmp_path) as network:
        r1 = network.routers["r1"]
        assert network.etcd is not None
        await network.etcd.stop()

        async def tables() -> list[dict[str, Any]]:
            return await all_of(r1.http, "router")

        await until(tables, lambda found: not found)
        assert (await call(r1.http, "GET", entity("router", "r1")))[0] == 404
        status, reported = await call(r1.http, "POST", entity("router", "r1", "drain"), {})
        assert (status, reported) == (200, {"draining": {"limit_s": 0.0, "left_s": 0.0}})

        async def is_running() -> bool:
            return r1.is_running

        await until(is_running, lambda found: not found)


# --- reload -----------------------------------------------------------------------------------------------------------

SETTINGS = 'id = "alpha"\nstandalone = true\n[limits]\nwindow = 64\n[log]\nformat = "json"\n'


async def test_a_reload_says_what_has_changed_and_what_waits_for_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "router.toml"
    file.write_text(SETTINGS)
    async with running_router(f"--config={file}") as router:
        path = entity("router", "alpha", "reload")
        assert await call(router.http, "POST", path, {}) == (200, {"changed": [], "needs_restart": []})
        file.write_text(
            'id = "alpha"\nstandalone = true\nusers = { ann = "secret" }\nroles = { ann = "admin" }\n'
            '[http]\nloopback_role = "viewer"\n[limits]\nwindow = 128\nmax_message_size = "1 MiB"\n'
            '[log]\nlevel = "debug"\nformat = "json"\n'
        )
        status, reported = await call(router.http, "POST", path, {})
        assert status == 200
        assert reported["changed"] == [
            "users (not shown)",
            "roles: none -> ann = admin",
            "http.loopback_role: admin -> viewer",
            "limits.max_message_size: 67108864 -> 1048576, for new connections",
            "log.level: info -> debug",
        ]
        assert reported["needs_restart"] == ["limits.window: 64 -> 128"]
        config = await shown(router.http, "config", "router")
        assert (config["limits.window"], config["log.level"], config["users"]) == (64, "debug", True)
        assert (await call(router.http, "POST", path, {}))[0] == 401  # the new role holds
        log = await router.stop()
    assert "secret" not in log


async def test_a_file_with_a_mistake_changes_nothing_at_all(tmp_path: Path) -> None:
    file = tmp_path / "router.toml"
    file.write_text(SETTINGS)
    async with running_router(f"--config={file}") as router:
        before = await shown(router.http, "config", "router")
        for text, said in (
            (SETTINGS + 'level = "loud"\n', "log.level = 'loud'"),
            (SETTINGS + "[http]\nlevel = 1\n", "unknown setting http.level"),
            (SETTINGS + "[", "is not TOML"),
            ('roles = { ann = "admin" }\n' + SETTINGS, "there is no user ann"),
        ):
            file.write_text(text)
            status, reported = await call(router.http, "POST", entity("router", "alpha", "reload"), {})
            assert status == 409
            assert said in reported["error"]
            assert "Nothing has changed" in reported["error"]
        file.unlink()
        assert (await call(router.http, "POST", entity("router", "alpha", "reload"), {}))[0] == 409
        assert await shown(router.http, "config", "router") == before


MOVED = 'id = "alpha"\nstandalone = true\n[listen]\nhost = "localhost"\n[http]\nhost = "localhost"\n'


async def test_what_is_meant_for_a_new_address_does_not_hold_at_the_old_one(tmp_path: Path) -> None:
    file = tmp_path / "router.toml"
    file.write_text(SETTINGS.replace("[limits]", '[listen]\nallow_anonymous = "always"\n[limits]'))
    async with running_router(f"--config={file}", "--http-port=0") as router:
        file.write_text(MOVED.replace("[http]", 'allow_anonymous = "loopback"\n[http]\nanonymous_role = "admin"'))
        status, reported = await call(router.http, "POST", entity("router", "alpha", "reload"), {})
        assert (status, reported["changed"]) == (200, [])
        anonymous = "listen.allow_anonymous: always -> loopback, together with listen.host and http.host"
        assert anonymous in reported["needs_restart"]
        role = "http.anonymous_role: viewer -> admin, together with listen.host and http.host"
        assert role in reported["needs_restart"]
        config = await shown(router.http, "config", "router")
        assert (config["listen.allow_anonymous"], config["http.anonymous_role"]) == ("always", "viewer")


async def test_a_file_that_would_let_nobody_in_until_a_restart_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "router.toml"
    log_in = 'id = "alpha"\nstandalone = true\nusers = { ann = "a" }\n[listen]\nallow_anonymous = "never"\n'
    file.write_text(log_in)
    async with running_router(f"--config={file}") as router:
        file.write_text(MOVED)  # right by itself: at its address, everybody may connect
        status, reported = await call(router.http, "POST", entity("router", "alpha", "reload"), {})
        assert status == 409
        assert "nobody could log in" in reported["error"]
        assert "Nothing has changed" in reported["error"]
        assert "restart the router" in reported["fix"]
        assert (await shown(router.http, "config", "router"))["users"] is True
        log = await router.stop()
    assert "internal_error" not in log


async def test_sighup_loads_the_settings_and_a_flag_stays_stronger_than_the_file(tmp_path: Path) -> None:
    file = tmp_path / "router.toml"
    file.write_text(SETTINGS)
    async with running_router(f"--config={file}", "--limits-drain-limit-s=3") as router:
        file.write_text(SETTINGS.replace("window = 64", "drain_limit_s = 9\nwindow = 64") + 'level = "debug"\n')
        router.process.send_signal(signal.SIGHUP)
        await until(lambda: shown(router.http, "config", "router"), lambda found: found["log.level"] == "debug")
        assert (await shown(router.http, "config", "router"))["limits.drain_limit_s"] == 3.0
        file.write_text("[")
        router.process.send_signal(signal.SIGHUP)
        await until(lambda: _events(router), lambda names: "config_refused" in names)
        log = await router.stop()
    reloaded = [json.loads(line) for line in log.splitlines() if '"config_reloaded"' in line]
    assert [line["changed"] for line in reloaded] == ["log.level: info -> debug"]


async def _events(router: RouterProcess) -> list[str]:
    return [each["event"] for each in (await router.get("/api/v1/events"))[1]["items"]]
