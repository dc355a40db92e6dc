"""What client processes get, and the effects they keep beside their durable journal."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from chaos.clients.client_plan import PublisherPlan, Share, SubscriberPlan, decode_plan, encode_plan
from chaos.clients.events import Processed
from chaos.clients.processed_table import read_processed, write_processed


def test_plans_survive_the_command_line() -> None:
    publisher = PublisherPlan(
        "p", "t", ("amqp://a", "amqp://b"), "p.jsonl", Share(10, 1, 2, "ä b.txt"), rate=1.5, window=7, journal="p.db"
    )
    subscriber = SubscriberPlan("s", "t/*", ("amqp://a",), "s.jsonl", batch=3, batch_s=0.5, hold="s.hold")
    assert decode_plan(encode_plan(publisher)) == publisher
    assert decode_plan(encode_plan(subscriber)) == subscriber


def test_effects_are_read_in_the_order_of_processing_and_only_once_committed(tmp_path: Path) -> None:
    path = tmp_path / "journal.sqlite"
    assert read_processed(path) == []
    first = [Processed(2.0, "p", 2, "b"), Processed(1.0, "p", 1, "a")]
    with closing(sqlite3.connect(path)) as connection:
        assert read_processed(path) == []
        write_processed(connection, first)
        connection.commit()
        write_processed(connection, [Processed(3.0, "p", 3, "c")])
        assert read_processed(path) == first
