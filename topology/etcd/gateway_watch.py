"""One watch over etcd's JSON gateway that survives everything but compaction (K-4, K-7).

The gateway answers a watch with one JSON object per line, for as long as the connection lives. When it breaks, or says
nothing for a while, the watch is opened again from the revision after the last one that was handed over.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import aiohttp
from yarl import URL

from topology.etcd import gateway_codec as codec
from topology.etcd.gateway_codec import GatewayFormatError, JsonObject
from topology.etcd.gateway_http import GatewayClient
from topology.etcd.members import Silent, TokenRefused, Unanswered, raise_error
from topology.etcd.store import CompactedError, StoreRejected, WatchBatch, WatchEvent

MAX_LINE_BYTES = 64 << 20
"""etcd cuts responses into fragments of about 2 MiB; a longer line than this is not etcd's."""


def watch(client: GatewayClient, prefix: str, from_revision: int) -> AsyncGenerator[WatchBatch, None]:
    """See `Store.watch`."""

    async def once(endpoint: URL, start_revision: int) -> AsyncGenerator[WatchBatch, None]:
        try:
            async with aclosing(_watch_once(client, endpoint, prefix, start_revision)) as batches:
                async for batch in batches:
                    yield batch
        except GatewayFormatError as error:
            raise StoreRejected(f"what answers at {endpoint} is not etcd's gateway ({error})") from None

    return client.watch(once, from_revision)


async def _watch_once(
    client: GatewayClient, endpoint: URL, prefix: str, start_revision: int
) -> AsyncGenerator[WatchBatch, None]:
    """The events of one connection; ends only by an exception."""
    body = codec.watch_body(prefix, start_revision)
    parts: list[WatchEvent] = []
    async with client.stream(endpoint, "watch", body) as content:
        lines = _Lines(content)
        while True:
            line = await lines.next(client.options.watch_silence_s)
            result = _watch_response(client, codec.parse_object(line))
            if result.get("created") is True and codec.header(result).revision < start_revision:
                await _check_history(client, endpoint, start_revision)
            parts.extend(codec.watch_events(result))
            if parts and result.get("fragment") is not True:
                batch = WatchBatch(parts[-1].mod_revision, tuple(parts))
                parts = []
                yield batch


async def _check_history(client: GatewayClient, endpoint: URL, seen: int) -> None:
    """A member that is behind what this watch has reported may only lag; a linearizable read shows it.

    Raises:
        StoreReplaced: history was set back. The watch would be silent until it has caught up, and miss what it skips.
    """
    answer = await client.post(endpoint, "kv/range", codec.range_body("oncewire"), client.options.call_timeout_s)
    client.check_revision(codec.header(answer).revision, seen)


def _watch_response(client: GatewayClient, answer: JsonObject) -> JsonObject:
    """The WatchResponse in a line of the stream.

    Raises:
        CompactedError, StoreReplaced: this watch cannot go on.
        NotSent, Unanswered, TokenRefused: it may, on another connection.
    """
    if "error" in answer:
        raise_error(*codec.parse_error(answer))
    result = answer.get("result")
    if not isinstance(result, dict):
        raise GatewayFormatError("a line of the watch without result")
    client.check_cluster(codec.header(result).cluster_id)
    compacted = codec.integer(result, "compact_revision")
    if compacted:
        # etcd serves from the compact revision itself on; what was deleted at that revision is gone, though.
        raise CompactedError(compacted)
    if result.get("canceled") is True:
        reason = str(result.get("cancel_reason", "no reason given"))
        # For a watch etcd 3.5 says `permission denied` also when only the token is too old: a new login shows it.
        is_refusal = "permission denied" in reason or codec.is_about_token(reason)
        raise TokenRefused(reason) if is_refusal else Unanswered(reason)
    return result


class _Lines:
    """Lines of any length out of a response."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content
        self._buffer = bytearray()
        self._searched = 0

    async def next(self, timeout_s: float) -> bytes:
        """The next line.

        Raises:
            Silent: none came in time.
            Unanswered: the connection broke.
        """
        while (end := self._buffer.find(b"\n", self._searched)) < 0:
            self._searched = len(self._buffer)
            if self._searched > MAX_LINE_BYTES:
                raise GatewayFormatError(f"a line of more than {MAX_LINE_BYTES} bytes")
            self._buffer += await self._read(timeout_s)
        line = bytes(self._buffer[:end])
        del self._buffer[: end + 1]
        self._searched = 0
        return line

    async def _read(self, timeout_s: float) -> bytes:
        try:
            async with asyncio.timeout(timeout_s):
                data = await self._content.readany()
        except TimeoutError:
            raise Silent from None
        except (aiohttp.ClientError, OSError) as error:
            raise Unanswered(str(error)) from None
        if not data:
            raise Unanswered("the connection was closed")
        return data
