"""The log names who holds publishers up: seldom enough, and what helps."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import Path
from typing import Any

import pytest

from delivery_records.diagnostics.lateness import STUCK_S
from oncewire.client import connect
from oncewire.client.transactions import Consumer
from oncewire.transport.log_limit_core import AGAIN_S
from router.operator.stuck_notice import MOST, StuckNotice
from router.process.logs import EventLog
from tests.delivery_records.harness import Net
from tests.router.processes import running_router
from tests.support.commands import run


def logged(log: EventLog) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = log.recent.after(None, 1_000).items
    return [row["fields"] for row in rows if row["event"] == "delivery_stuck"]


async def test_a_subscription_that_holds_a_publisher_up_is_logged_with_its_owner_and_the_command_that_ends_it() -> None:
    net = Net()
    (node,) = net.nodes
    away = net.subscriber(node, "billing", topic="link")  # the name of each link
    net.publisher(node, topic="link").send(b"m1")
    away.drop()
    log = EventLog("r1")
    notice = StuckNotice(node.core, log)
    notice.stop()
    notice.look(net.now + STUCK_S)
    assert logged(log) == [], "a failover takes as long"
    notice.look(net.now + STUCK_S + 1)
    (fields,) = logged(log)
    assert fields["subscription"] == "billing/link"
    assert (fields["owner"], fields["state"], fields["waits_s"]) == ("Consumer or bridge node", "detached", STUCK_S + 1)
    assert fields["ends_with"] == "oncewire manage delete subscription billing/link"
    assert (fields["publisher"], fields["topic"]) == ("p/link", "link")
    assert log.counts["warning"] == 1


async def test_each_is_logged_once_a_minute_and_few_at_a_time() -> None:
    net = Net()
    (node,) = net.nodes
    for number in range(MOST + 3):
        net.subscriber(node, f"s{number}", limit=0)
    for name in ("p1", "p2"):
        net.publisher(node, name).send(b"m1")
    log = EventLog("r1")
    notice = StuckNotice(node.core, log)
    notice.stop()
    began = net.now + STUCK_S + 1
    notice.look(began)
    notice.look(began + AGAIN_S / 2)
    assert len({fields["subscription"] for fields in logged(log)}) == len(logged(log)) == MOST
    notice.look(began + AGAIN_S + 1)
    assert len(logged(log)) == 2 * MOST


@pytest.mark.slow
async def test_a_routers_log_names_the_consumer_that_stopped_and_its_command_lets_the_topic_go_on(
    tmp_path: Path,
) -> None:
    """A Consumer has ended; its subscription stays, and a publisher waits for it until somebody acts on the log."""
    async with running_router("--standalone") as router:
        async with Consumer(router.url, store=f"sqlite:///{tmp_path / 'b.db'}", name="billing", topics=["orders"]):
            pass
        shop = connect(router.url, container_id="shop")
        async with shop, shop.publisher("orders", name="till") as orders:
            sending = await orders.submit(b"one")
            found: list[dict[str, Any]] = []
            async with asyncio.timeout(60):
                while not found:
                    await asyncio.sleep(0.2)
                    _, events = await router.get("/api/v1/events?limit=500")
                    found = [row["fields"] for row in events["items"] if row["event"] == "delivery_stuck"]
            assert (found[0]["subscription"], found[0]["owner"]) == ("billing/orders", "Consumer or bridge node")
            command = shlex.split(found[0]["ends_with"])
            assert command[:2] == ["oncewire", "manage"]
            code, _, err = await run(*command[1:], "--yes", "--url", router.http)
            assert code == 0, err
            assert (await asyncio.wait_for(sending, 60)).is_accepted
