"""Orders over HTTP, at a steady rate; one without an answer is sent again, with its number, until it is accepted.

python examples/shop/load.py --url http://127.0.0.1:8000 --orders 500
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator

import aiohttp

CUSTOMERS = 8
"""They order at the same time."""
AGAIN_S = 0.1


class Load:
    """What customers do.

    Args:
        url: of the web service.
        orders: how many.
        rate: of a second, at most.

    Attributes:
        accepted: amount of each order that was answered with 202, by number.
    """

    def __init__(self, url: str, orders: int, rate: float) -> None:
        self._url = url
        self._rate = rate
        self._numbers = iter(range(1, orders + 1))
        self._until = orders
        self._more = asyncio.Event()
        self.accepted: dict[int, int] = {}

    def allow(self, until: int) -> None:
        """Hold back the orders behind this number."""
        self._until = until
        self._more.set()
        self._more = asyncio.Event()

    async def run(self) -> None:
        """Return when all are accepted."""
        timeout = aiohttp.ClientTimeout(total=10)
        async with aiohttp.ClientSession(timeout=timeout) as session, asyncio.TaskGroup() as group:
            for _ in range(CUSTOMERS):
                group.create_task(self._buy(session, self._numbers))

    async def _buy(self, session: aiohttp.ClientSession, numbers: Iterator[int]) -> None:
        for number in numbers:
            cents = 100 + number * 37 % 9900
            await self._allowed(number)
            await self._order(session, {"number": number, "cents": cents})
            self.accepted[number] = cents
            await asyncio.sleep(CUSTOMERS / self._rate)

    async def _allowed(self, number: int) -> None:
        while number > self._until:
            await self._more.wait()

    async def _order(self, session: aiohttp.ClientSession, order: dict[str, int]) -> None:
        """Until it is accepted."""
        while True:
            if await self._is_accepted(session, order):
                return
            await asyncio.sleep(AGAIN_S)

    async def _is_accepted(self, session: aiohttp.ClientSession, order: dict[str, int]) -> bool:
        try:
            async with session.post(f"{self._url}/orders", json=order) as answer:
                return answer.status == 202
        except (aiohttp.ClientError, TimeoutError):
            return False


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    parser.add_argument("--orders", type=int, default=500)
    parser.add_argument("--rate", type=float, default=50.0, help="orders of a second, at most")
    arguments = parser.parse_args()
    load = Load(arguments.url, arguments.orders, arguments.rate)
    asyncio.run(load.run())
    print(f"{len(load.accepted)} orders accepted")


if __name__ == "__main__":
    main()
