"""Answers requests: the reply goes to the address that each request names.

    python examples/request_reply/oncewire_responder.py amqp://127.0.0.1:5672,amqp://127.0.0.1:5673

A request is accepted when its answer was. A publisher is kept for each address that was answered late.
"""

from __future__ import annotations

import asyncio
import sys

from oncewire.client import Client, Delivery, LinkRefused, Properties, Publisher, connect

KEPT = 100  # publishers; each is a key in etcd


class Answers:
    """Publishers to the addresses of requesters; the one that was used longest ago is closed first."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._publishers: dict[str, Publisher] = {}

    async def send(self, address: str, text: str, correlation_id: object) -> None:
        """Send an answer; whoever is gone needs none."""
        try:
            publisher = self._publishers.pop(address, None) or await self._client.publisher(address)
            await publisher.send(text, properties=Properties(to=address, correlation_id=correlation_id))  # type: ignore[arg-type]
        except LinkRefused:
            print(f"nobody waits at {address} any more", flush=True)
            return
        self._publishers[address] = publisher
        if len(self._publishers) > KEPT:
            await self._publishers.pop(next(iter(self._publishers))).close()


async def answer(answers: Answers, request: Delivery) -> None:
    """Double the number."""
    properties = request.message.properties
    if properties is None or properties.reply_to is None:
        await request.reject()
        return
    await answers.send(properties.reply_to, str(2 * int(request.body)), properties.correlation_id)
    await request.accept()


async def serve(urls: list[str]) -> None:
    """Answer until stopped."""
    async with connect(urls, container_id="doubler") as client:
        answers = Answers(client)
        requests = await client.subscriber("doubles", name="requests")
        print("ready", flush=True)
        async for request in requests:
            await answer(answers, request)


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1].split(",")))
