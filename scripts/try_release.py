"""Whether installed packages work: `try_release.py VERSION [PYTHON]`.

It runs in an environment with both packages, starts a router there, and sends messages through it. PYTHON is that of an
environment with the client alone: this file runs there, too, as `try_release.py VERSION --at URL`, and sends messages
through the same router. It imports nothing but the installed packages, and exits with 0 only if everything arrived and
the router ended in order.
"""

import asyncio
import importlib.metadata
import json
import signal
import subprocess
import sys
from pathlib import Path

import oncewire

MESSAGES = 200
LIMIT_S = 60.0
NOT_THE_CLIENT = ("router", "topology", "delivery_records", "bridges", "pyspark_oncewire", "chaos")


async def send_and_receive(url: str) -> None:
    """Each message is received in order, once, and accepted."""
    async with asyncio.timeout(LIMIT_S), oncewire.connect([url], container_id="try") as client:
        subscriber = await client.subscriber("orders", name="kitchen")
        publisher = await client.publisher("orders", name="shop")
        outcomes = [await publisher.submit(b"%d" % number) for number in range(MESSAGES)]
        for number in range(MESSAGES):
            delivery = await subscriber.receive()
            assert delivery.body == b"%d" % number, delivery.body
            await delivery.accept()
        assert {(await outcome).kind.value for outcome in outcomes} == {"accepted"}
        await subscriber.unsubscribe()


def program() -> Path:
    """`oncewire` of this environment."""
    return Path(sys.executable).with_name("oncewire")


def use_commands(url: str) -> None:
    """What `oncewire pub` sends, `oncewire sub` prints."""
    pipe = subprocess.PIPE
    subscribing = [program(), "sub", "orders", "--url", url, "--count", "1"]
    with subprocess.Popen(subscribing, stdout=pipe, stderr=pipe, text=True) as subscriber:
        assert subscriber.stderr is not None
        assert "subscribed" in subscriber.stderr.readline()
        sent = subprocess.check_output([program(), "pub", "orders", "two coffees", "--url", url], text=True)
        assert sent == "published 1, accepted 1\n", sent
        assert subscriber.communicate(timeout=LIMIT_S)[0] == "two coffees\n"


def try_client(version: str, url: str) -> None:
    """The client alone: no folder of the other package is there, and none is needed."""
    assert importlib.metadata.version("oncewire") == version
    installed = importlib.metadata.packages_distributions()
    assert not set(NOT_THE_CLIENT) & set(installed), installed
    asyncio.run(send_and_receive(url))
    use_commands(url)
    asked = subprocess.run([program(), "router"], capture_output=True, text=True, check=False)
    assert asked.returncode == 2, asked
    assert 'pip install "oncewire[router]"' in asked.stderr, asked.stderr
    packages = ", ".join(sorted({name for names in installed.values() for name in names}))
    print(f"oncewire {version}, the client alone ({packages}): {MESSAGES} messages, each once and in order")


async def main(version: str, client: str | None) -> None:
    """Starts, uses and ends a router."""
    assert importlib.metadata.version("oncewire") == version
    router = await asyncio.create_subprocess_exec(
        program(),
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
        url = json.loads(await asyncio.wait_for(router.stdout.readline(), LIMIT_S))["url"]
        await send_and_receive(url)
        if client is not None:
            there = await asyncio.create_subprocess_exec(client, "-P", __file__, version, "--at", url)
            assert await there.wait() == 0
        router.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(router.wait(), LIMIT_S) == 0
    finally:
        if router.returncode is None:
            router.kill()
    print(f"oncewire {version}: {MESSAGES} messages, each once and in order")


if __name__ == "__main__":
    if "--at" in sys.argv:
        try_client(sys.argv[1], sys.argv[3])
    else:
        asyncio.run(main(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None))
