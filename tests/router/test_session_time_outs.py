"""What a publisher leaves behind that does not come back is gone after the time it asked for (rule K-5d)."""

from __future__ import annotations

import oncewire
from tests.router.processes import running_router
from tests.router.raw_client import until


async def test_the_session_of_a_publisher_without_a_name_ends_when_it_asked_for() -> None:
    async with running_router("--standalone") as router:
        url = f"amqp://127.0.0.1:{router.port}"
        async with oncewire.connect(url, container_id="reader") as reader:
            subscriber = await reader.subscriber("orders", name="s", timeout=3600)
            await subscriber.suspend()
            client = await oncewire.connect(url)
            publisher = await client.publisher("orders", timeout=1)
            _ = await publisher.submit(b"its reader is away")
            await until(router.state, lambda state: [each["unsettled"] for each in state["windows"]] == [1])
            await client.abandon()
            state = await until(router.state, lambda state: not state["publishers"])
            assert state["windows"] == []
            assert [each["name"] for each in state["subscriptions"]] == ["reader/s"]
