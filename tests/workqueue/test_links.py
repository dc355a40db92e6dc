"""What stores keep of AMQP links that push (W-17, W-18); the bridge's own tests are in test_amqp.py."""

from __future__ import annotations

import pytest

from bridges.store.links import LINK_EXPIRY_S
from bridges.store.serving import AddressService
from bridges.workqueue import Ending, LinkStolen, NewItem, QueueStore, Rollback
from bridges.workqueue.amqp import ADDRESSES
from oncewire.store.errors import NeedsTransactions
from tests.workqueue.queue_world import Database, World


def push(world: World, generation: int, tag: bytes, payload: bytes = b"x") -> bool:
    """Push a delivery; whether an item was added."""
    item = NewItem(payload)
    return world.do(lambda do: do.push_delivery("work", item, "shop", generation, tag)).is_new


def test_a_delivery_is_pushed_once_until_its_sender_has_settled_it(sql_world: World) -> None:
    first = sql_world.do(lambda do: do.resume_link("shop", []))
    assert (first.generation, first.known) == (1, frozenset())
    assert push(sql_world, 1, b"a")
    assert push(sql_world, 1, b"b")
    assert not push(sql_world, 1, b"a")
    sql_world.do(lambda do: do.settle_deliveries("shop", 1, [b"a"]))
    assert push(sql_world, 1, b"a"), "the tag is used again"
    second = sql_world.do(lambda do: do.resume_link("shop", [b"b", b"c"]))
    assert (second.known, second.left) == (frozenset({b"b"}), frozenset({b"a"}))
    assert not push(sql_world, 2, b"b")
    assert not push(sql_world, 2, b"a"), "nothing is forgotten before the sender has shown that it has our reply"
    sql_world.do(lambda do: do.settle_deliveries("shop", 2, sorted(second.left)))
    assert push(sql_world, 2, b"a"), "its sender has not presented it, so it has settled it"
    assert sql_world.do(lambda do: do.resume_link("other", [b"a"])).known == frozenset()


def test_a_bridge_that_is_late_pushes_nothing_for_an_earlier_attach(sql_world: World) -> None:
    sql_world.do(lambda do: do.resume_link("shop", []))
    sql_world.do(lambda do: do.resume_link("shop", [b"a"]))
    assert push(sql_world, 2, b"a")
    sql_world.do(lambda do: do.settle_deliveries("shop", 2, [b"a"]))
    with pytest.raises(LinkStolen):
        push(sql_world, 1, b"a")
    sql_world.do(lambda do: do.settle_deliveries("shop", 1, [b"a"]))
    assert sql_world.do(lambda do: do.statistics("work")).ready == 1


def test_a_link_that_nobody_uses_is_forgotten(sql_world: World) -> None:
    sql_world.do(lambda do: do.resume_link("shop", []))
    push(sql_world, 1, b"a")
    sql_world.clock.now += 0.75 * LINK_EXPIRY_S
    push(sql_world, 1, b"b")
    sql_world.clock.now += 0.75 * LINK_EXPIRY_S
    assert sql_world.do(lambda do: do.resume_link("other", [])).generation == 1
    assert not push(sql_world, 1, b"a"), "a push makes it last longer"
    sql_world.clock.now += 2 * LINK_EXPIRY_S
    sql_world.do(lambda do: do.resume_link("third", []))
    with pytest.raises(LinkStolen):
        push(sql_world, 1, b"c")
    assert sql_world.do(lambda do: do.execute("SELECT count(*) FROM oncewire_deliveries")) == [(0,)]


def test_a_rejected_item_is_dead_at_once_with_its_reason(sql_world: World) -> None:
    sql_world.push(b"bad")
    handle = sql_world.take()
    sql_world.do(lambda do: do.rollback([Rollback(handle, None, "no address", is_final=True)]))
    sql_world.do(lambda do: do.rollback([Rollback(handle, None, "no address", is_final=True)]))  # W-5
    (entry,) = sql_world.history()
    assert (entry.ending, entry.reason) == (Ending.DEAD, "no address")


@pytest.mark.needs("mongodb")
async def test_a_mongodb_store_is_not_served(mongo_database: Database) -> None:
    async with QueueStore.open(mongo_database.url) as store:
        with pytest.raises(NeedsTransactions, match="SQLite or PostgreSQL"):
            AddressService(store, ["amqp://127.0.0.1:1"], ADDRESSES, "bridge")
