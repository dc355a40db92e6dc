"""Takes orders over HTTP. An order and its message are one transaction of this service's own database."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

from fastapi import FastAPI
from pydantic import BaseModel

from bridges.workqueue import OutboxPublisher, QueueStore, outbox
from oncewire.client.asgi import Background

ROUTERS = os.environ.get("ROUTERS", "amqp://127.0.0.1:5672").split()
DATABASE = Path(os.environ.get("SHOP_DATA", ".")) / "web.db"


class Order(BaseModel):
    """The customer chooses the number, so an order that is sent again is the same order."""

    number: int
    cents: int


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Publish what is in the outbox as long as the service runs."""
    with closing(sqlite3.connect(DATABASE)) as database:
        database.execute("CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, cents INTEGER NOT NULL)")
    async with QueueStore.open(f"sqlite:///{DATABASE}") as store, Background() as background:
        # require=1: an order waits in the outbox until the payment service has subscribed.
        background.start(OutboxPublisher(store, ROUTERS, require=1).run())
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
def order(order: Order) -> Order:
    """Take an order; 202 means that it is in the database, and its message with it."""
    with closing(sqlite3.connect(DATABASE)) as database, database:  # the second one commits
        row = (order.number, order.cents)
        if database.execute("INSERT INTO orders VALUES (?, ?) ON CONFLICT DO NOTHING", row).rowcount:
            outbox.add(database, "shop.orders", order.model_dump())
    return order
