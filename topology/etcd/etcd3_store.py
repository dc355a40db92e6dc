"""A real etcd over gRPC, with the package `etcd3` (the extra `[etcd3]`). The same promises as `GatewayStore`.

The package itself has had no release since 2020. It is here for those who want gRPC; the gateway store needs no further
package.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Any

from yarl import URL

from topology.etcd.etcd3_rpc import Answers, Etcd3Client, Etcd3Options
from topology.etcd.gateway_codec import is_about_token
from topology.etcd.members import Silent, TokenRefused, Unanswered
from topology.etcd.store import (
    Beside,
    CompactedError,
    EventKind,
    LeaseLost,
    LogProgress,
    PutResult,
    StoreAuthError,
    Stored,
    StoreRejected,
    WatchBatch,
    WatchEvent,
    Write,
)


class Etcd3Store:
    """A client of etcd; implements `topology.etcd.store.Store`."""

    def __init__(self, endpoints: Sequence[str], options: Etcd3Options | None = None) -> None:
        """Talk to these members.

        Args:
            endpoints: URLs such as `http://127.0.0.1:2379`, at least one; the first is tried first.
            options: login, TLS and time-outs.

        Raises:
            ValueError: there is no endpoint, or one is not an http or https URL; the text names it.
            Etcd3Missing: the package etcd3 cannot be used.
        """
        self._options = options or Etcd3Options()
        self._client = Etcd3Client(endpoints, self._options)
        self._rpc = self._client.packages.rpc

    async def cluster_id(self) -> int:
        """See `Store`."""
        if not self._client.cluster_id:
            await self._range(self._rpc.RangeRequest(key=b"oncewire"), self._options.call_timeout_s)
        return self._client.cluster_id

    async def log_progress(self) -> LogProgress | None:
        """See `Store`."""
        client, request = self._client, self._rpc.StatusRequest()

        async def send(endpoint: URL, share_s: float) -> LogProgress:
            # Asked twice: a write between the two must not make the log look shorter than the revision.
            first, second = [
                await client.unary(endpoint, "MaintenanceStub", "Status", request, share_s / 2) for _ in range(2)
            ]
            client.check_cluster(first.header.cluster_id)
            return LogProgress(second.raftIndex, first.header.revision)

        with contextlib.suppress(StoreRejected, StoreAuthError):
            return await client.call(send, self._options.call_timeout_s, write=False)
        return None

    async def grant_lease(self, ttl_s: int) -> int:
        """See `Store`."""
        if ttl_s < 1:
            raise StoreRejected(f"a lease of {ttl_s} s is too short: at least 1 s")
        request = self._rpc.LeaseGrantRequest(TTL=ttl_s)
        answer = await self._call("LeaseStub", "LeaseGrant", request, write=True)
        return int(answer.ID)

    async def keep_alive(self, lease_id: int) -> float:
        """See `Store`."""
        client, request = self._client, self._rpc.LeaseKeepAliveRequest(ID=lease_id)

        async def send(endpoint: URL, share_s: float) -> Any:
            answer = await client.first_of_stream(endpoint, "LeaseStub", "LeaseKeepAlive", request, share_s)
            client.check_cluster(answer.header.cluster_id)
            return answer

        answer = await client.call(send, self._options.call_timeout_s, write=False)
        if answer.TTL <= 0:
            raise LeaseLost(lease_id)
        return float(answer.TTL)

    async def revoke(self, lease_id: int) -> None:
        """See `Store`."""
        with contextlib.suppress(LeaseLost):
            request = self._rpc.LeaseRevokeRequest(ID=lease_id)
            await self._call("LeaseStub", "LeaseRevoke", request, write=True, lease_id=lease_id)

    async def get(self, key: str) -> Stored | None:
        """See `Store`."""
        request = self._rpc.RangeRequest(key=key.encode())
        _, found = await self._range(request, self._options.call_timeout_s)
        return found[0] if found else None

    async def get_each(self, keys: Sequence[str]) -> list[Stored | None]:
        """See `Store`."""
        rpc, floor = self._rpc, self._client.highest_revision
        reads = [rpc.RequestOp(request_range=rpc.RangeRequest(key=key.encode())) for key in keys]
        answer = await self._call("KVStub", "Txn", rpc.TxnRequest(success=reads), write=False)
        self._client.check_revision(answer.header.revision, floor)
        found = [_stored(each.response_range) for each in answer.responses]
        return [each[0] if each else None for each in found]

    async def snapshot(self, prefix: str) -> tuple[int, list[Stored]]:
        """See `Store`."""
        rpc = self._rpc
        request = rpc.RangeRequest(
            key=prefix.encode(),
            range_end=_prefix_end(prefix),
            sort_target=rpc.RangeRequest.KEY,
            sort_order=rpc.RangeRequest.ASCEND,
        )
        return await self._range(request, self._options.snapshot_timeout_s)

    async def compare_and_put(
        self, key: str, value: bytes, expect_mod_revision: int | None, lease_id: int = 0, beside: Beside | None = None
    ) -> PutResult:
        """See `Store`."""
        put = self._rpc.PutRequest(key=key.encode(), value=value, lease=lease_id)
        if expect_mod_revision is None:
            answer = await self._call("KVStub", "Put", put, write=True, lease_id=lease_id)
            self._client.note_revision(answer.header.revision)
            return PutResult(True, answer.header.revision)
        return await self._compare(key, expect_mod_revision, self._rpc.RequestOp(request_put=put), lease_id, beside)

    async def compare_and_delete(self, key: str, expect_mod_revision: int) -> PutResult:
        """See `Store`."""
        if expect_mod_revision <= 0:
            raise StoreRejected(f"cannot delete {key} at revision {expect_mod_revision}: revisions start at 1")
        delete = self._rpc.DeleteRangeRequest(key=key.encode())
        return await self._compare(key, expect_mod_revision, self._rpc.RequestOp(request_delete_range=delete), 0)

    async def write_each(self, writes: Sequence[Write]) -> list[bool]:
        """See `Store`."""
        rpc = self._rpc
        each = [rpc.RequestOp(request_txn=self._transaction(write)) for write in writes]
        answer = await self._call("KVStub", "Txn", rpc.TxnRequest(success=each), write=True)
        self._client.note_revision(answer.header.revision)
        return [bool(response.response_txn.succeeded) for response in answer.responses]

    def _transaction(self, write: Write) -> Any:
        rpc, key = self._rpc, write.key.encode()
        if write.value is None:
            then = rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key))
        else:
            then = rpc.RequestOp(request_put=rpc.PutRequest(key=key, value=write.value))
        return rpc.TxnRequest(compare=[self._has_revision(key, write.expect_mod_revision)], success=[then])

    def _has_revision(self, key: bytes, expect: int) -> Any:
        compare = self._rpc.Compare
        return compare(key=key, target=compare.MOD, result=compare.EQUAL, mod_revision=expect)

    def watch(self, prefix: str, from_revision: int) -> AsyncGenerator[WatchBatch, None]:
        """See `Store`."""

        async def once(endpoint: URL, start_revision: int) -> AsyncGenerator[WatchBatch, None]:
            await self._client.log_in_once(endpoint)
            request = self._rpc.WatchRequest(
                create_request=self._rpc.WatchCreateRequest(
                    key=prefix.encode(), range_end=_prefix_end(prefix), start_revision=start_revision
                )
            )
            async with self._client.stream(endpoint, "WatchStub", "Watch", request) as answers:
                try:
                    # It says at once that the watch is created; a member that does not is no better at watching.
                    await self._events(endpoint, answers, start_revision, self._options.call_timeout_s)
                except Silent:
                    raise Unanswered("it does not begin to watch") from None
                while True:
                    silence_s = self._options.watch_silence_s
                    events = await self._events(endpoint, answers, start_revision, silence_s)
                    if events:
                        yield WatchBatch(events[-1].mod_revision, tuple(events))

        return self._client.watch(once, from_revision)

    async def close(self) -> None:
        """See `Store`."""
        await self._client.close()

    async def _events(self, endpoint: URL, answers: Answers, start_revision: int, timeout_s: float) -> list[WatchEvent]:
        """Of the next answer, which holds whole revisions: without the request for it, etcd sends no fragments."""
        answer = await answers.next(timeout_s)
        self._client.check_cluster(answer.header.cluster_id)
        if answer.compact_revision:
            # etcd serves from the compact revision itself on; what was deleted at that revision is gone, though.
            raise CompactedError(answer.compact_revision)
        if answer.canceled:
            reason = answer.cancel_reason or "no reason given"
            # For a watch etcd 3.5 says `permission denied` also when only the token is too old: a new login shows it.
            is_refusal = "permission denied" in reason or is_about_token(reason)
            raise TokenRefused(reason) if is_refusal else Unanswered(reason)
        if answer.created and answer.header.revision < start_revision:
            # This member may only lag; a linearizable read shows whether history was set back.
            request, share_s = self._rpc.RangeRequest(key=b"oncewire"), self._options.call_timeout_s
            found = await self._client.unary(endpoint, "KVStub", "Range", request, share_s)
            self._client.check_revision(found.header.revision, start_revision)
        return [_event(event) for event in answer.events]

    async def _range(self, request: Any, timeout_s: float) -> tuple[int, list[Stored]]:
        floor = self._client.highest_revision
        answer = await self._call("KVStub", "Range", request, write=False, timeout_s=timeout_s)
        self._client.check_revision(answer.header.revision, floor)
        return answer.header.revision, _stored(answer)

    async def _compare(
        self, key: str, expect: int, then: Any, lease_id: int, beside: Beside | None = None
    ) -> PutResult:
        compare = self._rpc.Compare
        holds = [self._has_revision(key.encode(), expect)]
        puts = [then]
        if beside is not None:
            name, created = beside.key.encode(), beside.expect_create_revision
            holds.append(compare(key=name, target=compare.CREATE, result=compare.EQUAL, create_revision=created))
            put = self._rpc.PutRequest(key=name, value=beside.value)
            puts.insert(0, self._rpc.RequestOp(request_put=put))
        request = self._rpc.TxnRequest(compare=holds, success=puts)
        answer = await self._call("KVStub", "Txn", request, write=True, lease_id=lease_id)
        self._client.note_revision(answer.header.revision)
        return PutResult(answer.succeeded, answer.header.revision)

    async def _call(
        self, stub: str, method: str, request: Any, *, write: bool, lease_id: int = 0, timeout_s: float | None = None
    ) -> Any:
        client = self._client

        async def send(endpoint: URL, share_s: float) -> Any:
            answer = await client.unary(endpoint, stub, method, request, share_s, lease_id)
            client.check_cluster(answer.header.cluster_id)
            return answer

        return await client.call(send, timeout_s or self._options.call_timeout_s, write=write)


def _stored(answer: Any) -> list[Stored]:
    """The keys of a RangeResponse."""
    return [
        Stored(_text(pair.key), pair.value, pair.create_revision, pair.mod_revision, pair.lease) for pair in answer.kvs
    ]


def _event(event: Any) -> WatchEvent:
    kind = EventKind.DELETE if event.type else EventKind.PUT  # mvccpb.Event: PUT is 0, DELETE 1
    pair = event.kv
    return WatchEvent(kind, _text(pair.key), pair.value, pair.create_revision, pair.mod_revision)


def _prefix_end(prefix: str) -> bytes:
    # The first key behind the prefix: its last byte plus one. Prefixes are ASCII, so that never overflows.
    encoded = prefix.encode("ascii")
    return encoded[:-1] + bytes([encoded[-1] + 1])


def _text(key: bytes) -> str:
    # A foreign key may hold any bytes; ours are ASCII. Such a key stays distinct and is skipped later as malformed.
    return key.decode("utf-8", "backslashreplace")
