"""A node as pipelines see it: over TCP, over a unix socket, and embedded, with a real router behind it."""

from __future__ import annotations

import asyncio
import json
import pickle
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from click.testing import CliRunner

from bridges.cli import bridge
from bridges.node.arrow_bodies import encode_rows, range_schema
from bridges.node.client import RemoteNode
from bridges.node.embedded import EmbeddedNode
from bridges.node.errors import (
    BadRequest,
    Fenced,
    JournalReplaced,
    NodeUnavailable,
    NotAuthenticated,
    OutboxFull,
    OwnedByAnother,
    PartMissing,
    RangeTrimmed,
)
from bridges.node.interface import Node
from bridges.node.model import NodeSettings, StagedPart, Writer
from oncewire.client import Client, connect
from oncewire.wire import decode_message, encode_data_message
from tests.client.shell_helpers import LONG, until
from tests.node.node_process import NodeProcess, running_node
from tests.router.processes import RouterProcess
from tests.support.effort import rounds

WRITER = Writer("query", "run")


@contextmanager
def opened(kind: str, folder: Path, router: RouterProcess, more: str = "") -> Iterator[Node]:
    if kind == "embedded":
        with EmbeddedNode(NodeSettings("node", folder, (router.url,))) as embedded:
            yield embedded
    else:
        with running_node(folder, [router.url], more) as process, process.connect(kind) as remote:
            yield remote


async def call(function: Any, *arguments: Any, **more: Any) -> Any:
    """A node's calls block; the test's own client needs the loop meanwhile."""
    return await asyncio.wait_for(asyncio.to_thread(function, *arguments, **more), LONG)


def texts(batches: Iterator[Any]) -> list[str]:
    """The bodies of a range."""
    found: list[str] = []
    for batch in batches:
        assert batch.schema.equals(range_schema())
        for payload in batch.column(3).to_pylist():
            body = decode_message(payload).body
            assert isinstance(body, bytes)
            found.append(body.decode())
    return found


def stage(node: Node, batch: int, values: list[str], attempt: str = "a", writer: Writer = WRITER) -> StagedPart:
    body = encode_rows(["out"] * len(values), [encode_data_message(value.encode()) for value in values])
    node.stage("sink", writer, batch, 0, attempt, 0, body, patience_s=0.0)
    return StagedPart(0, attempt, 1, len(values))


@asynccontextmanager
async def connected(router: RouterProcess) -> AsyncIterator[Client]:
    async with connect(router.url, container_id="test") as client:
        yield client


async def publish(client: Client, topic: str, values: list[str]) -> None:
    publisher = await client.publisher(topic)
    for value in values:
        _ = await publisher.submit(value.encode())
    await publisher.close()


KINDS = pytest.mark.parametrize("kind", ["tcp", "unix", "embedded"])


@KINDS
async def test_a_batch_is_read_written_and_published(kind: str, router: RouterProcess, tmp_path: Path) -> None:
    with opened(kind, tmp_path / "node", router) as node:
        journal = await call(node.subscribe, "flights", ["orders"])
        assert await call(node.initial_offset, "flights", "earliest") == 0
        async with connected(router) as client:
            await publish(client, "orders", [str(n) for n in range(500)])
            offsets = await call(node.offsets, "flights", 0, max_rows=300)
            assert (offsets.journal, offsets.last, offsets.end, offsets.owner) == (journal, 500, 300, None)
            read = await call(lambda: texts(node.read_range("flights", 0, 300, journal=journal, query="query")))
            assert read == [str(n) for n in range(300)]
            subscriber = await client.subscriber("out")
            part = await call(stage, node, 0, read)
            done = asyncio.create_task(call(node.commit, "sink", WRITER, 0, [part], 10.0))
            for expected in read:
                delivery = await subscriber.receive(LONG)
                assert delivery.body == expected.encode()
                await delivery.accept()
            commit = await done
            assert (commit.is_first, commit.is_done, commit.rows, commit.not_accepted) == (True, True, 300, 0)
        await call(node.trim, "flights", 300, "query")
        assert (await call(node.offsets, "flights")).deleted == 300
        state = await call(node.status)
        assert state["subscriptions"]["flights"]["messages"]["new"] == 500
        assert state["sinks"]["sink"]["outcomes"] == {"accepted": 300}
        assert state["ready"]


async def test_the_command_shows_the_state_to_people_and_to_programs(router: RouterProcess, tmp_path: Path) -> None:
    with running_node(tmp_path / "node", [router.url]) as process, process.connect() as node:
        await call(node.subscribe, "flights", ["orders"])
        arguments = [process.announced["tcp"], "--secret-file", process.announced["secret"]]

        def shown(*words: str) -> str:
            done = CliRunner().invoke(bridge, [words[0], *arguments, *words[1:]])
            assert done.exit_code == 0, done.output
            return done.output

        text = (await call(shown, "status")).splitlines()
        assert text[0] == "name: node"
        assert "    topics: orders" in text
        assert json.loads(await call(shown, "status", "--json"))["subscriptions"]["flights"]["topics"] == ["orders"]
        assert json.loads(await call(shown, "release", "flights", "--json"))["released"]


@KINDS
async def test_errors_keep_their_kind_on_the_way(kind: str, router: RouterProcess, tmp_path: Path) -> None:
    with opened(kind, tmp_path / "node", router) as node:
        with pytest.raises(BadRequest, match="name of a subscription"):
            await call(node.subscribe, "../etc", ["orders"])
        await call(node.subscribe, "flights", ["orders"])
        await call(node.subscribe, "flights", ["orders"])
        with pytest.raises(BadRequest, match="has the topics orders"):
            await call(node.subscribe, "flights", ["trains"])
        async with connected(router) as client:
            await publish(client, "orders", ["1", "2"])
        assert await call(lambda: texts(node.read_range("flights", 0, 2, query="one"))) == ["1", "2"]
        with pytest.raises(OwnedByAnother):
            await call(lambda: texts(node.read_range("flights", 0, 2, query="two")))
        with pytest.raises(JournalReplaced):
            await call(lambda: texts(node.read_range("flights", 0, 2, journal="another")))
        await call(node.trim, "flights", 1)
        with pytest.raises(RangeTrimmed):
            await call(lambda: texts(node.read_range("flights", 0, 2)))
        with pytest.raises(PartMissing):
            await call(node.commit, "sink", WRITER, 0, [StagedPart(0, "a", 1, 1)])
        await call(node.commit, "sink", Writer("query", "newer"), 0, [])
        with pytest.raises(Fenced):
            await call(node.commit, "sink", WRITER, 1, [])
        with pytest.raises(OwnedByAnother, match="takeover"):
            await call(node.commit, "sink", Writer("other", "run"), 0, [])
        with pytest.raises(BadRequest, match="no AMQP message"):
            await call(node.stage, "sink", WRITER, 1, 0, "a", 0, encode_rows(["out"], [b"text"]))
        with pytest.raises(BadRequest, match="no sink"):
            await call(node.wait_done, "nothing", 0, 0.0)
        await call(node.release, "flights")
        assert await call(lambda: texts(node.read_range("flights", 1, 2, query="two"))) == ["2"]


@KINDS
async def test_an_empty_batch_and_a_repeated_commit_are_done(kind: str, router: RouterProcess, tmp_path: Path) -> None:
    with opened(kind, tmp_path / "node", router) as node:
        first = await call(node.commit, "sink", WRITER, 0, [], 10.0)
        again = await call(node.commit, "sink", WRITER, 0, [], 10.0)
        assert (first.is_first, first.is_done, again.is_first, again.is_done) == (True, True, False, True)
        assert not await call(node.stage, "sink", WRITER, 0, 0, "a", 0, encode_rows(["out"], [b"\0Su\xa0\0"]))


async def test_a_commit_that_waits_for_a_slow_subscriber_says_so_and_goes_on(
    router: RouterProcess, tmp_path: Path
) -> None:
    more = 'outbox.max_bytes = "64 KiB"\n'
    with opened("tcp", tmp_path / "node", router, more) as node:
        async with connected(router) as client:
            subscriber = await client.subscriber("out")
            for batch in range(2):
                part = await call(stage, node, batch, ["x" * 40_000])
                commit = await call(node.commit, "sink", WRITER, batch, [part], 0.2)
                assert not commit.is_done
            with pytest.raises(OutboxFull):
                await call(stage, node, 2, ["z"])
            for _ in range(2):
                await (await subscriber.receive(LONG)).accept()
            assert (await call(node.wait_done, "sink", commit.number, 10.0)).is_done
            await call(stage, node, 2, ["z"])


@pytest.mark.slow
async def test_a_node_that_is_killed_is_waited_for_and_goes_on_where_it_was(
    router: RouterProcess, tmp_path: Path
) -> None:
    with running_node(tmp_path / "node", [router.url]) as process, process.connect() as node:
        await call(node.subscribe, "flights", ["orders"])
        async with connected(router) as client:
            await publish(client, "orders", ["x" * 1000 + str(n) for n in range(40_000)])
            batches = node.read_range("flights", 0, 40_000)
            count = (await call(lambda: next(batches))).num_rows
            with pytest.raises(BadRequest, match="a range is being read"):
                await call(node.status)
            await call(node.trim, "flights", 10)  # a task does, of what was read before
            await call(process.restart)
            count += await call(lambda: sum(batch.num_rows for batch in batches))
            assert count == 40_000
            marks = await call(node.offsets, "flights")
            assert (marks.trimmed, marks.last) == (10, 40_000)
            await publish(client, "orders", ["after"])  # the node has attached again by itself
        assert (await call(node.offsets, "flights")).last == 40_001


async def test_without_the_secret_nothing_can_be_asked(router: RouterProcess, tmp_path: Path) -> None:
    with running_node(tmp_path / "node", [router.url]) as process:
        stranger = RemoteNode(process.announced["tcp"], b"not the secret of this node")
        with pytest.raises(NotAuthenticated, match="another secret"):
            await call(stranger.status)
        with process.connect() as friend:
            assert (await call(friend.status))["name"] == "node"


async def test_a_program_that_only_claims_to_be_the_node_learns_nothing(tmp_path: Path) -> None:
    """The client asks for a proof, too: it would not give its rows to somebody else."""

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from bridges.node.frames import encode_frame

        writer.write(encode_frame({"nonce": "0" * 64}))
        await reader.read(100)
        writer.write(encode_frame({"ok": True, "proof": "0" * 64}))
        await reader.read(1)
        writer.close()

    server = await asyncio.start_unix_server(pretend, tmp_path / "s")
    client = RemoteNode(f"unix://{tmp_path / 's'}", b"a secret of some length", patience_s=0.0)
    with pytest.raises(NotAuthenticated, match="the node is not who"):
        await call(client.status)
    server.close()


async def test_bytes_that_are_no_request_end_their_connection_only(router: RouterProcess, tmp_path: Path) -> None:
    from bridges.node.frames import HEAD, MAGIC, MAX_BODY_BYTES, encode_frame

    with running_node(tmp_path / "node", [router.url]) as process:
        host, _, port = process.announced["tcp"].removeprefix("tcp://").rpartition(":")
        for garbage in (
            b"GET / HTTP/1.1\r\n\r\n",
            HEAD.pack(MAGIC, 1 << 30, 0),
            HEAD.pack(MAGIC, 10, MAX_BODY_BYTES + 1),
            HEAD.pack(MAGIC, 4, 0) + b"null",
            HEAD.pack(MAGIC, 4096, 0) + b"[" * 4096,
            encode_frame({"op": "status"}),
            encode_frame({"nonce": 7}),
        ):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(garbage)
            answer = await asyncio.wait_for(reader.read(), LONG)
            assert b'"ok":false' in answer
            writer.close()
        with process.connect() as node:
            assert isinstance(node, RemoteNode)
            for request in (
                {"op": "nothing"},
                {"op": ["range"]},
                {},
                {"op": "range", "subscription": 3},
                {"op": "trim", "subscription": "s", "position": -1},
                {"op": "commit", "sink": "s", "parts": 1},
                {"op": "stage", "sink": "x" * 2000},
                {"op": "subscribe", "subscription": "s", "topics": "t"},
                {"op": "commit", "sink": "s", "query": "q", "run": "r", "batch": 0, "parts": [[0, "a"]]},
                {"op": "finished", "sink": "s", "number": 0, "wait_s": "long"},
                {"op": "commit", "sink": "s", "query": "q", "run": "r", "takeover": 1, "batch": 0, "parts": []},
            ):
                with pytest.raises(BadRequest):
                    await call(node._ask, request)
            assert (await call(node.status))["ready"]


async def test_a_node_that_is_not_there_is_reported_from_one_that_refuses(tmp_path: Path) -> None:
    for address in ("tcp://127.0.0.1:1", f"unix://{tmp_path}/none"):
        with pytest.raises(NodeUnavailable, match="cannot be reached"):
            await call(RemoteNode(address, b"0123456789abcdef", patience_s=0.0).status)
    for address in ("http://x", "tcp://host", "tcp://:1", "tcp://h:70000", "unix://relative", ""):
        with pytest.raises(BadRequest, match="no address"):
            RemoteNode(address, b"0123456789abcdef")
    with pytest.raises(BadRequest, match="16 are needed"):
        RemoteNode("tcp://h:1", b"short")


@KINDS
async def test_a_node_can_be_pickled_before_and_after_use(kind: str, router: RouterProcess, tmp_path: Path) -> None:
    with opened(kind, tmp_path / "node", router) as node:
        await call(node.subscribe, "flights", ["orders"])
        with pickle.loads(pickle.dumps(node)) as twin:
            assert (await call(twin.offsets, "flights")).last == 0


async def test_operators_see_health_readiness_metrics_and_state(router: RouterProcess, tmp_path: Path) -> None:
    more = '[[subscription]]\nname = "flights"\ntopics = ["orders"]\n'
    with running_node(tmp_path / "node", [router.url], more) as process, process.connect() as node:
        await call(node.commit, "sink", WRITER, 0, [])

        async def get(path: str) -> tuple[int, str]:
            async with aiohttp.ClientSession() as session, session.get(process.announced["http"] + path) as answer:
                return answer.status, await answer.text()

        assert (await get("/healthz"))[0] == 200
        async with asyncio.timeout(LONG):
            while (await get("/readyz"))[0] != 200:  # noqa: ASYNC110  # another process
                await asyncio.sleep(0.02)
        assert '"flights"' in (await get("/api/v1/state"))[1]
        metrics = (await get("/metrics"))[1]
        for line in (
            "oncewire_node_ready 1.0",
            'oncewire_node_journal_last{subscription="flights"} 0.0',
            'oncewire_node_messages_total{judgement="new",subscription="flights"} 0.0',
            'oncewire_node_outbox_waiting_batches{sink="sink"} 0.0',
            'oncewire_node_requests_total{op="commit"} 1.0',
        ):
            assert line in metrics
        await router.stop()
        async with asyncio.timeout(LONG):
            while (await get("/readyz"))[0] != 503:  # noqa: ASYNC110  # another process
                await asyncio.sleep(0.02)
        await asyncio.sleep(0)


async def test_kill_9_of_the_node_at_any_time_loses_and_doubles_nothing(router: RouterProcess, tmp_path: Path) -> None:
    """topic -> journal -> batches -> outbox -> topic, while the node is killed again and again."""
    total = max(2000, rounds(6000))
    received: list[str] = []
    read: list[str] = []
    with running_node(tmp_path / "node", [router.url]) as process, process.connect() as node:
        journal = await call(node.subscribe, "flights", ["in"])
        async with connected(router) as client:
            subscriber = await client.subscriber("out")

            async def receive() -> None:
                async for delivery in subscriber:
                    assert isinstance(delivery.body, bytes)
                    received.append(delivery.body.decode())
                    await delivery.accept()

            def pipeline() -> None:
                """As a query works: offsets first, then rows, then the commit; each call as often as need be."""
                low, batch = 0, 0
                while low < total:
                    end = node.offsets("flights", low, max_rows=total // 9).end
                    if end == low:
                        continue
                    rows = texts(node.read_range("flights", low, end, journal=journal, query="query"))
                    read.extend(rows)
                    part = stage(node, batch, rows)
                    while not node.commit("sink", WRITER, batch, [part], 10.0).is_done:
                        pass
                    node.trim("flights", end, "query")
                    low, batch = end, batch + 1

            receiving = asyncio.create_task(receive())
            working = asyncio.create_task(asyncio.to_thread(pipeline))
            publishing = asyncio.create_task(publish(client, "in", [str(n) for n in range(total)]))
            for share in (0.1, 0.3, 0.5, 0.7, 0.9):
                await until(lambda share=share: len(received) > share * total or working.done())  # type: ignore[misc]
                await asyncio.to_thread(process.restart)
            async with asyncio.timeout(60):
                await publishing
                await working
            await until(lambda: len(received) >= total)
            receiving.cancel()
    assert read == [str(n) for n in range(total)]
    assert received == read


def test_two_nodes_do_not_share_a_socket_and_a_stale_one_is_replaced(tmp_path: Path) -> None:
    with running_node(tmp_path / "node", ["amqp://127.0.0.1:1"]) as first:
        socket = tmp_path / "node.sock"
        assert socket.stat().st_mode & 0o777 == 0o600
        first.restart()  # kill -9 leaves the file behind
        with first.connect("unix") as node:
            assert not node.status()["waiting_for"]
        other = NodeProcess(tmp_path / "other", ["amqp://127.0.0.1:1"], more="")
        (tmp_path / "other.sock").symlink_to(socket)
        with pytest.raises(AssertionError, match="exit code 2"):
            other.start()
        (tmp_path / "other.sock").unlink()
        other.start()
        other.end()
