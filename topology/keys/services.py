"""Which routers have services of which addresses: keys in etcd under the routers' leases (R-1).

Keys are beside those of attachments, and a version that does not know them ignores them. They name where a new link may
go and nothing else: a key that is late or missing costs an attach that is refused and made again.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import aclosing

from topology.etcd.store import (
    PREFIX,
    UNCONDITIONAL,
    ClusterStore,
    CompactedError,
    EventKind,
    LeaseLost,
    StoreError,
    StoreReplaced,
    WatchEvent,
)

SERVICES = PREFIX + "services/"
"""`services/<incarnation in hex>.<digest of the prefix>` -> {"rid", "prefix"}."""
RETRY_S = 0.5
"""Between two attempts while etcd cannot be reached."""
MAX_VALUE_BYTES = 4096

Places = Mapping[str, frozenset[int]]
_log = logging.getLogger(__name__)


def service_key(rid: int, prefix: str) -> str:
    """The key that says that a router has a service for a prefix."""
    return f"{SERVICES}{rid:x}.{hashlib.sha256(prefix.encode()).hexdigest()[:16]}"


def encode_service(rid: int, prefix: str) -> bytes:
    """The value of such a key."""
    return json.dumps({"rid": f"{rid:x}", "prefix": prefix}).encode()


def decode_service(value: bytes) -> tuple[int, str] | None:
    """Incarnation and prefix; None if it is no such value."""
    try:
        found = json.loads(value[:MAX_VALUE_BYTES])
        rid, prefix = int(found["rid"], 16), found["prefix"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return (rid, prefix) if isinstance(prefix, str) else None


class ServiceDirectory:
    """Follows the keys of all routers and keeps those of this one.

    Args:
        store: of the incarnation.
        rid: this incarnation; its lease carries the keys.
        on_places: called with the incarnations that have a service, by prefix, whenever that changes.
    """

    def __init__(self, store: ClusterStore, rid: int, on_places: Callable[[Places], None]) -> None:
        self._store = store
        self._rid = rid
        self._on_places = on_places
        self._found: dict[str, tuple[int, str]] = {}
        self._wanted: frozenset[str] = frozenset()
        self._written: dict[str, int] = {}
        self._changed = asyncio.Event()

    def serve(self, prefixes: frozenset[str]) -> None:
        """Have keys for these prefixes and no others."""
        self._wanted = prefixes
        self._changed.set()

    async def run(self) -> None:
        """Follow and write until cancelled; without etcd the last known state stays."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._follow())
            tasks.create_task(self._keep())

    # --- own keys -----------------------------------------------------------------------------------------------------

    async def _keep(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._write()
            except LeaseLost:
                return  # the incarnation is about to end
            except StoreError as error:
                _log.debug("services are not written: %s", error, extra={"event": "services_not_written"})
                await asyncio.sleep(RETRY_S)
                self._changed.set()

    async def _write(self) -> None:
        for prefix in sorted(self._wanted - self._written.keys()):
            key, value = service_key(self._rid, prefix), encode_service(self._rid, prefix)
            result = await self._store.compare_and_put(key, value, UNCONDITIONAL, self._rid)
            self._written[prefix] = result.revision
        for prefix in sorted(self._written.keys() - self._wanted):
            await self._store.compare_and_delete(service_key(self._rid, prefix), self._written[prefix])
            del self._written[prefix]

    # --- keys of all routers ------------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        while True:
            try:
                revision, stored = await self._store.snapshot(SERVICES)
                self._found = {each.key: found for each in stored if (found := decode_service(each.value)) is not None}
                self._hand_over()
                async with aclosing(self._store.watch(SERVICES, revision + 1)) as batches:
                    async for batch in batches:
                        self._take(batch.events)
                return  # the store is closed
            except CompactedError:
                continue
            except StoreReplaced:
                return  # the incarnation is about to end
            except StoreError as error:
                _log.debug("services are not followed: %s", error, extra={"event": "services_not_followed"})
                await asyncio.sleep(RETRY_S)

    def _take(self, events: Iterable[WatchEvent]) -> None:
        for event in events:
            found = None if event.kind is EventKind.DELETE else decode_service(event.value)
            if found is None:
                self._found.pop(event.key, None)
            else:
                self._found[event.key] = found
        self._hand_over()

    def _hand_over(self) -> None:
        places: dict[str, frozenset[int]] = {}
        for rid, prefix in self._found.values():
            places[prefix] = places.get(prefix, frozenset()) | {rid}
        self._on_places(places)
