"""Answers requests: the reply goes to the address that each request names.

python examples/request_reply/oncewire_responder.py amqp://127.0.0.1:5672,amqp://127.0.0.1:5673
"""

from __future__ import annotations

import asyncio
import sys

from oncewire.client import Responder, connect


async def serve(urls: list[str]) -> None:
    """Answer until stopped."""
    async with (
        connect(urls, container_id="doubler") as client,
        Responder(client, "doubles", name="requests") as requests,
    ):
        print("ready", flush=True)
        async for request in requests:
            await request.answer(str(2 * int(str(request.body))))


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1].split(",")))
