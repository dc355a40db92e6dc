"""Kills services, routers and the edge of a shop under load, starts them again, and says what became of the orders.

    python examples/shop/kill.py --orders 400 --kills 8

Everything runs on this machine, without Docker. The last line is JSON; the exit code is 0 if each order was charged,
mailed and shown once.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from load import Load
from local_shop import Shop, until_interrupted
from verdict import judge, report

SECONDS_PER_KILL = 2.0
RESTART_AFTER_S = 0.5
PATIENCE_S = 300.0
"""How long the orders may take after the last one was accepted, on a slow machine."""
POLL_S = 0.05


def victims(names: list[str], kills: int, seed: int) -> list[str]:
    """Each as often as the others, in random order."""
    chance = random.Random(seed)
    order = [name for _ in range(-(-kills // len(names))) for name in chance.sample(names, len(names))]
    return order[:kills]


async def trouble(shop: Shop, load: Load, folder: Path, orders: int, names: list[str]) -> None:
    """The load, with the kills spread over it; returns when all that was accepted has arrived everywhere.

    Raises:
        RuntimeError: a service ended by itself, or something is missing after a long time.
    """
    part = orders // (len(names) + 1)
    load.allow(part)
    buying = asyncio.create_task(load.run())
    try:
        for number, name in enumerate(names):
            # In the middle of a part; the orders behind it are held back, so each kill finds something under way.
            await until(lambda: len(load.accepted) >= number * part + part // 2, shop)  # noqa: B023  # it is awaited here
            await shop.kill(name)
            print(f"SIGKILL to {name}; {len(load.accepted)} orders accepted so far", flush=True)
            load.allow((number + 2) * part)
            await asyncio.sleep(RESTART_AFTER_S)
            await shop.start_again(name)
        load.allow(orders)
        await buying
    finally:
        buying.cancel()
    await until(lambda: not any(found.lost for found in judge(folder, load.accepted).values()), shop)


async def until(condition: Callable[[], bool], shop: Shop) -> None:
    """Wait for a condition.

    Raises:
        RuntimeError: a service ended by itself, or it does not hold after a long time.
    """
    ends_at = time.monotonic() + PATIENCE_S
    while not await asyncio.to_thread(condition):
        check(shop)
        if time.monotonic() > ends_at:
            raise RuntimeError(f"something is missing after {PATIENCE_S:g} s")
        await asyncio.sleep(POLL_S)


def check(shop: Shop) -> None:
    """Raise RuntimeError if a service has ended by itself."""
    if gone := shop.ended():
        raise RuntimeError("\n".join(gone))


async def run(arguments: argparse.Namespace, folder: Path) -> bool:
    """One run; True = each order once."""
    problem = ""
    async with Shop(folder) as shop:
        load = Load(shop.url, arguments.orders, arguments.orders / max(SECONDS_PER_KILL * arguments.kills, 1.0))
        try:
            await trouble(shop, load, folder, arguments.orders, victims(shop.names, arguments.kills, arguments.seed))
        except RuntimeError as error:
            problem = str(error)
    # Only now, when everything has ended in good order: what was still under way would count as well.
    found = judge(folder, load.accepted)
    print(report(found, accepted=len(load.accepted), kills=arguments.kills, problem=problem))
    return not problem and all(each.is_exact for each in found.values())


def main() -> None:
    """Read the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--orders", type=int, default=400)
    parser.add_argument("--kills", type=int, default=8)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--data", type=Path, help="an empty folder to keep databases and logs in")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="oncewire-shop-") as temporary, suppress(asyncio.CancelledError):
        folder = arguments.data or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        sys.exit(not asyncio.run(until_interrupted(run(arguments, folder.absolute()))))
    sys.exit(130)


if __name__ == "__main__":
    main()
