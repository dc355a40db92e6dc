"""The page docs/how-to/outbox.md: its programs write and publish, with SQLite and with SQLAlchemy over PostgreSQL."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bridges.workqueue import Queue
from oncewire.client import connect
from oncewire.testing import AmqpNetwork
from tests.docs.code_blocks import ROOT, blocks_of
from tests.support.postgres import running_postgresql

LONG = 60.0
BLOCKS = [block.text for block in blocks_of(ROOT / "docs/how-to/outbox.md") if block.run_by]


def programs(**known: Any) -> dict[str, Any]:
    names = dict(known)
    for text in BLOCKS:
        exec(compile(text, "docs/how-to/outbox.md", "exec", dont_inherit=True), names)
    return names


async def test_the_order_of_the_page_is_published_by_the_publisher_of_the_page(
    tmp_path: Path, amqp_network: AmqpNetwork
) -> None:
    page = programs()
    database = tmp_path / "shop.db"
    async with connect(amqp_network.urls) as client, client.subscriber("shop.orders") as orders:
        publishing = asyncio.create_task(page["publish"](f"sqlite:///{database}", amqp_network.urls))
        async with Queue.open(f"sqlite:///{database}", "mails"):
            pass
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute("CREATE TABLE orders (name TEXT)")
        page["order"](database, "tea")
        delivery = await orders.receive(LONG)
        assert delivery.body == b'{"order":"tea"}'
        await delivery.accept()
        publishing.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await publishing


async def test_the_worker_of_the_page_has_one_effect_for_each_item(tmp_path: Path) -> None:
    database = tmp_path / "shop.db"
    async with Queue.open(f"sqlite:///{database}", "orders") as queue:
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute("CREATE TABLE paid (number INTEGER PRIMARY KEY)")
        await queue.push({"order": 17})
        working = asyncio.create_task(programs()["work"](queue, database))
        async with asyncio.timeout(LONG):
            while not (await queue.history()).entries:  # noqa: ASYNC110  (it has no event)
                await asyncio.sleep(0.02)
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("SELECT number FROM paid").fetchall() == [(17,)]


@pytest.mark.needs("postgresql", "sqlalchemy", "asyncpg")
async def test_the_session_of_the_page_writes_both_rows_or_none() -> None:
    alchemy, orm = importlib.import_module("sqlalchemy"), importlib.import_module("sqlalchemy.orm")
    aio = importlib.import_module("sqlalchemy.ext.asyncio")
    base: Any = orm.declarative_base()

    class Order(base):  # type: ignore[misc]
        __tablename__ = "orders"
        name = alchemy.Column(alchemy.Text, primary_key=True)

    page = programs(Order=Order)
    with running_postgresql() as server:
        words = dict(word.split("=", 1) for word in server.split())
        where = f"/postgres?host={words['host']}"
        async with Queue.open(f"postgresql://{words['user']}@{where}", "mails"):
            pass
        engine = aio.create_async_engine(f"postgresql+asyncpg://{words['user']}@{where}")
        async with engine.begin() as connection:
            await connection.run_sync(base.metadata.create_all)
        async with aio.AsyncSession(engine) as session:
            await page["order_with_sqlalchemy"](session, "tea")
        async with aio.AsyncSession(engine) as session:
            with pytest.raises(alchemy.exc.IntegrityError):
                await page["order_with_sqlalchemy"](session, "tea")
        async with engine.connect() as connection:
            rows = await connection.execute(alchemy.text("SELECT topic, number FROM oncewire_outbox"))
            assert [tuple(row) for row in rows] == [("shop.orders", 0)]
        await engine.dispose()
