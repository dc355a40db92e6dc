"""Whether an installed Oncewire works: starts its router and sends messages through it. `try_release.py VERSION`.

It imports nothing but the installed package, and exits with 0 only if everything arrived and the router ended in order.
"""

import asyncio
import importlib.metadata
import json
import signal
import sys
from pathlib import Path

import oncewire

MESSAGES = 200
LIMIT_S = 60.0


async def send_and_receive(url: str) -> None:
    """Each message is received in order, once, and accepted."""
    async with oncewire.connect([url], container_id="try") as client:
        subscriber = await client.subscriber("orders", name="kitchen")
        publisher = await client.publisher("orders", name="shop")
        outcomes = [await publisher.submit(b"%d" % number) for number in range(MESSAGES)]
        for number in range(MESSAGES):
            delivery = await subscriber.receive()
            assert delivery.body == b"%d" % number, delivery.body
            await delivery.accept()
        assert {(await outcome).kind.value for outcome in outcomes} == {"accepted"}


async def main(version: str) -> None:
    """Starts, uses and ends a router."""
    assert importlib.metadata.version("oncewire") == version
    program = Path(sys.executable).with_name("oncewire")
    router = await asyncio.create_subprocess_exec(
        program,
        "router",
        "--standalone",
        "--announce",
        "--listen-port=0",
        "--http-port=0",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        assert router.stdout is not None
        announced = json.loads(await asyncio.wait_for(router.stdout.readline(), LIMIT_S))
        await asyncio.wait_for(send_and_receive(announced["url"]), LIMIT_S)
        router.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(router.wait(), LIMIT_S) == 0
    finally:
        if router.returncode is None:
            router.kill()
    print(f"oncewire {version}: {MESSAGES} messages, each once and in order")


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
