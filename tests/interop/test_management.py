"""A stock console manages a router: proton's own request-response client, with nothing of ours in it."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.router.processes import running_router
from tests.router.raw_client import RawClient

SCRIPT = Path(__file__).parent / "proton_management.py"
END_S = 60.0


async def ask(url: str, *requests: dict[str, Any]) -> list[Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(SCRIPT),
        url,
        *map(json.dumps, requests),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        out, err = await asyncio.wait_for(process.communicate(), END_S)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, err.decode()
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.needs("proton")
async def test_proton_reads_changes_and_ends_what_a_router_has() -> None:
    async with running_router("--standalone", "--id=alpha") as router:
        box = await RawClient.connect(router.port, "box")
        subscriber = await box.subscriber("orders")
        node = {"type": "org.amqp.management", "name": "self"}
        types, found, level = await ask(
            router.url,
            {"properties": {"operation": "GET-TYPES", **node}},
            {
                "properties": {"operation": "QUERY", "entityType": "oncewire.subscription", **node},
                "body": {"attributeNames": ["name", "epoch", "identity"]},
            },
            {
                "properties": {"operation": "UPDATE", "type": "oncewire.log", "name": "router"},
                "body": {"level": "debug"},
            },
        )
        assert types["properties"]["statusCode"] == 200
        assert "oncewire.subscription" in types["body"]
        ((name, epoch, identity),) = found["body"]["results"]
        assert name == "box/sub"
        assert level["body"]["level"] == "debug"
        about = {"type": "oncewire.subscription", "identity": identity}
        stale, ended, gone = await ask(
            router.url,
            {"properties": {"operation": "DELETE", **about, "epoch": epoch - 1}},
            {"properties": {"operation": "DELETE", **about, "epoch": epoch}},
            {"properties": {"operation": "READ", **about}},
        )
        assert [answer["properties"]["statusCode"] for answer in (stale, ended, gone)] == [409, 204, 404]
        detached = await box.detached(subscriber.link)
        assert detached.error is not None
        assert detached.error.condition == "amqp:resource-deleted"
