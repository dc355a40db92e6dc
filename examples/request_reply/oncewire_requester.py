"""Asks and waits for the answers: each exactly once, also when a router crashes.

    python examples/request_reply/oncewire_requester.py amqp://127.0.0.1:5672,amqp://127.0.0.1:5673 100

The address for the answers is a topic of its own, which outlives every router. So no answer is lost and none comes
twice; a stock client's dynamic address ends with its router.
"""

from __future__ import annotations

import asyncio
import sys

from oncewire.client import Requester, connect


async def ask(urls: list[str], count: int) -> None:
    """Ask for the double of each number."""
    async with connect(urls) as client, Requester(client) as requester:
        for number in range(count):
            answer = await requester.request("doubles", str(number))
            print(f"{number}: {answer.body}", flush=True)


if __name__ == "__main__":
    asyncio.run(ask(sys.argv[1].split(","), int(sys.argv[2])))
