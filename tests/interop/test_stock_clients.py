"""Stock clients, with nothing of ours in them, across a SIGKILL of their router (protocol c.5: at-least-once)."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from chaos.clients.client_plan import PublisherPlan, Share
from chaos.clients.client_process import ClientProcess
from chaos.network.network_state import read_states
from router.commands.local_network import LocalNetwork
from tests.router.processes import running_router
from tests.support.certificates import TestAuthority
from tests.support.requirements import TOOLS

MESSAGES = 5_000
KILL_AFTER = 1_500
"""Messages received before the router is killed."""
UNSETTLED = 100
DEADLINE_S = 90.0
POLL_S = 0.02
SETTINGS = {"etcd.lease_ttl_s": "4", "http.websocket": "true"}
HERE = Path(__file__).parent
COMMANDS = {
    "proton": [sys.executable, str(HERE / "proton_client.py")],
    "rhea": ["node", str(HERE / "rhea_client.js"), str(TOOLS / "node_modules" / "rhea")],
}
COMMANDS["rhea by WebSocket"] = COMMANDS["rhea"]
CLIENTS = [
    pytest.param("proton", marks=pytest.mark.needs("proton")),
    pytest.param("rhea", marks=pytest.mark.needs("node", "rhea")),
    pytest.param("rhea by WebSocket", marks=pytest.mark.needs("node", "rhea", "ws")),
]


def urls_of(network: LocalNetwork, kind: str) -> list[str]:
    routers = [network.routers[name] for name in ("r1", "r2")]
    if kind.endswith("by WebSocket"):
        return [f"{router.http.replace('http', 'ws')}/amqp" for router in routers]
    return [router.url for router in routers]


@dataclass
class StockClient:
    """A process of a stock client and the file of its events."""

    process: asyncio.subprocess.Process
    path: Path

    def events(self, word: str) -> list[dict[str, Any]]:
        """Its complete events that have this word."""
        text = self.path.read_text() if self.path.exists() else ""
        lines = text.splitlines(keepends=True)
        return [event for line in lines if line.endswith("\n") and word in (event := json.loads(line))]


@asynccontextmanager
async def stock_client(kind: str, role: str, urls: list[str], path: Path) -> AsyncIterator[StockClient]:
    """Run a stock client for the time of the block."""
    command = [*COMMANDS[kind], role, ",".join(urls), "stock", str(MESSAGES), str(path)]
    with path.with_suffix(".log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield StockClient(process, path)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def until(condition: Callable[[], bool], *clients: StockClient) -> None:
    """Wait for the condition while the clients live; one that has ended in good order is fine."""
    ends_at = time.monotonic() + DEADLINE_S
    while not condition():
        for client in clients:
            code = client.process.returncode
            assert code in (None, 0), f"ended with {code}: {client.path.with_suffix('.log').read_text()}"
        assert time.monotonic() < ends_at, [len(client.events("received")) for client in clients]
        await asyncio.sleep(POLL_S)


async def until_unsettled(network: LocalNetwork, router: str) -> None:
    ends_at = time.monotonic() + DEADLINE_S
    async with aiohttp.ClientSession() as session:
        while True:
            states = await read_states(session, {router: network.routers[router].http})
            if states[router].unsettled >= UNSETTLED:
                return
            assert time.monotonic() < ends_at, states
            await asyncio.sleep(POLL_S)


async def kill_while_unsettled(network: LocalNetwork, router: str, receiver: StockClient) -> None:
    """Pause the receiver, so that deliveries surely wait for it however fast it is; then kill the router."""
    receiver.process.send_signal(signal.SIGSTOP)
    try:
        await until_unsettled(network, router)
        await network.kill(router)
    finally:
        receiver.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("kind", CLIENTS)
async def test_a_stock_client_publishes_and_receives_across_a_sigkill_of_its_router(kind: str, tmp_path: Path) -> None:
    async with LocalNetwork(2, settings=SETTINGS, log_folder=tmp_path) as network:
        urls = urls_of(network, kind)
        async with stock_client(kind, "receive", urls, tmp_path / "receiver.jsonl") as receiver:
            await until(lambda: bool(receiver.events("attached")), receiver)
            async with stock_client(kind, "send", urls, tmp_path / "sender.jsonl") as sender:
                await until(lambda: len(receiver.events("received")) >= KILL_AFTER, receiver, sender)
                await kill_while_unsettled(network, "r1", receiver)
                await until(lambda: sender.process.returncode == 0, receiver, sender)
                wanted = set(range(1, MESSAGES + 1))
                await until(lambda: {each["received"] for each in receiver.events("received")} == wanted, receiver)
        accepted = {event["accepted"] for event in sender.events("accepted")}
        assert accepted == wanted
        assert sender.events("disconnected")
        assert receiver.events("disconnected")
        sent = Counter(event["sent"] for event in sender.events("sent"))
        assert_repeats_are_recognisable(receiver.events("received"), sent)


@pytest.mark.needs("node", "rhea", "ws")
async def test_a_stock_client_publishes_and_receives_by_websocket_through_tls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = TestAuthority(tmp_path / "pki")
    own = authority.issue("router")
    monkeypatch.setenv("NODE_EXTRA_CA_CERTS", str(authority.file))
    flags = ("--http-tls=true", f"--tls-cert-file={own.certificate}", f"--tls-key-file={own.key}")
    async with running_router("--standalone", "--http-websocket=true", *flags) as router:
        urls = [f"{router.http.replace('http', 'ws')}/amqp"]
        assert urls[0].startswith("wss://")
        async with stock_client("rhea", "receive", urls, tmp_path / "receiver.jsonl") as receiver:
            await until(lambda: bool(receiver.events("attached")), receiver)
            async with stock_client("rhea", "send", urls, tmp_path / "sender.jsonl") as sender:
                await until(lambda: sender.process.returncode == 0, receiver, sender)
        assert sorted(each["accepted"] for each in sender.events("accepted")) == list(range(1, MESSAGES + 1))
        assert {each["received"] for each in receiver.events("received")} == set(range(1, MESSAGES + 1))


@pytest.mark.parametrize("kind", CLIENTS[:2])
async def test_a_stock_subscriber_is_reported_which_messages_the_network_repeats(kind: str, tmp_path: Path) -> None:
    source = tmp_path / "rows.txt"
    source.write_text("".join(f"row {number}\n" for number in range(1, MESSAGES + 1)))
    async with LocalNetwork(2, settings={"etcd.lease_ttl_s": "4"}, log_folder=tmp_path) as network:
        urls = [network.routers[name].url for name in ("r1", "r2")]
        plan = PublisherPlan(
            name="resuming",
            topic="stock",
            urls=tuple(reversed(urls)),
            events=str(tmp_path / "publisher.jsonl"),
            share=Share(MESSAGES, file=str(source)),
            rate=0,
            window=500,
        )
        publisher = ClientProcess(plan, tmp_path / "publisher.log")
        async with stock_client(kind, "receive", urls, tmp_path / "receiver.jsonl") as receiver:
            try:
                await until(lambda: bool(receiver.events("attached")), receiver)
                await publisher.start()
                await until(lambda: len(receiver.events("received")) >= KILL_AFTER, receiver)
                await kill_while_unsettled(network, "r1", receiver)
                await until(lambda: publisher.has_ended, receiver)
                publisher.check()
            finally:
                await publisher.kill()
        received = receiver.events("received")
        assert {each["received"] for each in received} == set(range(1, MESSAGES + 1))
        assert any(each["redelivered"] for each in received)
        assert_repeats_are_recognisable(received, Counter(range(1, MESSAGES + 1)))


def assert_repeats_are_recognisable(received: list[dict[str, Any]], sent: Counter[int]) -> None:
    """The network's repeats have the identity of the first copy; a publisher's own re-send has its message-id only.

    The identity is x-opt-topic-session with x-opt-topic-tag: not every stock client can read binary delivery tags.
    `sent` says how often the publisher sent each message. What Proton had not yet written when its connection failed
    it writes on the next one, beside what the application sends again.
    """
    seen: dict[int, set[tuple[int, str]]] = {}
    for message in received:
        number = message["received"]
        assert message["body"] == f"row {number}"
        assert message["session"]
        assert message["tag"]
        identity = (message["session"], message["tag"])
        earlier = seen.setdefault(number, set())
        assert identity not in earlier or message["redelivered"], (message, earlier)
        earlier.add(identity)
        assert len(earlier) <= sent[number], (message, earlier)
