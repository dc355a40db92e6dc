"""Virtual hosts: which one a connection is for, that no two share anything, and how operators see them."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Mapping
from pathlib import Path

import aiohttp
import pytest

from delivery_records.model.topics import VHOST_SEPARATOR, in_vhost
from oncewire.client import AuthenticationFailed, Client, LinkRefused, Subscriber, connect
from oncewire.settings.parsers import NotAllowed
from router.commands.local_network import LocalNetwork
from router.settings.access_rules import AccessRule, SlowRule, may_publish, may_subscribe, patience_of
from router.settings.config_loading import format_config, load
from router.settings.virtual_hosts import VhostRefused, VirtualHost, vhost_of, virtual_hosts
from tests.router.processes import RouterProcess, running_router
from tests.router.relay import assert_no_internal_error
from topology.inspector.topic_names_core import topic_facts, topic_name, topic_named

PAGE = Path(__file__).parents[2] / "docs/rights.md"
VHOSTS = virtual_hosts(
    [{"name": "sales", "hostnames": ["Sales.example.org"], "users": ["ann", "*@sales"]}, {"name": "crm"}]
)
SETTING = '[{"name": "sales", "users": ["ann", "*@sales"]}, {"name": "crm", "users": ["*@crm", "ann"]}]'
USERS = "ann:a,x@sales:s,x@crm:c"
DEADLINE_S = 60.0


@pytest.mark.parametrize(
    ("user", "hostname", "vhost"),
    [
        ("ann", "", ""),
        ("ann", "127.0.0.1", ""),
        ("ann", "sales", "sales"),
        ("ann", "vhost:sales", "sales"),
        ("ann", "sales.EXAMPLE.org", "sales"),
        ("ann", "vhost:/", ""),
        ("ann", "vhost:", ""),
        ("x@sales", "", "sales"),
        ("x@sales", "127.0.0.1", "sales"),
        ("x@sales", "vhost:sales", "sales"),
        ("x@elsewhere", "127.0.0.1", ""),
        ("", "127.0.0.1", ""),
    ],
)
def test_a_connection_is_for_the_virtual_host_of_its_user_or_of_its_open(user: str, hostname: str, vhost: str) -> None:
    assert vhost_of(VHOSTS, user, hostname) == vhost


@pytest.mark.parametrize(
    ("user", "hostname", "why"),
    [
        ("bob", "sales", "users of the virtual host sales in the setting vhosts has no bob"),
        ("", "vhost:sales", "has no $anonymous"),
        ("ann", "crm", "has no ann"),
        ("x@sales", "crm", "bound to the virtual host sales"),
        ("x@sales", "vhost:/", "bound to the virtual host sales"),
        ("ann", "vhost:elsewhere", "the setting vhosts has no 'elsewhere'"),
    ],
)
def test_a_virtual_host_that_a_user_may_not_open_is_refused(user: str, hostname: str, why: str) -> None:
    with pytest.raises(VhostRefused, match=re.escape(why)):
        vhost_of(VHOSTS, user, hostname)


def test_without_virtual_hosts_only_one_that_is_asked_for_by_name_is_refused() -> None:
    assert vhost_of((), "x@sales", "sales") == ""
    with pytest.raises(VhostRefused):
        vhost_of((), "x@sales", "vhost:sales")


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([{"name": "a b"}], "name has 1 to 64 of"),
        ([{}], "name has 1 to 64 of"),
        ([{"name": "a"}, {"name": "a"}], "a names two virtual hosts"),
        ([{"name": "a", "hostnames": ["B"]}, {"name": "b"}], "b names two virtual hosts"),
        ([{"name": "a", "hostnames": ["vhost:b"]}], "is no host name"),
        ([{"name": "a", "user": ["x"]}], "a table has hostnames, name, users and nothing else"),
    ],
)
def test_a_virtual_host_that_cannot_be_used_is_refused(value: object, why: str) -> None:
    with pytest.raises(NotAllowed, match=re.escape(why)):
        virtual_hosts(value)


def test_rules_hold_in_the_virtual_hosts_that_they_name() -> None:
    everything = AccessRule(("*",), ("#",), ("#",), vhosts=("sales",))
    rules = (everything, AccessRule(("*",), subscribe=("news",), vhosts=("$default",)))
    assert may_publish(rules, "ann", "orders", vhost="sales")
    assert not may_publish(rules, "ann", "orders", vhost="crm")
    assert may_subscribe(rules, "ann", "news")
    assert not may_subscribe(rules, "ann", "news", vhost="crm")
    slow = (SlowRule(after_s=60, action="expel", vhosts=("crm",)),)
    assert patience_of(slow, "ann", "orders", vhost="sales") is None
    assert patience_of(slow, "ann", "orders", vhost="crm") is not None


def test_operators_name_a_topic_of_a_virtual_host_in_one_way() -> None:
    for topic in ("orders", "a/b", in_vhost("sales", "a/b"), in_vhost("sales", "$x")):
        assert topic_named(topic_name(topic)) == topic
    assert topic_name(in_vhost("sales", "orders.eu")) == "$sales/orders.eu"
    assert topic_facts(in_vhost("sales", "orders")) == {"topic": "orders", "vhost": "sales"}


def test_the_virtual_hosts_of_the_page_mean_what_it_says_and_are_printed_as_a_file(tmp_path: Path) -> None:
    blocks = re.findall(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    file = tmp_path / "router.toml"
    file.write_text("".join(each for each in blocks if "[[vhosts]]" in each))
    first = load(str(file), {}, {})
    vhosts = first.config.vhosts
    assert vhosts[0] == VirtualHost("sales", ("sales.example.org",), ("ann", "*@sales"))
    assert vhost_of(vhosts, "ann", "sales.example.org") == "sales"
    assert vhost_of(vhosts, "bob@crm", "") == "crm"
    assert may_subscribe(first.config.access_rules, "bob@crm", "#", vhost="crm")
    assert not may_subscribe(first.config.access_rules, "ann", "#", vhost="sales")
    file.write_text(format_config(first))
    assert load(str(file), {}, {}).config == first.config


# --- routers ----------------------------------------------------------------------------------------------------------


async def publish(client: Client, topic: str, body: bytes) -> None:
    """Publish one message until every subscription has accepted it."""
    publisher = await client.publisher(topic, name="link")
    assert (await (await publisher.submit(body))).is_accepted
    await publisher.close()


async def publish_settled(client: Client, vhost: str) -> None:
    """Publish messages at most once until cancelled: a fault may hit some."""
    publisher = await client.settled_publisher("orders.eu", name="settled")
    while True:
        await publisher.send(vhost.encode())
        await asyncio.sleep(0.02)


class Taker:
    """A subscription that accepts what it gets."""

    def __init__(self, client: Client, vhost: str, *, settled: bool) -> None:
        self.vhost = vhost
        self.bodies: asyncio.Queue[object] = asyncio.Queue()
        self._client = client
        self._settled = settled

    async def open(self, tasks: asyncio.TaskGroup) -> asyncio.Task[None]:
        """Subscribe to everything."""
        name = "settled" if self._settled else "link"
        return tasks.create_task(self._take(await self._client.subscriber("#", name=name, settled=self._settled)))

    async def _take(self, subscriber: Subscriber) -> None:
        async for delivery in subscriber:
            if not self._settled:
                await delivery.accept()
            self.bodies.put_nowait(delivery.body)


async def of_operators(http: str) -> dict[str, str]:
    """All that operators read, as texts."""
    tables = ("topics", "subscriptions", "publishers", "connections", "waits")
    paths = ["/metrics", "/api/v1/state", "/api/v1/events", *(f"/api/v1/{table}" for table in tables)]
    async with aiohttp.ClientSession() as session:
        found = {}
        for path in paths:
            async with session.get(http + path) as answer:
                found[path] = await answer.text()
        return found


async def test_two_virtual_hosts_of_two_routers_share_nothing(tmp_path: Path) -> None:
    settings = {"vhosts": SETTING, "users": USERS}
    async with LocalNetwork(2, log_folder=tmp_path, log_level="info", settings=settings) as network:
        urls = [f"amqp://{{}}@127.0.0.1:{router.amqp_port}" for router in network.routers.values()]
        async with (
            asyncio.timeout(DEADLINE_S),
            connect(urls[0].format("x%40sales:s"), container_id="app") as sales,
            connect(urls[0].format("x%40crm:c"), container_id="app") as crm,
            connect(urls[0].format("ann:a"), container_id="app") as default,
            connect(urls[1].format("ann:a"), container_id="far", hostname="vhost:sales") as far,
            connect(urls[1].format("ann:a"), container_id="far", hostname="crm") as far_crm,
            asyncio.TaskGroup() as tasks,
        ):
            who = ((sales, "sales"), (crm, "crm"), (default, "default"), (far, "sales"), (far_crm, "crm"))
            takers = [Taker(client, vhost, settled=settled) for client, vhost in who for settled in (False, True)]
            running = [await taker.open(tasks) for taker in takers]
            for client, body in ((far, b"sales"), (crm, b"crm"), (default, b"default"), (sales, b"sales")):
                await publish(client, "orders.eu", body)
            for taker in takers[::2]:
                expected = [taker.vhost.encode()] * (2 if taker.vhost == "sales" else 1)
                assert [await taker.bodies.get() for _ in expected] == expected
            running += [tasks.create_task(publish_settled(client, vhost)) for client, vhost in who]
            for taker in takers:
                assert [await taker.bodies.get() for _ in range(3)] == [taker.vhost.encode()] * 3
            shown = await of_operators(network.routers["r1"].http)
            narrowed = await narrowed_to(network.routers["r1"].http, "$sales/orders.eu")
            for task in running:
                task.cancel()
    assert narrowed == {"sales"}
    topics = {each["key"]: (each["name"], each["vhost"]) for each in json.loads(shown["/api/v1/topics"])["items"]}
    assert topics.items() >= {"#": ("#", ""), "$sales/#": ("#", "sales"), "$crm/#": ("#", "crm")}.items()
    rows = json.loads(shown["/api/v1/subscriptions"])["items"]
    assert len({(each["name"], each["topic"], each["vhost"]) for each in rows}) == len(rows) == len(takers)
    assert {each["vhost"] for each in json.loads(shown["/api/v1/connections"])["items"]} == {"", "sales", "crm"}
    assert 'oncewire_vhost_links{kind="subscriber",vhost="sales"} 2.0' in shown["/metrics"]
    assert_no_separator(tmp_path, shown)


def assert_no_separator(folder: Path, shown: Mapping[str, str]) -> None:
    """Nobody reads how routers know a topic of a virtual host."""
    logs = {log.name: log.read_text() for log in folder.glob("r*.log")}
    assert "client_connected" in logs["r1.log"]
    for name, text in {**shown, **logs}.items():
        assert VHOST_SEPARATOR not in text, name
        assert "u001f" not in text, name
    assert_no_internal_error(folder)


async def narrowed_to(http: str, topic: str) -> set[str]:
    """The virtual hosts of the subscriptions to a topic."""
    path = f"{http}/api/v1/subscriptions"
    async with aiohttp.ClientSession() as session, session.get(path, params={"topic": topic}) as answer:
        return {each["vhost"] for each in (await answer.json())["items"]}


def guarded(config: Path, text: str) -> tuple[str, ...]:
    """Flags of a router with a file."""
    config.write_text('standalone = true\nusers = {ann = "a", "x@sales" = "s"}\n' + text)
    return (f"--config={config}",)


async def test_a_refused_virtual_host_notifies_the_operator_the_setting_and_the_client_little(tmp_path: Path) -> None:
    async with running_router(*guarded(tmp_path / "r.toml", '[[vhosts]]\nname = "sales"\n')) as router:
        with pytest.raises(AuthenticationFailed) as refused:
            _ = await connect(f"amqp://ann:a@127.0.0.1:{router.port}", hostname="vhost:sales")
        assert "may not open this virtual host" in str(refused.value)
        assert "users" not in refused.value.why
        async with connect(router.url) as client:
            for attach in (client.publisher(in_vhost("sales", "orders")), client.subscriber(in_vhost("sales", "#"))):
                with pytest.raises(LinkRefused, match="no U\\+001F"):
                    await attach
        log = await router.stop()
    assert "users of the virtual host sales in the setting vhosts has no ann" in log


async def test_a_reload_closes_connections_whose_virtual_host_is_gone_and_their_state_stays(tmp_path: Path) -> None:
    config = tmp_path / "r.toml"
    with_sales, without = '[[vhosts]]\nname = "sales"\nusers = ["ann", "*@sales"]\n', '[[vhosts]]\nname = "sales"\n'
    async with running_router(*guarded(config, with_sales)) as router, asyncio.timeout(DEADLINE_S):
        url = f"amqp://{{}}@127.0.0.1:{router.port}"
        lost = asyncio.Event()
        ann = connect(
            url.format("ann:a"),
            container_id="app",
            hostname="sales",
            on_event=lambda event: lost.set() if "unauthorized" in str(event) else None,
        )
        async with ann, connect(url.format("x%40sales:s")) as bound, connect(url.format("ann:a")) as default:
            subscriber = await ann.subscriber("orders", name="in")
            sending = await (await bound.publisher("orders")).submit(b"1")
            delivery = await subscriber.receive()
            await reload(router, config, without)
            await lost.wait()
            assert sending.outcome is None
            assert default.statistics.connections == bound.statistics.connections == 1
            await reload(router, config, with_sales)
            await delivery.accept()
            assert (await sending).is_accepted
        log = await router.stop()
    assert "users of the virtual host sales in the setting vhosts has no ann" in log


async def reload(router: RouterProcess, config: Path, text: str) -> None:
    """Have the router read its settings again."""
    guarded(config, text)
    router.process.send_signal(signal.SIGHUP)
