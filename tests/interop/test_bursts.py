"""Stock clients that close right behind their sends: all that their credit allows has a window, and arrives (C-6)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from delivery_records.model.limits import FIRST_CREDIT
from oncewire.wire import decode_message
from tests.router.processes import running_router
from tests.router.raw_client import RawClient

BURST = str(Path(__file__).parent / "proton_burst.py")


@pytest.mark.needs("proton")
@pytest.mark.parametrize("guarantee", ["at-most-once", "at-least-once"])
async def test_what_proton_sends_just_before_it_closes_its_connection_arrives(guarantee: str) -> None:
    async with running_router("--standalone") as router:
        subscriber = await (await RawClient.connect(router.port)).subscriber("bursts", credit=1000)
        url = f"amqp://127.0.0.1:{router.port}"
        done = await asyncio.create_subprocess_exec(
            sys.executable, BURST, url, "bursts", guarantee, stdout=subprocess.PIPE
        )
        ending = asyncio.create_task(done.communicate())  # its close is answered behind the outcomes (A-9a)
        bodies = []
        for _ in range(FIRST_CREDIT):
            delivery = await subscriber.delivery()
            bodies.append(decode_message(delivery.payload).body)
            if not delivery.settled:
                subscriber.accept(delivery)
        printed, _ = await ending
        assert done.returncode == 0
        sent = int(printed)
        assert sent >= FIRST_CREDIT
        for _ in range(sent - FIRST_CREDIT):
            delivery = await subscriber.delivery()
            bodies.append(decode_message(delivery.payload).body)
            if not delivery.settled:
                subscriber.accept(delivery)
        assert bodies == [f"row {number}" for number in range(1, sent + 1)]
