"""An edge as a process, with real routers: its parts, kill -9, a drain, a reload, its HTTP side."""

from __future__ import annotations

import asyncio
import base64
import signal
from pathlib import Path

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from bridges.workqueue import Queue
from oncewire.cli.users_file import line_of, write
from oncewire.client import LinkInterrupted, LinkRefused, Subscriber, connect
from oncewire.wire import ACCEPTED
from tests.client.test_copies_with_routers import accepted, send, stock_publisher
from tests.edge.edge_process import LONG_S, ONCEWIRE, EdgeProcess, running_edge, settings
from tests.router.processes import RouterProcess, running_router
from tests.router.raw_client import RawClient
from tests.support.certificates import TestAuthority
from tests.support.waiting import eventually
from tests.workqueue.amqp_world import pusher
from tests.workqueue.queue_world import Database

ALL = """
[[queue]]
name = "orders"
max_retries = 3
history = "7d"
[[feed]]
topic = "shop.orders"
queue = "orders"
[[publish]]
"""
pytestmark = pytest.mark.timeout(300)


async def work(database: Database, count: int) -> list[bytes]:
    """Do so many items of the queue, each of which publishes its payload."""
    done = []
    async with Queue.open(database.url, "orders") as queue:
        for _ in range(count):
            async with queue.reserve(wait=LONG_S) as item:
                item.publish("shop.paid", item.payload)
            done.append(item.payload)
    return done


async def bodies(subscriber: Subscriber, count: int) -> list[object]:
    found = []
    for _ in range(count):
        delivery = await subscriber.receive(LONG_S)
        found.append(delivery.body)
        await delivery.accept()
    return found


@pytest.mark.parametrize(("setting", "count"), [("", 4), ("drop_copies = true\n", 2)], ids=["kept", "dropped"])
async def test_what_a_stock_client_sends_again_is_stored_once_where_copies_are_dropped(
    tmp_path: Path, sqlite: Database, router: RouterProcess, setting: str, count: int
) -> None:
    """D-3: also by an edge that was killed after the first one."""
    feed = f'[[queue]]\nname = "work"\n[[feed]]\ntopic = "orders"\nqueue = "work"\n{setting}'
    journal = f'[[journal]]\nname = "log"\ntopics = ["orders"]\n{setting}'
    text = settings(sqlite.url, [router.url], feed + journal)
    async with running_edge(tmp_path / "edge.toml", text) as edge:
        for is_again in (False, True):
            if is_again:
                await edge.end()
                await edge.start()
            publisher = await stock_publisher(router.port)
            send(publisher, "1", "2")
            await accepted(publisher, 2)
            publisher.client.cut()
        assert ((await edge.part("queue"))["depth"], (await edge.part("journal"))["depth"]) == (count, count)


async def test_a_sender_and_a_worker_of_a_queue_wait_for_an_edge_that_is_started_again(
    tmp_path: Path, sqlite: Database, router: RouterProcess
) -> None:
    refused: set[str] = set()

    def note(event: object) -> None:
        if isinstance(event, LinkInterrupted) and event.condition == "amqp:not-found":
            refused.add(event.link)

    text = settings(sqlite.url, [router.url], '[[queue]]\nname = "orders"\n')
    async with (
        running_edge(tmp_path / "edge.toml", text) as edge,
        connect(router.url, container_id="shop", on_event=note) as client,
        client.publisher("queue://orders", name="push", exactly_once=False) as sender,
        client.subscriber("queue://orders", name="work", exactly_once=False) as worker,
    ):
        assert (await sender.send(b"0")).is_accepted
        assert await bodies(worker, 1) == [b"0"]
        await edge.end()
        await eventually(lambda: refused == {"push", "work"}, "both have attached while no edge was there")
        sending = await sender.submit(b"1")
        await edge.start()
        assert (await sending).is_accepted
        assert await bodies(worker, 1) == [b"1"]
        with pytest.raises(LinkRefused):
            await client.publisher("queue://oders", name="typo", exactly_once=False)


async def test_a_feed_a_queue_and_the_outbox_run_in_one_process_and_go_on_when_it_is_killed(
    tmp_path: Path, sqlite: Database, router: RouterProcess
) -> None:
    text = settings(sqlite.url, [router.url], ALL)
    async with running_edge(tmp_path / "edge.toml", text) as edge, connect(router.url) as client:
        paid = await client.subscriber("shop.paid")
        shop = await client.publisher("shop.orders")
        expected: list[bytes] = []
        for turn in range(3):
            sent = [b"%d.%d" % (turn, number) for number in range(10)]
            for body in sent:
                assert (await shop.send(body, timeout=LONG_S)).is_accepted
            assert sorted(await work(sqlite, 10)) == sorted(sent)
            expected += sent
            await edge.end()  # some messages may have been published, and their outcomes not
            await edge.start()
        assert sorted(map(bytes, await bodies(paid, 30))) == sorted(expected)  # type: ignore[arg-type]
        with pytest.raises(TimeoutError):
            await paid.receive(0.5)
        async with Queue.open(sqlite.url, "orders") as queue:
            found = await queue.configure()
        assert (found.max_retries, found.history_s) == (3, 7 * 86_400)


async def test_an_operator_sees_a_row_and_metrics_of_each_part(
    tmp_path: Path, sqlite: Database, router: RouterProcess
) -> None:
    text = settings(sqlite.url, [router.url], ALL)
    async with running_edge(tmp_path / "edge.toml", text) as edge, connect(router.url) as client:
        assert (await edge.ask("/healthz"))[0] == 200
        assert await edge.ask("/readyz") == (200, {"ready": True, "waiting_for": []})
        shop = await client.publisher("shop.orders")
        for number in range(3):
            _ = await shop.send(b"%d" % number, timeout=LONG_S)
        assert (await edge.part("queue"))["depth"] == 3
        feed = await edge.part("feed")
        assert (feed["name"], feed["state"], feed["trouble"], feed["done"]) == ("shop.orders to orders", "owner", "", 3)
        _, page = await edge.ask("/metrics")
        samples = {
            (sample.name, sample.labels.get("kind"), sample.labels.get("name")): sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
        }
        assert samples["oncewire_edge_ready", None, None] == 1
        assert samples["oncewire_edge_part_depth", "queue", "orders"] == 3
        assert samples["oncewire_edge_part_owner", "feed", "shop.orders to orders"] == 1
        assert samples["oncewire_edge_part_done_total", "feed", "shop.orders to orders"] == 3
        assert samples["oncewire_edge_part_runs", "publish", "outbox"] == 1
        assert samples["oncewire_edge_part_depth", "publish", "outbox"] == 0


async def test_a_drain_gives_back_what_the_edge_owns_and_ends_in_order(
    tmp_path: Path, sqlite: Database, router: RouterProcess
) -> None:
    async with running_edge(tmp_path / "edge.toml", settings(sqlite.url, [router.url], ALL)) as edge:
        assert {lease for (lease,) in sqlite.rows("SELECT lease FROM oncewire_owners")} != {0}
        assert await edge.end(signal.SIGTERM) == 0
        assert [line["event"] for line in edge.log[-2:]] == ["edge_draining", "edge_stopped"]
    assert sqlite.rows("SELECT lease FROM oncewire_owners") == [(0,), (0,)]


async def test_a_reload_adds_removes_and_changes_parts_and_leaves_the_others_alone(
    tmp_path: Path, sqlite: Database, router: RouterProcess
) -> None:
    file = tmp_path / "edge.toml"
    async with running_edge(file, settings(sqlite.url, [router.url], ALL)) as edge, connect(router.url) as client:
        file.write_text(
            settings(
                sqlite.url,
                [router.url],
                '[[queue]]\nname = "orders"\nmax_retries = 5\n'
                '[[feed]]\ntopic = "shop.orders"\nqueue = "orders"\n[[feed]]\ntopic = "shop.more"\nqueue = "orders"\n',
                more='lease = "20s"',
            )
        )
        status, done = await edge.ask("/api/v1/reload", "POST")
        assert (status, done) == (
            200,
            {
                "added": ["feed shop.more to orders"],
                "changed": ["queue orders"],
                "removed": ["publish outbox"],
                "settings": [],
                "needs_restart": ["edge.lease"],
            },
        )
        more = await client.publisher("shop.more")
        await eventually(lambda: _is_well(edge, "shop.more to orders"), "the new feed is subscribed")
        _ = await more.send(b"new", timeout=LONG_S)
        async with Queue.open(sqlite.url, "orders") as queue:
            assert (await queue.configure()).max_retries == 5
        starts = [line["part"] for line in edge.log if line["event"] == "part_started"]
        assert starts.count("shop.orders to orders") == 1
        assert starts.count("orders") == 2
        file.write_text(settings(sqlite.url, [router.url], "[[queue]]\nname = 5"))
        edge.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
        await edge.logged("config_refused")
        assert (await edge.ask("/readyz"))[0] == 200
        status, refused = await edge.ask("/api/v1/reload", "POST")
        assert (status, "queue.name" in refused["error"]) == (409, True)


async def _is_well(edge: EdgeProcess, name: str) -> bool:
    row = await edge.part("feed", name)
    return (row["state"], row["trouble"]) == ("owner", "")


async def test_who_is_attached_to_a_queue_stays_while_the_queue_is_changed(
    tmp_path: Path, sqlite: Database, router: RouterProcess
) -> None:
    file = tmp_path / "edge.toml"
    async with running_edge(file, settings(sqlite.url, [router.url], '[[queue]]\nname = "orders"\n')) as edge:
        client = await RawClient.connect(router.port)
        push = await pusher(client, "orders")
        file.write_text(settings(sqlite.url, [router.url], '[[queue]]\nname = "orders"\nmax_retries = 7\n'))
        status, done = await edge.ask("/api/v1/reload", "POST")
        assert (status, done["changed"]) == (200, ["queue orders"])
        await eventually(lambda: _is_ready(edge), "the queue is changed")
        push.send(b"1", b"one")
        assert (await push.outcome(b"1")).state == ACCEPTED
        async with Queue.open(sqlite.url, "orders") as queue:
            assert (await queue.configure()).max_retries == 7


async def _is_ready(edge: EdgeProcess) -> bool:
    return (await edge.ask("/readyz"))[0] == 200


@pytest.mark.parametrize(
    ("store", "http", "what"),
    [
        ("sqlite:////nowhere/edge.db", "", b"/nowhere/edge.db"),
        ("sqlite:///edge.db", 'host = "192.0.2.1"', b"HTTP cannot be served on 192.0.2.1:"),
    ],
)
async def test_an_edge_that_cannot_start_ends_with_what_to_do(
    tmp_path: Path, store: str, http: str, what: bytes
) -> None:
    text = settings(store, ["amqp://127.0.0.1:1"], f"[http]\nport = 0\n{http}\n[[publish]]")
    await asyncio.to_thread((tmp_path / "edge.toml").write_text, text)
    process = await asyncio.create_subprocess_exec(
        *(*ONCEWIRE, "edge", "serve", "--config", "edge.toml"),
        cwd=tmp_path,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, error = await asyncio.wait_for(process.communicate(), LONG_S)
    assert process.returncode == 2, error
    assert what in error
    assert b"what to do: " in error
    assert b"Traceback" not in error


async def test_operators_connect_by_tls_where_it_is_set(
    tmp_path: Path, sqlite: Database, router: RouterProcess
) -> None:
    authority = TestAuthority(tmp_path)
    certificate = authority.issue("edge")
    tls = f'[http]\ntls = true\n[tls]\ncert_file = "{certificate.certificate}"\nkey_file = "{certificate.key}"\n'
    text = settings(sqlite.url, [router.url], tls + '[[queue]]\nname = "q"\n')
    async with running_edge(tmp_path / "edge.toml", text) as edge:
        assert edge.url.startswith("https://")
        assert (await edge.ask("/healthz", ssl=authority.context()))[0] == 200
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await edge.ask("/healthz")


async def test_a_part_that_fails_is_started_again_and_the_others_do_not_notice(
    tmp_path: Path, sqlite: Database
) -> None:
    async with running_router("--standalone", "--http-loopback-role=viewer") as router:
        text = settings(sqlite.url, [router.url], ALL)
        async with running_edge(tmp_path / "edge.toml", text, is_ready=False) as edge, connect(router.url) as client:
            await edge.logged("part_failed", kind="queue")  # its user lacks the role
            await eventually(lambda: _is_well(edge, "shop.orders to orders"), "the feed runs")
            shop = await client.publisher("shop.orders")
            assert (await shop.send(b"1", timeout=LONG_S)).is_accepted
            await eventually(lambda: _lacks_a_role(edge), "readiness names the role")
            await eventually(lambda: _has_restarted(edge), "it is tried again")


async def _lacks_a_role(edge: EdgeProcess) -> bool:
    """While it is tried again, readiness says that it starts."""
    status, found = await edge.ask("/readyz")
    assert status == 503
    return any("queue orders" in each and "services.role" in each for each in found["waiting_for"])


async def _has_restarted(edge: EdgeProcess) -> bool:
    return bool((await edge.part("queue"))["restarts"] > 1)


async def test_a_feed_whose_subscription_was_ended_is_not_started_again(
    tmp_path: Path, sqlite: Database, router: RouterProcess
) -> None:
    async with running_edge(tmp_path / "edge.toml", settings(sqlite.url, [router.url], ALL)) as edge:
        ending = await asyncio.create_subprocess_exec(
            *ONCEWIRE,
            *("queue", "unsubscribe", "shop.orders", "orders"),
            *("--store", sqlite.url, "--router", router.url),
            stdout=asyncio.subprocess.PIPE,
        )
        await ending.communicate()
        assert ending.returncode == 0
        await edge.logged("part_ended", kind="feed")
        row = await edge.part("feed")
        assert (row["state"], "take it out of the settings" in row["trouble"]) == ("ended", True)
        _, listed = await router.get("/api/v1/subscriptions")
        assert listed["items"] == []


async def test_operators_log_in_where_there_are_users_and_strangers_reload_nothing(
    tmp_path: Path, sqlite: Database, router: RouterProcess
) -> None:
    write(str(tmp_path / "users"), [line_of("ann", "a long password")])
    file, parts = tmp_path / "edge.toml", '[[queue]]\nname = "q"\n'
    async with running_edge(file, settings(sqlite.url, [router.url], parts)) as edge:
        assert (await edge.ask("/api/v1/reload", "POST", headers={"Origin": "https://elsewhere.example"}))[0] == 403
        assert (await edge.ask("/api/v1/reload", "POST"))[0] == 200
    users = f'[http]\nusers_file = "{tmp_path}/users"\n'
    async with running_edge(file, settings(sqlite.url, [router.url], users + parts)) as edge:
        assert (await edge.ask("/healthz"))[0] == 200
        login = {"Authorization": "Basic " + base64.b64encode(b"ann:a long password").decode()}
        for path in ("/metrics", "/api/v1/state"):
            status, refused = await edge.ask(path)
            assert (status, "users_file" in refused["fix"]) == (401, True)
            assert (await edge.ask(path, headers=login))[0] == 200
        assert (await edge.ask("/api/v1/reload", "POST"))[0] == 401
