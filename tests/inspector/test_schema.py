"""One line in the schema is all that an attribute needs beside its value: every way to see it reads the schema."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from oncewire.wire import Message, decode_message
from router.operator import reference
from router.operator.access import Access, Caller
from router.operator.amqp_requests import Answering, read_request
from router.operator.schema import as_data
from router.operator.service import Management
from router.operator.stored_entities import StoredEntities
from router.process.logs import EventLog
from router.settings.config import RouterConfig
from topology.inspector.rows_core import WATCHABLE, Head, Row
from topology.inspector.schema.catalogue import MANAGED, SHOWN, columns_of, entity_of, page_module
from topology.inspector.schema.model import Column, Role, Unit, integer
from topology.inspector.show_cli import shown

DOCS = Path(__file__).resolve().parents[2]
ROW: Row = {"key": "k", "name": "box/sub", "topic": "orders", "router": "r1", "state": "attached", "weight": 2_000}
WEIGHT = {"name": "weight", "label": "Weight", "type": "integer", "unit": "bytes", "optional": False}


class Rows:
    """The source of the values."""

    def heads(self, table: str) -> Sequence[Head]:
        return [Head("box/sub", "k", "box/sub")] if table == "subscriptions" else []

    def rows(self, table: str, heads: Sequence[Head]) -> list[Row]:
        return [ROW for head in heads]


def tables_of_page() -> Any:
    return json.loads(page_module().partition("TABLES = ")[2].partition(";\nexport")[0])


@pytest.fixture
def weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    known = MANAGED["subscription"]
    line = integer("weight", "What it weighs.", Column("weight", 1), Unit.BYTES)
    monkeypatch.setitem(MANAGED, "subscription", replace(known, attributes=(*known.attributes, line)))


def management() -> tuple[Management, Access]:
    config, log = RouterConfig(), EventLog("r1")
    access = Access(config, log)
    controls: Any = SimpleNamespace(config=dict, group="")
    return Management("r1", Rows(), controls, access, StoredEntities(None), log), access


@pytest.mark.usefixtures("weighed")
async def test_the_api_has_it_with_type_unit_and_meaning() -> None:
    found, _ = management()
    assert (await found.read("subscription", "box/sub"))["weight"] == 2_000
    reported: Any = as_data()["types"]
    assert reported["subscription"]["attributes"][-1] == {
        "name": "weight",
        "type": "integer",
        "meaning": "What it weighs.",
        "changed_by": None,
        "unit": "bytes",
    }


@pytest.mark.usefixtures("weighed")
async def test_the_management_node_has_it() -> None:
    found, access = management()
    request = read_request(
        Message(
            {"attributeNames": []}, application_properties={"operation": "QUERY", "entityType": "oncewire.subscription"}
        )
    )
    answer = decode_message(await Answering(found, access, list).answer(request, Caller(Role.VIEWER)))
    body: Any = answer.body
    assert dict(zip(body["attributeNames"], body["results"][0], strict=True))["weight"] == 2_000


@pytest.mark.usefixtures("weighed")
def test_the_command_line_has_a_column() -> None:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(shown("subscriptions", {"subscriptions": [ROW]}, 200))
    head, row = capture.get().splitlines()
    assert head.split() == ["subscription", "topic", "router", "state", "weight"]
    assert row.split()[-1] == "2000"


@pytest.mark.usefixtures("weighed")
def test_the_page_has_a_column() -> None:
    tables = tables_of_page()
    assert tables["subscriptions"][-1] == WEIGHT


def test_texts_that_no_row_has_are_in_no_column_of_the_page_and_of_the_command_line() -> None:
    table = {each["name"]: each for each in tables_of_page()["subscriptions"]}
    optional = {name for name, each in table.items() if each["optional"]}
    assert {"filter", "member_of", "user"} <= optional
    assert not {"name", "topic", "router", "state", "lag"} & optional
    known = dict(columns_of("subscriptions"))
    for row in (ROW, ROW | dict.fromkeys(optional, "some")):
        console = Console(width=500)
        with console.capture() as capture:
            console.print(shown("subscriptions", {"subscriptions": [row]}, 500))
        heads = re.split(r"\s{2,}", capture.get().splitlines()[0].strip())
        assert {name for name in optional if known[name].title in heads} == optional & row.keys()


@pytest.mark.usefixtures("weighed")
def test_the_reference_has_a_row() -> None:
    page = reference.written(reference.PAGE, (DOCS / reference.PAGE).read_text(encoding="utf-8"))
    assert "| `weight` | integer, bytes |  | What it weighs. |\n" in page


@pytest.fixture
def weighed_delivery(monkeypatch: pytest.MonkeyPatch) -> None:
    known = SHOWN["delivery"]
    line = integer("weight", "What it weighs.", Column("weight", 0), Unit.BYTES)
    monkeypatch.setitem(SHOWN, "delivery", replace(known, attributes=(*known.attributes, line)))


@pytest.mark.usefixtures("weighed_delivery")
def test_a_new_attribute_of_a_delivery_is_shown_by_command_line_page_and_reference() -> None:
    record = dict.fromkeys((each.name for each in SHOWN["delivery"].attributes), None)
    found = [record | {"role": "ingress", "router": "r1", "weight": 2_000}]
    document = {"tag": "00", "answer": {"text": "it waits", "waiting_for": []}, "found": found}
    console = Console(width=200)
    with console.capture() as capture:
        console.print(shown("delivery", document, 200))
    assert [line.split() for line in capture.get().splitlines()] == [
        ["it", "waits"],
        [],
        ["ingress", "at", "router", "r1"],
        ["weight", "2000", "bytes"],
        [],
    ]
    tables = tables_of_page()
    assert tables["deliveries"] == [WEIGHT]
    page = reference.written(reference.INSPECTOR_PAGE, (DOCS / reference.INSPECTOR_PAGE).read_text(encoding="utf-8"))
    assert "| `weight` | integer, bytes | What it weighs. |\n" in page


def test_every_table_is_that_of_an_entity() -> None:
    assert [entity_of(table).table for table in WATCHABLE] == list(WATCHABLE)
