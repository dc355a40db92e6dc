"""A node's door: strangers lock nobody out, and requests under way hold no more than they may."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import resource
import secrets
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from bridges.node import door
from bridges.node.client import RemoteNode
from bridges.node.door import MAX_OPENING, Room, node_doors
from bridges.node.errors import NodeUnavailable
from bridges.node.frames import HEAD, MAGIC, NONCE_BYTES, decode_head, encode_frame, proof
from bridges.node.model import NodeSettings
from bridges.node.node import BridgeNode
from bridges.node.running import LogFormatter
from bridges.node.server import MAX_CONNECTIONS, Server
from tests.client.shell_helpers import LONG, until

SECRET = b"a secret of some length"
BODY_BYTES = 512 * 1024


@pytest.fixture
def descriptors() -> Iterator[None]:
    """As many as this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 16_384), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[Server, int]]:
    """A node's listener; it needs no router."""
    server = Server(BridgeNode(NodeSettings("node", folder, ("amqp://127.0.0.1:1",))), SECRET)
    try:
        yield server, await server.listen_tcp("127.0.0.1", 0)
    finally:
        await server.stop()


async def logged_in(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    size, _ = decode_head(await reader.readexactly(HEAD.size))
    theirs, own = json.loads(await reader.readexactly(size))["nonce"], secrets.token_hex(NONCE_BYTES)
    writer.write(encode_frame({"nonce": own, "proof": proof(SECRET, "client", theirs, own)}))
    size, _ = decode_head(await reader.readexactly(HEAD.size))
    assert json.loads(await reader.readexactly(size))["ok"]
    return reader, writer


@pytest.mark.usefixtures("descriptors")
async def test_strangers_who_prove_nothing_lock_no_pipeline_out(tmp_path: Path) -> None:
    async with serving(tmp_path) as (server, port):
        strangers = []
        for _ in range(MAX_CONNECTIONS + 8):
            each = socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.2", 0))
            strangers.append(each)
            await asyncio.sleep(0)
        friend = RemoteNode(f"tcp://127.0.0.1:{port}", SECRET, patience_s=0.0)
        assert (await asyncio.wait_for(asyncio.to_thread(friend.status), LONG))["name"] == "node"
        assert server.doors.gates["pipeline"].admission.count <= MAX_OPENING // 2
        admission = server.doors.gates["pipeline"].admission
        assert admission.refused + admission.closed >= MAX_CONNECTIONS - MAX_OPENING // 2, "all are counted"
        friend.close()
        for each in strangers:
            each.close()


async def test_requests_under_way_hold_no_more_than_they_may(tmp_path: Path) -> None:
    """Half of a body from each of eight, where four bodies have room: the others are not read."""
    async with serving(tmp_path) as (server, port):
        server.room.limit = 4 * (BODY_BYTES + 2)
        clients = [await logged_in(port) for _ in range(8)]
        for _, writer in clients:
            writer.write(HEAD.pack(MAGIC, 2, BODY_BYTES) + b"{}" + bytes(BODY_BYTES // 2))
        await until(lambda: server.room.held == server.room.limit)
        for reader, writer in clients:  # each gets its turn
            writer.write(bytes(BODY_BYTES // 2))
            answer = await asyncio.wait_for(reader.readexactly(HEAD.size), LONG)
            assert answer.startswith(MAGIC)
            assert server.room.held <= server.room.limit
        await until(lambda: server.room.held == 0)
        for _, writer in clients:
            writer.close()


async def test_who_waits_for_room_in_vain_is_reported_so_and_keeps_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "ROOM_S", 0.0)
    room = Room(10)
    async with room.hold(8):
        with pytest.raises(NodeUnavailable, match="no room"):
            async with room.hold(3):
                pass
        assert room.held == 8
    assert room.held == 0


def test_a_name_in_a_log_line_begins_no_line_and_turns_none_around() -> None:
    record = logging.LogRecord("oncewire.bridge", logging.INFO, "", 0, "of %s", ("a\n\u202eb\x1b[2J",), None)
    assert LogFormatter("%(message)s").format(record) == "of a\\n\\u202eb\\x1b[2J"


def test_the_same_refusal_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    found = node_doors()
    for number in range(100):
        found.connection_refused("pipeline", "192.0.2.1", "too many connections do not say who they are")
        found.handshake_failed("http", "the other side does not speak TLS")
        found.login_failed("http", "192.0.2.1", "a wrong user or password")
        found.accept_failed("pipeline", "Too many open files")
        found.notify_fault("a connection", ValueError(str(number)))
    assert len(caplog.records) == 5
    assert (found.handshakes_failed, found.logins_failed["http"]) == (100, 100), "all are counted"
