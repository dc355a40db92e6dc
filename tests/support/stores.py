"""Stores under test, each with a hand on its clock, its history and its faults."""

from __future__ import annotations

import asyncio
import base64
import ssl
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import aiohttp

from topology.etcd.etcd3_rpc import Etcd3Options
from topology.etcd.etcd3_store import Etcd3Store
from topology.etcd.gateway_http import GatewayOptions
from topology.etcd.gateway_store import GatewayStore
from topology.etcd.memory_store import MemoryEtcd, MemoryStore
from topology.etcd.server import EtcdServer
from topology.etcd.store import ClusterStore, WatchBatch, WatchEvent

# Generous: reached only by a defect, or by a machine that is stalled.
DEADLINE_S = 60.0
QUICK_TIMEOUT_S = 0.5
PATIENT_S = 20.0
"""How long an etcd may take to answer on a busy machine, where a test is not about that."""


class StorePlace(Protocol):
    """A store and what a test may do to it. Keys of a test begin with `prefix`."""

    prefix: str

    def client(self, *, is_hurried: bool = False) -> ClusterStore:
        """A new client; one that is hurried gives up soon, for tests of a store that does not answer."""
        ...

    async def pass_time(self, seconds: float) -> None:
        """Let the time of leases pass."""
        ...

    async def compact(self, revision: int) -> None:
        """Forget history up to a revision."""
        ...

    async def crash(self) -> None:
        """Kill the store; what it answered for is kept."""
        ...

    async def recover(self) -> None:
        """Start it again."""
        ...

    async def hang(self) -> None:
        """Take requests and answer none."""
        ...

    async def unhang(self) -> None:
        """Go on."""
        ...

    async def end(self) -> None:
        """Close all clients and leave the store running."""
        ...


class MemoryPlace:
    """A `MemoryEtcd` in virtual time."""

    def __init__(self) -> None:
        self.prefix = "/test/"
        self.now = 0.0
        self.etcd = MemoryEtcd(lambda: self.now)
        self._clients: list[MemoryStore] = []

    def client(self, *, is_hurried: bool = False) -> ClusterStore:
        made = self.etcd.client()
        self._clients.append(made)
        return made

    async def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.etcd.tick()

    async def compact(self, revision: int) -> None:
        self.etcd.compact(revision)

    async def crash(self) -> None:
        self.etcd.faults.unavailable = True

    async def recover(self) -> None:
        self.etcd.faults.unavailable = False
        self.etcd.wake_watches()

    async def hang(self) -> None:
        self.etcd.faults.lose_requests = True

    async def unhang(self) -> None:
        self.etcd.faults.lose_requests = False

    async def end(self) -> None:
        for client in self._clients:
            await client.close()


@dataclass(frozen=True)
class TlsFiles:
    """PEM files of a client of etcd."""

    ca: Path
    certificate: Path | None = None
    key: Path | None = None


@dataclass(frozen=True)
class EtcdClientOptions:
    """Options of both stores that talk to a real etcd; short time-outs unless a test says otherwise."""

    user: str = ""
    password: str = ""
    tls: TlsFiles | None = None
    call_timeout_s: float = 2.0
    connect_timeout_s: float = QUICK_TIMEOUT_S
    watch_silence_s: float = QUICK_TIMEOUT_S


def open_gateway_store(urls: Sequence[str], options: EtcdClientOptions | None = None) -> ClusterStore:
    """Over etcd's JSON gateway."""
    asked = options or EtcdClientOptions()
    context = None
    if asked.tls is not None:
        context = ssl.create_default_context(cafile=str(asked.tls.ca))
        if asked.tls.certificate is not None:
            context.load_cert_chain(asked.tls.certificate, asked.tls.key)
    return GatewayStore(
        urls,
        GatewayOptions(
            asked.user,
            asked.password,
            context,
            asked.call_timeout_s,
            connect_timeout_s=asked.connect_timeout_s,
            watch_silence_s=asked.watch_silence_s,
        ),
    )


def open_etcd3_store(urls: Sequence[str], options: EtcdClientOptions | None = None) -> ClusterStore:
    """Over gRPC."""
    asked = options or EtcdClientOptions()
    tls = asked.tls

    def credentials() -> tuple[bytes | None, bytes | None, bytes | None]:
        files = (None, None, None) if tls is None else (tls.ca, tls.certificate, tls.key)
        ca, certificate, key = (None if file is None else file.read_bytes() for file in files)
        return ca, certificate, key

    return Etcd3Store(
        urls,
        Etcd3Options(
            asked.user,
            asked.password,
            credentials,
            asked.call_timeout_s,
            connect_timeout_s=asked.connect_timeout_s,
            watch_silence_s=asked.watch_silence_s,
        ),
    )


class OpenEtcdStore(Protocol):
    """Makes a client of a real etcd."""

    def __call__(self, urls: Sequence[str], options: EtcdClientOptions | None = None) -> ClusterStore:
        """One more client."""
        ...


ETCD_STORES: Mapping[str, OpenEtcdStore] = {"gateway": open_gateway_store, "etcd3": open_etcd3_store}


class EtcdPlace:
    """A real etcd, shared with other tests: keys have a prefix of their own."""

    def __init__(self, etcd: EtcdServer, open_store: OpenEtcdStore) -> None:
        self.prefix = f"/test/{uuid.uuid4().hex}/"
        self.etcd = etcd
        self._open_store = open_store
        self._clients: list[ClusterStore] = []
        self._is_up = True

    def client(self, *, is_hurried: bool = False) -> ClusterStore:
        patience_s = QUICK_TIMEOUT_S * 2 if is_hurried else PATIENT_S
        options = EtcdClientOptions(call_timeout_s=patience_s, connect_timeout_s=patience_s)
        made = self._open_store(self.etcd.urls, options)
        self._clients.append(made)
        return made

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def compact(self, revision: int) -> None:
        await post(self.etcd.urls[0], "kv/compaction", {"revision": str(revision), "physical": True})

    async def crash(self) -> None:
        self._is_up = False
        await self.etcd.kill()

    async def recover(self) -> None:
        await self.etcd.restart()
        self._is_up = True

    async def hang(self) -> None:
        self.etcd.pause()

    async def unhang(self) -> None:
        self.etcd.resume()

    async def end(self) -> None:
        for client in self._clients:
            await client.close()
        if self._is_up:
            self.etcd.resume()
        else:
            await self.recover()


async def post(url: str, path: str, body: object) -> dict[str, object]:
    """One request to etcd's gateway, beside the store under test."""
    async with aiohttp.ClientSession() as session, session.post(f"{url}/v3/{path}", json=body) as response:
        assert response.status == 200, await response.text()
        answer: dict[str, object] = await response.json()
        return answer


def in_base64(text: str) -> str:
    """How the gateway writes keys and values."""
    return base64.b64encode(text.encode()).decode()


async def next_batch(batches: AsyncGenerator[WatchBatch, None]) -> WatchBatch:
    """The next batch, or a failure at the deadline."""
    async with asyncio.timeout(DEADLINE_S):
        return await anext(batches)


async def watch_events(store: ClusterStore, prefix: str, from_revision: int, count: int) -> list[WatchEvent]:
    """The first `count` events, and what came with them in their revisions."""
    events: list[WatchEvent] = []
    async with aclosing(store.watch(prefix, from_revision)) as batches:
        while len(events) < count:
            events += (await next_batch(batches)).events
    return events


async def enable_login(url: str) -> None:
    """Three users of an etcd, NAME-password each: root, router, and guest, who may do nothing; then login is on."""
    for name, role in (("root", "root"), ("router", "topics"), ("guest", "")):
        await post(url, "auth/user/add", {"name": name, "password": f"{name}-password"})
        if role:
            await post(url, "auth/role/add", {"name": role})
            await post(url, "auth/user/grant", {"user": name, "role": role})
    allowed = {"permType": "READWRITE", "key": in_base64("/t/"), "range_end": in_base64("/t0")}
    await post(url, "auth/role/grant", {"name": "topics", "perm": allowed})
    await post(url, "auth/enable", {})
