"""The table of log events has every event that a router or an edge can log, and a real network logs no other."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import re
from pathlib import Path

import pytest

from bridges.edge.events import EdgeEvent
from delivery_records.model.outcomes import Decision
from oncewire.cli.log_output import LIBRARY_MESSAGE, JsonFormatter, TextFormatter
from oncewire.client import connect
from router.commands.local_network import LocalNetwork
from router.commands.log_merge_core import parse
from router.process.logs import RouterEvent
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reference/events.md").read_text(encoding="utf-8")
TABLE = dict(re.findall(r"^\| `([a-z_]+)` \| (\w+) \|", PAGE, re.MULTILINE))
NAMED = re.compile(r'extra=\{"event": "([a-z_]+)"\}')
NOTED = re.compile(r"note\(\s*Decision\.([A-Z_]+)(?:[^()]* else Decision\.([A-Z_]+))?")


def of_code() -> set[str]:
    """What the code of a router or an edge can log by name."""
    shell = {each.value for kind in (RouterEvent, EdgeEvent) for each in kind} | {LIBRARY_MESSAGE}
    named = {
        name
        for folder in ("topology", "oncewire/transport")
        for file in (ROOT / folder).rglob("*.py")
        for name in NAMED.findall(file.read_text(encoding="utf-8"))
    }
    noted = {
        Decision[name].value
        for file in (ROOT / "delivery_records").rglob("*.py")
        for names in NOTED.findall(file.read_text(encoding="utf-8"))
        for name in names
        if name
    }
    return shell | named | noted


def test_the_table_has_every_event_of_the_code() -> None:
    assert of_code() - set(TABLE) == set()
    assert set(TABLE) - of_code() - {each.value for each in Decision} == set()


@pytest.mark.parametrize("form", [JsonFormatter("r1"), TextFormatter("r1")])
@pytest.mark.parametrize(
    ("extra", "event", "fields"),
    [
        ({}, "library_message", {"logger": "strange.logger", "text": "a keep-alive failed: x"}),
        ({"event": "keep_alive_failed"}, "keep_alive_failed", {"text": "a keep-alive failed: x"}),
    ],
)
def test_prose_of_any_logger_is_a_field_and_the_event_a_name(
    form: logging.Formatter, extra: dict[str, str], event: str, fields: dict[str, str]
) -> None:
    logger = logging.getLogger("strange.logger")
    text = "a keep-alive failed: %s"
    record = logger.makeRecord(logger.name, logging.WARNING, "", 0, text, ("x",), None, extra=extra)
    found = parse(form.format(record), "r1.log")
    assert found is not None
    assert (found.event, found.router, found.fields) == (event, "r1", fields)


@pytest.mark.timeout(300)
async def test_every_line_of_a_run_with_faults_is_an_event_of_the_table_and_names_its_router(tmp_path: Path) -> None:
    settings = {"log.format": "json"}
    async with LocalNetwork(2, settings=settings, log_folder=tmp_path, log_level="debug") as network:
        async with connect(network.routers["r1"].url) as client:
            subscriber = await client.subscriber("orders")
            publisher = await client.publisher("orders")
            sent = await publisher.submit(b"coffee")
            await (await subscriber.receive()).accept()
            await sent
        await network.kill("r2")
        await network.restart("r2")
        assert network.etcd is not None
        network.etcd.pause()
        log = tmp_path / "r1.log"
        wait = functools.partial(wait_until, lambda: '"event": "keep_alive_failed"' in log.read_text(encoding="utf-8"))
        await asyncio.to_thread(wait, "a keep-alive fails")
        network.etcd.resume()
    for name in network.routers:
        for text in (tmp_path / f"{name}.log").read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            assert line["router"] == name, text
            assert TABLE.get(line["event"]) in (line["level"], "any"), text
