"""Places of those who watch a router: one reader leaves some to other readers, and all readers some to operators."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import aiohttp

from tests.router.management_calls import login
from tests.router.processes import running_router
from topology.inspector.watching import MAX_OF_A_CALLER, MAX_READERS

USERS = ("--users=vera:v,nick:n,nora:n,olga:o", "--roles=olga=operator", "--http-loopback-role=none")


async def test_readers_who_watch_lock_neither_other_readers_nor_operators_out() -> None:
    async with running_router("--standalone", *USERS) as router, AsyncExitStack() as stack:
        session = await stack.enter_async_context(aiohttp.ClientSession())

        async def watch(user: str, password: str) -> int:
            """The status of one more watch, which stays."""
            try:
                socket = await asyncio.wait_for(
                    session.ws_connect(router.http + "/api/v1/watch", headers=login(user, password)), 60
                )
            except aiohttp.WSServerHandshakeError as error:
                return error.status
            stack.push_async_callback(socket.close)
            return 101

        assert [await watch("vera", "v") for _ in range(MAX_OF_A_CALLER)] == [101] * MAX_OF_A_CALLER
        assert await watch("vera", "v") == 503
        left = MAX_READERS - MAX_OF_A_CALLER
        assert [await watch("nick", "n") for _ in range(left)] == [101] * left
        assert await watch("nora", "n") == 503
        assert await watch("olga", "o") == 101
