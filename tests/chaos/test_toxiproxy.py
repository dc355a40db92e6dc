"""The real Toxiproxy does to a connection what the experiments count on."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from chaos.network.toxiproxy import (
    DOWNSTREAM,
    PROGRAM,
    UPSTREAM,
    ProxyAddress,
    ToxiproxyFailed,
    ToxiproxyNotFound,
    ToxiproxyServer,
    find_toxiproxy,
)
from topology.etcd.server import free_port

needs_toxiproxy = pytest.mark.needs("toxiproxy")
LONG_S = 60.0
FOREVER_MS = 3_600_000


@asynccontextmanager
async def proxied_echo(folder: Path) -> AsyncIterator[tuple[ToxiproxyServer, ProxyAddress]]:
    handlers: list[asyncio.Task[None] | None] = []

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.append(asyncio.current_task())
        with suppress(ConnectionError):
            while data := await reader.read(1024):
                writer.write(data)
        await closed(writer)

    server = await asyncio.start_server(echo, "127.0.0.1")
    port = server.sockets[0].getsockname()[1]
    async with ToxiproxyServer(folder / "toxiproxy.log") as toxiproxy:
        yield toxiproxy, await toxiproxy.create("echo", f"127.0.0.1:{free_port()}", f"127.0.0.1:{port}")
    server.close()
    # The end of Toxiproxy is the end of every connection.
    await asyncio.wait_for(asyncio.gather(*filter(None, handlers)), LONG_S)


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def connect(proxy: ProxyAddress) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, _, port = proxy.listen.rpartition(":")
    return await asyncio.open_connection(host, int(port))


async def echoed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes) -> bytes:
    writer.write(data)
    return await asyncio.wait_for(reader.readexactly(len(data)), LONG_S)


@needs_toxiproxy
async def test_what_is_held_comes_in_order_when_the_toxic_is_removed(tmp_path: Path) -> None:
    async with proxied_echo(tmp_path) as (toxiproxy, proxy):
        reader, writer = await connect(proxy)
        assert await echoed(reader, writer, b"before") == b"before"
        await toxiproxy.add_toxic(proxy, "held", "latency", UPSTREAM, {"latency": FOREVER_MS, "jitter": 0})
        writer.write(b"one, ")
        writer.write(b"two")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.3)
        await toxiproxy.remove_toxic(proxy, "held")
        assert await asyncio.wait_for(reader.readexactly(8), LONG_S) == b"one, two"
        await closed(writer)


@needs_toxiproxy
@pytest.mark.parametrize("stream", [UPSTREAM, DOWNSTREAM])
async def test_a_silent_direction_loses_what_is_sent_and_the_connection_ends_with_the_toxic(
    tmp_path: Path, stream: str
) -> None:
    async with proxied_echo(tmp_path) as (toxiproxy, proxy):
        reader, writer = await connect(proxy)
        assert await echoed(reader, writer, b"before") == b"before"
        await toxiproxy.add_toxic(proxy, "silent", "timeout", stream, {"timeout": 0})
        writer.write(b"lost")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.3)
        await toxiproxy.remove_toxic(proxy, "silent")
        assert await asyncio.wait_for(reader.read(), LONG_S) == b""
        await closed(writer)
        again = await connect(proxy)
        assert await echoed(*again, b"after") == b"after"
        await closed(again[1])


@needs_toxiproxy
async def test_a_proxy_that_is_cut_ends_connections_and_refuses_others_until_it_is_repaired(tmp_path: Path) -> None:
    async with proxied_echo(tmp_path) as (toxiproxy, proxy):
        reader, writer = await connect(proxy)
        assert await echoed(reader, writer, b"before") == b"before"
        await toxiproxy.set_enabled(proxy, enabled=False)
        assert await asyncio.wait_for(reader.read(), LONG_S) == b""
        await closed(writer)
        with pytest.raises(ConnectionRefusedError):
            await connect(proxy)
        await toxiproxy.set_enabled(proxy, enabled=True)
        again = await connect(proxy)
        assert await echoed(*again, b"after") == b"after"
        await closed(again[1])


@needs_toxiproxy
async def test_a_refusal_of_the_server_is_an_error_that_says_what_it_said(tmp_path: Path) -> None:
    async with proxied_echo(tmp_path) as (toxiproxy, proxy):
        with pytest.raises(ToxiproxyFailed, match="invalid toxic type"):
            await toxiproxy.add_toxic(proxy, "odd", "no-such-toxic", UPSTREAM, {})
        with pytest.raises(ToxiproxyFailed):
            await toxiproxy.create("other", proxy.listen, proxy.upstream)


def test_a_program_that_is_named_and_absent_is_not_replaced_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOXIPROXY_SERVER", "/nowhere/toxiproxy-server")
    with pytest.raises(ToxiproxyNotFound, match="/nowhere/toxiproxy-server"):
        find_toxiproxy()


def test_a_program_on_path_comes_before_the_one_beside_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOXIPROXY_SERVER", raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    with pytest.raises(ToxiproxyNotFound, match="no toxiproxy-server on PATH"):
        find_toxiproxy()
    for folder in (tmp_path / "python" / "bin", tmp_path / "path"):
        folder.mkdir(parents=True)
        program = folder / PROGRAM
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
        assert find_toxiproxy() == str(program)
