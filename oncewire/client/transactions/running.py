"""Runs the parts of a consumer together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from oncewire.client.errors import ClientError, ProcessFailed, StoreError, StoreFenced


async def until_first_ends(*works: Awaitable[None]) -> None:
    """Run all until one ends, then end the others; raises the error that says most."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    errors = [leaf for result in results if isinstance(result, BaseException) for leaf in _leaves(result)]
    found = [error for error in errors if not isinstance(error, asyncio.CancelledError)]
    if found:
        raise min(found, key=_rank)


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for each in error.exceptions for leaf in _leaves(each)]
    return [error]


def _rank(error: BaseException) -> int:
    """Causes first: a defect, the fence, the function, the store; what links make of them last."""
    if not isinstance(error, ClientError):
        return 0
    if isinstance(error, StoreFenced):
        return 1
    return 2 if isinstance(error, (ProcessFailed, StoreError)) else 3
