"""`oncewire inspect` shows what a router serves at /api/v1/state, and says what to do when there is none."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from oncewire.cli.errors import CliError
from topology.cli import read_state, tables_of

STATE: dict[str, Any] = {
    "router": "r1",
    "rid": 0x7F01,
    "version": "1.2.3",
    "waiting_for": [],
    "applied": 17,
    "connections": 2,
    "routers": [{"id": "r1", "rid": 0x7F01, "amqp": "amqp://127.0.0.1:5672", "http": "", "leaving": False}],
    "links": [{"from": "r1", "to": "r2", "cost": 3}],
    "subscriptions": [
        {
            "name": "store/all",
            "topic": "orders.#",
            "router": "r2",
            "epoch": 15,
            "incarnation": 9,
            "mode": "exactly-once",
        }
    ],
    "windows": [{"publisher": "till/1", "topic": "orders", "unsettled": 4, "waiting_for": ["store/all"]}],
}


@pytest.fixture
def shown() -> str:
    console = Console(width=200)
    with console.capture() as captured:
        for table in tables_of(STATE):
            console.print(table)
    return captured.get()


@pytest.mark.parametrize(
    "words", ["r1 r2 3", "store/all orders.# r2 15 9", "till/1 orders 4 store/all", "7f01"]
)
def test_every_part_of_the_state_is_shown(shown: str, words: str) -> None:
    rows = [" ".join(line.replace("│", " ").split()) for line in shown.splitlines()]
    assert any(all(word in row.split() for word in words.split()) for row in rows), shown


def test_a_router_that_is_not_ready_says_what_it_waits_for() -> None:
    console = Console(width=100)
    with console.capture() as captured:
        console.print(tables_of({"waiting_for": ["a lease in etcd"]})[0])
    assert "waits for a lease in etcd" in captured.get()


async def test_the_error_names_the_address_when_no_router_answers() -> None:
    with pytest.raises(CliError) as refused:
        await read_state("http://127.0.0.1:1")
    assert "http://127.0.0.1:1" in refused.value.what
    assert "--url" in refused.value.fix
