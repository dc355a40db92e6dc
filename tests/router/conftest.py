"""What all tests of the router share: no raw client outlives its test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.router.raw_client import RawClient


@pytest.fixture(autouse=True)
async def raw_clients_closed() -> AsyncIterator[None]:
    """Cuts the connections of all raw clients when the test has ended."""
    yield
    await RawClient.close_all()
