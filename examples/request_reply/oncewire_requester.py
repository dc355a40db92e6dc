"""Asks and waits for the answers: each exactly once, also when a router crashes.

    python examples/request_reply/oncewire_requester.py amqp://127.0.0.1:5672,amqp://127.0.0.1:5673 100

The address for the answers is a topic of its own with a named subscription, which outlives every router. So no answer
is lost and none comes twice; a stock client's dynamic address ends with its router.
"""

from __future__ import annotations

import asyncio
import sys
import uuid

from oncewire.client import Properties, connect


async def ask(urls: list[str], count: int) -> None:
    """Ask for the double of each number."""
    name = uuid.uuid4().hex
    async with connect(urls, container_id=f"requester-{name}") as client:
        answers = await client.subscriber(f"answers.{name}", name="answers")
        questions = await client.publisher("doubles", name="questions")
        for number in range(count):
            properties = Properties(reply_to=f"answers.{name}", correlation_id=str(number))
            await questions.submit(str(number), properties=properties)
            answer = await answers.receive()
            print(f"{number}: {answer.body}", flush=True)
            await answer.accept()


if __name__ == "__main__":
    asyncio.run(ask(sys.argv[1].split(","), int(sys.argv[2])))
