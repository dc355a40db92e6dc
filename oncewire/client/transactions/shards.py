"""Which process owns a consumer, where several run: what a consumer asks of its assignment."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Protocol


class Shards(Protocol):
    """Gives each shard to one process at a time. ``StoreShards`` does, with leases in the database, and moves them.

    It saves work, it protects nothing: where two processes own a shard for a moment, the fence of the store decides.
    """

    def own(self, shard: str) -> AbstractAsyncContextManager[asyncio.Event]:
        """Wait until this process owns the shard, and release it when the block ends.

        Yields an event: it is set when another process may own the shard, or is to own it. End the block then.
        """
