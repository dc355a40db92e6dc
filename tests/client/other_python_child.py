"""The client under another Python: imports each of its modules, and sends 200 messages through a router.

    PYTHONPATH=FOLDER pythonX.Y other_python_child.py URL FOLDER

FOLDER has the client and its one dependency. Prints the version and the sum of what came.
"""

import asyncio
import importlib
import pkgutil
import platform
import sys
from pathlib import Path

import oncewire.client
import oncewire.wire
from oncewire.client import SqliteJournal, connect, sync

OPTIONAL = {"aiohttp", "google", "opentelemetry", "prometheus_client", "psycopg", "pydantic", "lark"}
"""What some modules need and an application installs by itself."""


def import_all() -> None:
    """Each module must at least be read by this Python."""
    for package in (oncewire.wire, oncewire.client):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            try:
                importlib.import_module(module.name)
            except (ModuleNotFoundError, oncewire.client.UsageError) as error:
                lacking = error if isinstance(error, ModuleNotFoundError) else error.__cause__
                name = lacking.name if isinstance(lacking, ModuleNotFoundError) else None
                if name is None or name.partition(".")[0] not in OPTIONAL:
                    raise


def bytes_of(body: object) -> bytes:
    """A body that was sent as bytes."""
    assert isinstance(body, bytes)
    return body


async def send_and_receive(url: str, folder: Path) -> int:
    """Exactly once, with journals at both ends; an effect in the transaction of each acceptance."""
    journal = SqliteJournal(str(folder / "received.db"))
    async with connect(url, container_id="kitchen") as client, connect(url, container_id="till") as sender:
        subscriber = await client.subscriber("orders", name="all", journal=journal)
        async with sender.publisher("orders", name="p", journal=str(folder / "sent.db")) as publisher:
            sendings = [await publisher.submit(b"%d" % number) for number in range(100)]
            total = 0
            for _ in sendings:
                delivery = await subscriber.receive(60.0)
                async with subscriber.transaction(delivery):
                    total += int(bytes_of(delivery.body))
            assert all([(await sending).is_accepted for sending in sendings])
        await subscriber.unsubscribe()
    journal.close()
    return total


def without_a_loop(url: str) -> int:
    """The same by the client for programs without an event loop."""
    with sync.connect(url) as client:
        subscriber, publisher = client.subscriber("orders"), client.publisher("orders")
        sendings = [publisher.submit(b"%d" % number) for number in range(100)]
        total = 0
        for _ in sendings:
            delivery = subscriber.receive(60.0)
            total += int(bytes_of(delivery.body))
            delivery.accept()
        assert all(sending.result(60.0).is_accepted for sending in sendings)
    return total


if __name__ == "__main__":
    import_all()
    found = asyncio.run(send_and_receive(sys.argv[1], Path(sys.argv[2]))) + without_a_loop(sys.argv[1])
    sys.stdout.write(f"{'.'.join(platform.python_version_tuple()[:2])} {found}\n")
