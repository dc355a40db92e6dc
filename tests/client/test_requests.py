"""Requests and answers at real routers: each once, over crashes, and each failure says why."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from oncewire.client import (
    Client,
    ClientClosed,
    NotAccepted,
    Properties,
    Request,
    Requester,
    RequestRefused,
    Responder,
    UsageError,
    connect,
    requests,
)
from oncewire.testing import AmqpNetwork

DEADLINE_S = 60.0


@pytest.fixture
def network() -> Iterator[AmqpNetwork]:
    with AmqpNetwork(2) as found:
        yield found


@pytest.fixture
async def client(network: AmqpNetwork) -> AsyncIterator[Client]:
    async with connect(network.urls) as found:
        yield found


async def double(request: Request) -> None:
    await request.answer(str(2 * int(str(request.body))))


@asynccontextmanager
async def serving(
    client: Client,
    answer: Callable[[Request], Awaitable[object]] = double,
    *,
    name: str | None = None,
    share: str | None = None,
) -> AsyncIterator[None]:
    """A responder that answers requests of `doubles` one after the other."""
    async with Responder(client, "doubles", name=name, share=share) as responder:

        async def serve() -> None:
            async for request in responder:
                await answer(request)

        task = asyncio.create_task(serve())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()


async def test_each_of_many_requests_at_once_gets_its_own_answer(client: Client) -> None:
    async with serving(client), Requester(client) as requester:
        asked = [requester.request("doubles", str(number), timeout=DEADLINE_S) for number in range(300)]
        assert [answer.body for answer in await asyncio.gather(*asked)] == [str(2 * number) for number in range(300)]


async def test_requests_are_answered_once_over_the_crash_of_the_requesters_router(network: AmqpNetwork) -> None:
    first, second = network.urls
    done: list[str] = []

    async def answer(request: Request) -> None:
        done.append(str(request.body))
        await double(request)

    async with (
        connect(second) as server,
        serving(server, answer),
        connect([first, second]) as client,
        Requester(client) as requester,
    ):
        for number in range(60):
            if number == 20:
                network.kill("r1")
            found = await requester.request("doubles", str(number), timeout=DEADLINE_S)
            assert found.body == str(2 * number)
        assert client.statistics.connections == 2
    assert done == [str(number) for number in range(60)]


async def test_a_request_that_nobody_gets_or_that_is_refused_fails_and_says_why(client: Client) -> None:
    async with Requester(client) as requester:
        with pytest.raises(NotAccepted, match="fewer than 1 subscription"):
            await requester.request("doubles", "1", timeout=DEADLINE_S)
        async with serving(client, lambda request: request.refuse("no number")):
            with pytest.raises(RequestRefused, match="'doubles' was refused: no number"):
                await requester.request("doubles", "one", timeout=DEADLINE_S)


async def test_a_late_answer_is_dropped_and_the_next_request_gets_its_own(client: Client) -> None:
    may_answer = asyncio.Event()

    async def answer(request: Request) -> None:
        await may_answer.wait()
        await double(request)

    async with serving(client, answer), Requester(client) as requester:
        with pytest.raises(TimeoutError):
            await requester.request("doubles", "1", timeout=0.3)
        may_answer.set()
        assert (await requester.request("doubles", "2", timeout=DEADLINE_S)).body == "4"


async def test_requests_wait_for_a_responder_with_a_name_that_is_away(network: AmqpNetwork, tmp_path: Path) -> None:
    url = network.url("r1")
    journal = tmp_path / "server.db"
    async with connect(url, container_id="server", journal=journal) as server, serving(server, name="doubler"):
        pass
    async with connect(url) as client, Requester(client) as requester:
        asked = asyncio.create_task(requester.request("doubles", "21", timeout=DEADLINE_S))
        async with connect(url, container_id="server", journal=journal) as server, serving(server, name="doubler"):
            assert (await asked).body == "42"


async def test_shared_responders_answer_each_request_once(client: Client) -> None:
    async with serving(client, share="doublers"), serving(client, share="doublers"), Requester(client) as requester:
        asked = [requester.request("doubles", str(number), timeout=DEADLINE_S) for number in range(50)]
        assert [answer.body for answer in await asyncio.gather(*asked)] == [str(2 * number) for number in range(50)]


async def test_what_names_no_reply_to_is_rejected_and_others_are_served(client: Client) -> None:
    async with serving(client), Requester(client) as requester:
        publisher = await client.publisher("doubles")
        for wrong in (None, Properties(correlation_id="x")):
            await publisher.send("1", properties=wrong, timeout=DEADLINE_S)
        assert (await requester.request("doubles", "2", timeout=DEADLINE_S)).body == "4"


async def test_an_answer_that_nobody_waits_for_ends_the_request(client: Client) -> None:
    async with serving(client):
        publisher = await client.publisher("doubles")
        for gone in ("_answers.gone", "_reply/gone"):
            properties = Properties(reply_to=gone, correlation_id="x")
            assert (await publisher.send("1", properties=properties, timeout=DEADLINE_S)).is_accepted


async def test_requests_under_way_fail_when_their_requester_is_closed(client: Client) -> None:
    has_come = asyncio.Event()

    async def never(_request: Request) -> None:
        has_come.set()
        await asyncio.Event().wait()

    async with serving(client, never):
        async with Requester(client) as requester:
            asked = asyncio.create_task(requester.request("doubles", "1"))
            await asyncio.wait_for(has_come.wait(), DEADLINE_S)
        with pytest.raises(ClientClosed, match="its requester was closed"):
            await asked
        with pytest.raises(UsageError, match="is not open"):
            await requester.request("doubles", "1")


async def test_a_publisher_that_has_ended_is_opened_again(client: Client) -> None:
    async with serving(client), Requester(client) as requester:
        assert (await requester.request("doubles", "1", timeout=DEADLINE_S)).body == "2"
        await (await requester._publishers.of("doubles")).suspend()  # as one that was detached
        assert (await requester.request("doubles", "2", timeout=DEADLINE_S)).body == "4"


async def test_publishers_to_many_requesters_are_closed_again(
    network: AmqpNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "KEPT_PUBLISHERS", 2)
    url = network.url("r1")
    async with connect(url, container_id="server") as server, serving(server), connect(url) as client:
        for number in range(6):
            async with Requester(client) as requester:
                assert (await requester.request("doubles", str(number), timeout=DEADLINE_S)).body == str(2 * number)
        publishers = network.state("r1")["publishers"]
        assert len([each for each in publishers if "server/" in str(each)]) == 2, publishers
