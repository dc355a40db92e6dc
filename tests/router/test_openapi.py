"""The HTTP API is described as OpenAPI, and a router does what the description says, whatever is sent to it."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from router.operator.openapi import document
from tests.router.processes import running_router
from topology.inspector.rows_core import COLLECTIONS
from topology.inspector.schema.catalogue import MANAGED

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "negative_data_rejection",
)
EXAMPLES = 6
"""For each operation and phase."""
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
        found = await asyncio.create_subprocess_exec(
            Path(sys.prefix) / "bin" / "st",
            "--no-color",
            "run",
            f"{router.http}/api/v1/openapi.json",
            "--seed",
            "1",
            "--checks",
            ",".join(CHECKS),
            "--max-examples",
            str(EXAMPLES),
            "--phases",
            "examples,coverage,fuzzing",
            "--exclude-path-regex",
            "/drain$",
            "--continue-on-failure",
            "--workers",
            "1",
            "--no-shrink",
            "--generation-database",
            "none",
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path)},
        )
        try:
            async with asyncio.timeout(END_S):
                said, _ = await found.communicate()
        finally:
            if found.returncode is None:
                found.kill()
        assert found.returncode == 0, said.decode()[-6000:]
        status, _ = await router.get("/healthz")
        assert status == 200
