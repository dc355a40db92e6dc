"""A real Prometheus scrapes real routers: an alert fires when a subscriber stalls, and is over when it goes on."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from oncewire.client import connect
from router.commands.local_network import LocalNetwork
from tests.support.prometheus import running_prometheus

RULES = (Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yml").read_text()


@pytest.mark.slow
@pytest.mark.needs("prometheus")
async def test_an_alert_fires_while_a_subscriber_stalls_and_no_other(tmp_path: Path) -> None:
    rules = re.sub(r"for: \d+[sm]", "for: 1s", RULES)
    async with LocalNetwork(2, log_folder=tmp_path) as network:
        routers = list(network.routers.values())
        targets = [f"127.0.0.1:{router.http_port}" for router in routers]
        at = [f"amqp://127.0.0.1:{router.amqp_port}" for router in routers]
        async with (
            connect(at[:1], container_id="shop") as shop,
            connect(at[1:], container_id="kitchen") as kitchen,
            running_prometheus(tmp_path, targets, rules) as prometheus,
        ):
            subscriber = await kitchen.subscriber("orders", name="cook")
            publisher = await shop.publisher("orders", name="till")
            sending = asyncio.ensure_future(publisher.send(b"two coffees"))
            delivery = await anext(aiter(subscriber))
            firing = await prometheus.until(lambda alerts: "OncewireDeliveriesStuck" in alerts)
            assert firing["OncewireDeliveriesStuck"]["waits_for"] == "subscriptions"
            assert firing["OncewireDeliveriesStuck"]["instance"] == targets[0]
            # A busy machine may be late; everything else would be a false alarm.
            assert set(firing) <= {"OncewireDeliveriesStuck", "OncewireDeliveriesDelayed", "OncewireLoopLag"}
            await delivery.accept()
            await sending
            await prometheus.until(lambda alerts: "OncewireDeliveriesStuck" not in alerts)
            assert await prometheus.value("sum(oncewire_deliveries_reported_total)") == 1
