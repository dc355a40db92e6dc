"""Fixtures of pytest: a network in the test's process, crashes of its routers, and a verdict.

pytest imports this file in each run, so it imports no router before a fixture asks for one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from oncewire.testing.parts import server_part

if TYPE_CHECKING:
    from router.commands.in_process import AmqpNetwork

MARK = "amqp_network"


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark of the network."""
    config.addinivalue_line("markers", f"{MARK}(routers=3, settings=None): the network of the fixture {MARK}")


@pytest.fixture
def amqp_network(request: pytest.FixtureRequest) -> Iterator[AmqpNetwork]:
    """Routers in this process, linked, on free ports: ``connect(amqp_network.urls)``.

    Three of them; ``@pytest.mark.amqp_network(routers=1, settings={...})`` asks for another network.
    """
    mark = request.node.get_closest_marker(MARK)
    wanted: dict[str, Any] = {} if mark is None else dict(mark.kwargs)
    with server_part("router.commands.in_process").AmqpNetwork(**wanted) as network:
        yield network


@pytest.fixture
def kill_router(amqp_network: AmqpNetwork) -> Callable[[str | None], Awaitable[str]]:
    """What is awaited to crash a router: the named one, or the one that has most clients. It returns the name."""

    async def kill(name: str | None = None) -> str:
        return await asyncio.to_thread(amqp_network.kill, name)

    return kill


@pytest.fixture
def wait_until_idle(amqp_network: AmqpNetwork) -> Callable[[float], Awaitable[None]]:
    """What is awaited until no router holds a delivery; it raises NotIdle after 10 s, or the time given."""

    async def wait(timeout: float = 10.0) -> None:
        await asyncio.to_thread(amqp_network.wait_until_idle, timeout)

    return wait


@pytest.fixture
def exactly_once_verdict() -> Callable[..., Any]:
    """What fails the test where a message was lost, doubled or reordered: ``exactly_once_verdict(sent, processed)``."""
    return server_part("chaos.application_verdict").exactly_once_verdict  # type: ignore[no-any-return]
