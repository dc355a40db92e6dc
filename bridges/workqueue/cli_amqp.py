"""`oncewire queue serve`: the queues of a store as addresses of the network."""

from __future__ import annotations

import asyncio
import os

import click

from bridges.workqueue.amqp import QueueBridge
from bridges.workqueue.amqp_messages import PREFIX
from bridges.workqueue.cli_group import router_options, routers_of, run, store_command
from bridges.workqueue.cli_shapes import show
from bridges.workqueue.queue_store import QueueStore
from oncewire.cli.errors import CliError
from oncewire.client.errors import ClientError


@store_command("serve", "Serve the queues at routers, for AMQP clients.")
@click.option("--container-id", default=None, help="Of this process. [queue-bridge-PID]")
@router_options
def serve(url: str, as_json: bool, routers: tuple[str, ...], vhost: str | None, container_id: str | None) -> None:
    """Serve queue://NAME for AMQP clients of any router of the network, until interrupted.

    Prints a line when it is connected. Several processes may serve one store.
    """
    urls, login = routers_of(routers, vhost)

    async def work(store: QueueStore) -> None:
        bridge = QueueBridge(store, urls, container_id or f"queue-bridge-{os.getpid()}", **login)
        running = asyncio.create_task(bridge.run())
        connected = asyncio.create_task(bridge.service.wait_connected())
        await asyncio.wait([running, connected], return_when=asyncio.FIRST_COMPLETED)
        if connected.done():
            show({"serving": PREFIX, "routers": sorted(bridge.service.connected)}, as_json=as_json)
        connected.cancel()
        await running

    try:
        run(url, work)
    except ClientError as error:
        raise CliError(error.what, error.why, error.fix) from None
