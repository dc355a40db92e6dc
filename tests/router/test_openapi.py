"""The HTTP API is described as OpenAPI, and a router does what the description says, whatever is sent to it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from router.operator.openapi import document
from tests.router.processes import running_router
from tests.support.api_fuzzing import check_answers
from topology.inspector.rows_core import COLLECTIONS
from topology.inspector.schema.catalogue import MANAGED

END_S = 100.0


def test_every_table_type_and_operation_is_described() -> None:
    paths = document("1")["paths"]
    assert isinstance(paths, dict)
    assert {f"/api/v1/{table}" for table in COLLECTIONS} <= set(paths)
    for entity in MANAGED.values():
        path = f"/api/v1/management/{entity.name}/{{name}}"
        assert {f"{path}/{each.name}" for each in entity.operations} <= set(paths)
        assert ("put" in paths[path]) is bool(entity.settable)
        assert ("delete" in paths[path]) is (entity.delete is not None)


async def test_a_header_expect_that_is_no_text_is_refused_and_no_fault() -> None:
    """Found by fuzzing: it was a status of 500, and a traceback in the log for each request."""
    async with running_router("--standalone") as router:
        host, _, port = router.http.removeprefix("http://").partition(":")
        reading, writing = await asyncio.open_connection(host, int(port))
        writing.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nExpect: \xea\xa6\r\n\r\n")
        async with asyncio.timeout(END_S):
            assert b" 417 " in await reading.readline()
        writing.close()


@pytest.mark.slow
@pytest.mark.needs("schemathesis")
async def test_a_router_answers_what_its_description_says(tmp_path: Path) -> None:
    """Valid and invalid requests made of the description. A drain is left out: it would end the router."""
    async with running_router("--standalone", "--http-port", "0") as router:
        await check_answers(f"{router.http}/api/v1/openapi.json", "/drain$", tmp_path)
        status, _ = await router.get("/healthz")
        assert status == 200
