"""A real router for the tests of this folder that need one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.router.processes import RouterProcess, running_router


@pytest.fixture
async def router() -> AsyncIterator[RouterProcess]:
    async with running_router("--standalone") as process:
        yield process
