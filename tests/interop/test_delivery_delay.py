"""A delivery delay of a JMS producer: its client refuses it, for no router offers one for topics."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.router.processes import running_router
from tests.support.java import java_command

STEP_S = 90.0
"""Far more than it takes on a busy machine."""


@pytest.mark.slow
@pytest.mark.needs("jdk", "qpid-jms")
async def test_jms_refuses_a_delivery_delay_and_does_not_send_at_once_instead() -> None:
    async with running_router("--standalone") as router:
        command = [*java_command(Path(__file__).parent / "Delaying.java"), router.url, "orders"]
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        said = (await asyncio.wait_for(process.communicate(), STEP_S))[0].decode()
    assert said == "refused: Remote does not support delayed message delivery\n"
