"""A real etcd over its JSON gateway, by aiohttp: no gRPC, no protobuf. Works with etcd 3.4 to 3.7.

Calls go to one member at a time and move on to the next when it fails. A write that was sent and not answered is
`StoreTimeout`; everything that certainly was not applied is `StoreUnavailable` (K-2a).
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence

from yarl import URL

from topology.etcd import gateway_codec as codec
from topology.etcd.gateway_codec import GatewayFormatError, JsonObject
from topology.etcd.gateway_http import GatewayClient, GatewayOptions
from topology.etcd.gateway_watch import watch
from topology.etcd.store import (
    Beside,
    LeaseLost,
    LogProgress,
    PutResult,
    StoreAuthError,
    Stored,
    StoreRejected,
    StoreTimeout,
    StoreUnavailable,
    WatchBatch,
    Write,
)


class GatewayStore:
    """A client of etcd; implements `topology.etcd.store.Store`."""

    def __init__(self, endpoints: Sequence[str], options: GatewayOptions | None = None) -> None:
        """Talk to these members.

        Args:
            endpoints: URLs such as `http://127.0.0.1:2379`, at least one; the first is tried first.
            options: login, TLS and time-outs.

        Raises:
            ValueError: there is no endpoint, or one is not an http or https URL; the text names it.
        """
        self._options = options or GatewayOptions()
        self._client = GatewayClient(endpoints, self._options)

    async def cluster_id(self) -> int:
        """See `Store`."""
        if not self._client.cluster_id:
            await self._call("kv/range", codec.range_body("oncewire"), write=False)
        return self._client.cluster_id

    async def log_progress(self) -> LogProgress | None:
        """See `Store`."""
        client = self._client

        async def send(endpoint: URL, share_s: float) -> LogProgress:
            # Asked twice: a write between the two must not make the log look shorter than the revision.
            answers = [await client.post(endpoint, "maintenance/status", {}, share_s / 2) for _ in range(2)]
            client.check_cluster(codec.header(answers[0]).cluster_id)
            return LogProgress(codec.integer(answers[1], "raftIndex"), codec.header(answers[0]).revision)

        with contextlib.suppress(StoreRejected, StoreAuthError, GatewayFormatError):
            return await client.call(send, self._options.call_timeout_s, write=False)
        return None

    async def grant_lease(self, ttl_s: int) -> int:
        """See `Store`."""
        if ttl_s < 1:
            raise StoreRejected(f"a lease of {ttl_s} s is too short: at least 1 s")
        answer = await self._call("lease/grant", {"TTL": str(ttl_s)}, write=True)
        return codec.integer(answer, "ID")

    async def keep_alive(self, lease_id: int) -> float:
        """See `Store`."""
        # The call is a stream in gRPC: the gateway answers one line, wrapped in `result`. TTL 0 (left out): gone.
        answer = await self._call("lease/keepalive", {"ID": str(lease_id)}, write=False)
        ttl_s = codec.integer(_result(answer), "TTL")
        if ttl_s <= 0:
            raise LeaseLost(lease_id)
        return float(ttl_s)

    async def revoke(self, lease_id: int) -> None:
        """See `Store`."""
        with contextlib.suppress(LeaseLost):
            await self._call("lease/revoke", {"ID": str(lease_id)}, write=True, lease_id=lease_id)

    async def get(self, key: str) -> Stored | None:
        """See `Store`."""
        _, found = await self._range(codec.range_body(key), self._options.call_timeout_s)
        return found[0] if found else None

    async def get_each(self, keys: Sequence[str]) -> list[Stored | None]:
        """See `Store`."""
        floor = self._client.highest_revision
        answer = await self._call("kv/txn", codec.get_each_body(keys), write=False)
        self._client.check_revision(codec.header(answer).revision, floor)
        try:
            found = [codec.stored_keys(each) for each in codec.responses(answer, "response_range", len(keys))]
        except GatewayFormatError as error:
            raise StoreUnavailable(
                f"etcd at {self._client.endpoint} has not answered what was asked: {error}"
            ) from None
        return [each[0] if each else None for each in found]

    async def snapshot(self, prefix: str) -> tuple[int, list[Stored]]:
        """See `Store`."""
        return await self._range(codec.prefix_body(prefix), self._options.snapshot_timeout_s)

    async def compare_and_put(
        self, key: str, value: bytes, expect_mod_revision: int | None, lease_id: int = 0, beside: Beside | None = None
    ) -> PutResult:
        """See `Store`."""
        if expect_mod_revision is None:
            path, body = "kv/put", codec.put_body(key, value, lease_id)
        else:
            path, body = "kv/txn", codec.compare_and_put_body(key, value, expect_mod_revision, lease_id, beside)
        answer = await self._call(path, body, write=True, lease_id=lease_id)
        return self._write_result(answer, succeeded=expect_mod_revision is None or codec.succeeded(answer))

    async def compare_and_delete(self, key: str, expect_mod_revision: int) -> PutResult:
        """See `Store`."""
        if expect_mod_revision <= 0:
            raise StoreRejected(f"cannot delete {key} at revision {expect_mod_revision}: revisions start at 1")
        answer = await self._call("kv/txn", codec.compare_and_delete_body(key, expect_mod_revision), write=True)
        return self._write_result(answer, succeeded=codec.succeeded(answer))

    async def write_each(self, writes: Sequence[Write]) -> list[bool]:
        """See `Store`."""
        answer = await self._call("kv/txn", codec.write_each_body(writes), write=True)
        self._client.note_revision(codec.header(answer).revision)
        try:
            return [codec.succeeded(each) for each in codec.responses(answer, "response_txn", len(writes))]
        except GatewayFormatError as error:
            raise StoreTimeout(
                f"the answer of etcd at {self._client.endpoint} does not say what was done: {error}"
            ) from None

    def watch(self, prefix: str, from_revision: int) -> AsyncGenerator[WatchBatch, None]:
        """See `Store`."""
        return watch(self._client, prefix, from_revision)

    async def close(self) -> None:
        """See `Store`."""
        await self._client.close()

    async def _range(self, body: JsonObject, timeout_s: float) -> tuple[int, list[Stored]]:
        floor = self._client.highest_revision
        answer = await self._call("kv/range", body, write=False, timeout_s=timeout_s)
        revision = codec.header(answer).revision
        self._client.check_revision(revision, floor)
        return revision, codec.stored_keys(answer)

    def _write_result(self, answer: JsonObject, succeeded: bool) -> PutResult:
        revision = codec.header(answer).revision
        self._client.note_revision(revision)
        return PutResult(succeeded, revision)

    async def _call(
        self, path: str, body: JsonObject, *, write: bool, lease_id: int = 0, timeout_s: float | None = None
    ) -> JsonObject:
        client = self._client

        async def send(endpoint: URL, share_s: float) -> JsonObject:
            try:
                answer = await client.post(endpoint, path, body, share_s, lease_id)
                client.check_cluster(codec.header(_result(answer)).cluster_id)
            except GatewayFormatError as error:
                raise StoreRejected(
                    f"what answers at {endpoint} is not etcd's gateway ({error}): give etcd's client URL"
                ) from None
            return answer

        return await client.call(send, timeout_s or self._options.call_timeout_s, write=write)


def _result(answer: JsonObject) -> JsonObject:
    """What a stream wraps in `result`; other answers as they are."""
    result = answer.get("result")
    return result if isinstance(result, dict) else answer
