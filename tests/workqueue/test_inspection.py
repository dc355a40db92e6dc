"""What the inspector shows of a store: the same of each kind of store."""

from __future__ import annotations

import asyncio

import pytest

from bridges.workqueue import Queue
from bridges.workqueue.inspection import open_queues
from oncewire.cli.errors import CliError
from tests.workqueue.queue_world import Database


def test_every_store_shows_its_queues_what_ended_and_replays_it(database: Database) -> None:
    asyncio.run(_look(database.url))


async def _look(url: str) -> None:
    async with Queue.open(url, "mails", max_retries=0) as mails:
        await mails.push({"to": "ada"})
        (failed,) = await mails.reserve_many(1)
        await failed.rollback("no such address")
        await mails.push({"to": "bob"})
        reader = open_queues(url)
        try:
            (shown,) = await reader.queues()
            assert (shown["queue"], shown["depth"], shown["ready"], shown["dead"]) == ("mails", 1, 1, 1)
            page = await reader.entries("mails", "dead", 10, None)
            (dead,) = page["items"]
            assert dead["reason"].endswith("no such address")
            hidden = await reader.entry("mails", dead["entry"], with_payload=False)
            assert hidden["payload"] is None
            seen = await reader.entry("mails", dead["entry"], with_payload=True)
            assert (seen["payload"], seen["is_cut"]) == ({"to": "ada"}, False)
            await reader.replay("mails", dead["entry"])
            assert (await mails.statistics()).ready == 2
            with pytest.raises(LookupError) as caught:
                await reader.entry("other", dead["entry"], with_payload=False)
            refusal = reader.refusal_of(caught.value)
            assert refusal is not None
            assert refusal[0] == 404
            assert reader.refusal_of(ValueError("a fault")) is None
        finally:
            await reader.close()


def test_an_address_that_means_no_store_is_refused_before_anything_is_opened() -> None:
    with pytest.raises(CliError, match="cannot be opened"):
        open_queues("redis://x")
