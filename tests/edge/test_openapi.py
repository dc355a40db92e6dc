"""The HTTP of an edge is described as OpenAPI, and an edge does what the description says, whatever is sent to it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from bridges.edge.openapi import document
from oncewire.client import connect
from tests.edge.edge_process import running_edge, settings
from tests.router.processes import RouterProcess
from tests.support.api_fuzzing import check_answers

PARTS = '[[journal]]\nname = "orders"\ntopics = ["orders.#"]\n[[queue]]\nname = "mails"\n'


async def test_every_path_of_an_edge_is_described(tmp_path: Path, router: RouterProcess) -> None:
    text = settings(f"sqlite:///{tmp_path}/edge.db", [router.url], PARTS)
    async with running_edge(tmp_path / "edge.toml", text) as edge:
        status, described = await edge.ask("/api/v1/openapi.json")
        assert (status, described["info"]["title"]) == (200, "Oncewire edge")
        paths: dict[str, dict[str, Any]] = described["paths"]
        for path, operations in paths.items():
            if "get" in operations:
                filled = path.replace("{name}", "absent").replace("{position}", "1")
                assert (await edge.ask(filled))[0] == (404 if "{" in path else 200), path
    assert document("1")["paths"] == paths


@pytest.mark.slow
@pytest.mark.needs("schemathesis")
async def test_an_edge_answers_what_its_description_says(tmp_path: Path, router: RouterProcess) -> None:
    text = settings(f"sqlite:///{tmp_path}/edge.db", [router.url], PARTS)
    async with running_edge(tmp_path / "edge.toml", text) as edge, connect(router.url) as client:
        async with client.publisher("orders.new") as publisher:
            await asyncio.gather(*(publisher.send(b"%d" % number) for number in range(10)))
        await check_answers(f"{edge.url}/api/v1/openapi.json", "^$", tmp_path)
        assert (await edge.ask("/healthz"))[0] == 200
