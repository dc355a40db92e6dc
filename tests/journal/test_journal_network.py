"""Journals in a network of routers: stored and accepted, read late, read again, resumed (J-16 to J-23)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bridges.journal import cursors, log
from bridges.journal.model import Place
from oncewire.client import connect
from oncewire.store.errors import SubscriptionEnded
from oncewire.store.owners import lease_left
from router.commands.local_network import LocalNetwork
from tests.journal.network_world import COUNT, DEADLINE_S, edge, publish

pytestmark = [pytest.mark.routers(1), pytest.mark.timeout(400)]


async def test_a_reader_that_comes_late_gets_all_in_order_and_the_rest_when_it_comes_back(
    network: LocalNetwork, tmp_path: Path
) -> None:
    url = network.routers["r1"].url
    async with edge(f"sqlite:///{tmp_path}/edge.db", url) as first, connect(url, container_id="shop") as shop:
        await publish(shop)
        await first.store.transact(lambda do: cursors.seek(do, "orders", "|late|reader", Place.FIRST))
        for begin in (0, 10):
            async with (
                connect(url, container_id="late", journal=tmp_path / "late.db") as late,
                late.subscriber("journal://orders", name="reader") as reader,
            ):
                for number in range(begin, begin + 10):
                    delivery = await reader.receive(DEADLINE_S)
                    assert delivery.body == f"order {number}"
                    assert delivery.publisher.startswith("shop/")
                    await delivery.accept()
                unread = await reader.receive(DEADLINE_S) if not begin else None
                assert unread is None or unread.body == "order 10"
                await reader.suspend()
        journal = await first.store.transact(lambda do: log.state(do, "orders"))
        assert (journal.last, journal.kept) == (COUNT, COUNT)


async def test_a_deleted_journal_ends_its_subscription_so_that_publishers_wait_for_nobody(
    network: LocalNetwork, tmp_path: Path
) -> None:
    url = network.routers["r1"].url
    async with edge(f"sqlite:///{tmp_path}/edge.db", url) as found, connect(url, container_id="shop") as shop:
        await publish(shop, 0, 1)
        await found.store.transact(lambda do: log.delete(do, "orders"))
        with pytest.raises(SubscriptionEnded, match="the journal was deleted"):
            await asyncio.wait_for(found.tasks[0], DEADLINE_S)
        await publish(shop, 1, 1)
        lease = await found.store.transact(lambda do: lease_left(do, "journal 'orders' from 'orders.#'"))
        assert lease is None
