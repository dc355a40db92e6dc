"""Shows what was paid. A plain reader: row and acceptance are one transaction, so no payment shows twice."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from fastapi import FastAPI
from prometheus_client import make_asgi_app

import oncewire
from oncewire.client import SqliteJournal, Subscriber
from oncewire.client.asgi import Background
from oncewire.client.metrics import ClientCollector

ROUTERS = os.environ.get("ROUTERS", "amqp://127.0.0.1:5672").split()
DATABASE = Path(os.environ.get("SHOP_DATA", ".")) / "dashboard.db"
BATCH = 200
"""Payments of one transaction, at most."""


async def show(payments: Subscriber, journal: SqliteJournal) -> None:
    """Keep each payment once: the rows and the acceptance are one transaction of the journal."""
    while True:
        deliveries = await payments.receive_many(BATCH)
        async with payments.transaction(*deliveries) as database:
            for delivery in deliveries:
                order = delivery.value
                database.execute("INSERT INTO shown VALUES (?, ?)", (order["number"], order["cents"]))


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Read as long as the service runs."""
    with closing(SqliteJournal(DATABASE)) as journal:
        journal.connection.execute("CREATE TABLE IF NOT EXISTS shown (number INTEGER, cents INTEGER)")
        async with oncewire.connect(ROUTERS, container_id="dashboard") as connection, Background() as background:
            payments = await connection.subscriber("shop.paid", name="dashboard", journal=journal, codec=dict)
            background.start(show(payments, journal))
            ClientCollector().watch(connection)
            yield


app = FastAPI(lifespan=lifespan)
app.mount("/metrics", make_asgi_app())


@app.get("/")
def totals() -> dict[str, int]:
    """How many orders were paid, and how much that is."""
    with closing(sqlite3.connect(DATABASE)) as database:
        orders, cents = database.execute("SELECT count(*), coalesce(sum(cents), 0) FROM shown").fetchone()
    return {"orders": orders, "cents": cents}
