"""What the tests of the client's shell have in common."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from oncewire.wire import AmqpError, Symbol

LONG = 60.0
"""Seconds that no test needs; a wait that long has failed."""


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition that other tasks bring about."""
    async with asyncio.timeout(LONG):
        while not condition():  # noqa: ASYNC110  # conditions of several parts have no common event
            await asyncio.sleep(0.002)


def error(condition: str, description: str = "", **info: object) -> AmqpError:
    """An AMQP error; names of info fields are written with underscores."""
    fields = {Symbol(key.replace("_", "-")): value for key, value in info.items()}
    return AmqpError(Symbol(condition), description or None, fields or None)
