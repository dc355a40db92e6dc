"""`pub` and `sub` say that they have resumed, where, and after how long."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from router.commands.local_network import LocalNetwork
from tests.support.commands import start

DEADLINE_S = 60.0


async def test_sub_says_at_which_router_it_has_resumed_and_after_how_long(tmp_path: Path) -> None:
    async with LocalNetwork(2, log_folder=tmp_path) as network:
        arguments = ("sub", "orders", "--name", "till", "--count", "1", "--url", network.routers["r1"].url)
        sub = await start(*arguments)
        assert sub.stderr is not None

        async def line() -> str:
            assert sub.stderr is not None
            return (await asyncio.wait_for(sub.stderr.readline(), DEADLINE_S)).decode()

        assert await line() == "subscribed to orders\n"
        await network.kill("r1")
        reported = await line()
        while "; retrying" in reported:
            reported = await line()
        assert re.fullmatch(r"resumed at r2 after (\d+ ms|\d+\.\d s)\n", reported), reported
        pub = await start("pub", "orders", "--url", network.routers["r2"].url)
        assert (await pub.communicate(b"two coffees\n"))[0] == b"published 1, accepted 1\n"
        assert (await sub.communicate())[0] == b"two coffees\n"
        assert sub.returncode == 0
