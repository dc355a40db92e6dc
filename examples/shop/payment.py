"""Charges orders. The charge and the message that it is paid commit together, or neither does."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from oncewire.client.transactions import Consumer, ReceivedMessage, Transaction

ROUTERS = os.environ.get("ROUTERS", "amqp://127.0.0.1:5672").split()
DATABASE = Path(os.environ.get("SHOP_DATA", ".")) / "payment.db"
SCHEMA = ["CREATE TABLE IF NOT EXISTS charged (number INTEGER, cents INTEGER)"]


def charge(tx: Transaction, message: ReceivedMessage) -> None:
    """Process one order."""
    order = message.value
    tx.execute("INSERT INTO charged VALUES (?, ?)", (order["number"], order["cents"]))
    tx.publish("shop.paid", order)


async def main() -> None:
    """Run until the process is ended; the next one goes on where this one was."""
    # require=2: mail and dashboard subscribe before the first payment is published.
    payment = Consumer(
        ROUTERS,
        store=f"sqlite:///{DATABASE}",
        name="payment",
        topics=["shop.orders"],
        schema=SCHEMA,
        require=2,
        codec=dict,
    )
    async with payment:
        await payment.run(charge)


if __name__ == "__main__":
    asyncio.run(main())
