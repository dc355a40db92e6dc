"""The pages of work queues have every command and the figures of the code."""

from __future__ import annotations

import re
import time
from dataclasses import fields
from pathlib import Path

import pytest

from bridges.store.outbox import MAX_TOPICS
from bridges.store.topic_link import RENEW_S
from bridges.workqueue import NewItem, QueueSettings
from bridges.workqueue.cli import queue as group
from bridges.workqueue.items import DEFAULT_PRIORITY, MAX_PAYLOAD_BYTES, MAX_PRIORITY
from bridges.workqueue.merging_core import ReserveJob
from bridges.workqueue.mongodb import PROBES
from bridges.workqueue.mongodb_items import PURGE_COUNT
from bridges.workqueue.mongodb_schedules import MAX_DOCUMENT_PAYLOAD
from bridges.workqueue.queue_store import POLL_S
from bridges.workqueue.sql_operations import COUNT_LIMIT, SCAN_LIMIT
from oncewire.client.publisher import SESSION_TIMEOUT_S
from oncewire.store.open_store import LONGEST_SLEEP_S
from oncewire.store.owners import LEASE_S
from oncewire.store.rules_core import MAX_COUNT, MAX_NAME
from oncewire.store.sqlite import MAX_BYTES
from tests.docs.guarantee_tables import section, table
from tests.workqueue.queue_world import Database

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "docs" / name for name in ("workqueue.md", "workqueue-reference.md")]
PAGE = "\n".join(path.read_text(encoding="utf-8") for path in PAGES)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def test_every_statement_of_the_notes_has_its_place_and_its_test() -> None:
    head, *rows = table(section(PAGE, "Queues on MongoDB, statement by statement"))
    assert head == ("the notes say", "here", "shown by")
    assert len(rows) >= 20
    assert [row[0] for row in rows if not TEST.search(row[2])] == []


def test_the_page_has_every_command() -> None:
    shown = {row[0].strip("`").split()[0] for row in table(section(PAGE, "In a shell"))[1:]}
    assert shown == set(group.commands)


def test_the_page_has_the_figures_of_the_code() -> None:
    settings = QueueSettings()
    assert all(f"`{field.name}`" in PAGE for field in fields(settings))
    limits = {row[0]: row[1] for row in table(section(PAGE, "Limits"))[1:]}
    assert f"{settings.max_payload_bytes >> 20} MiB, at most {MAX_PAYLOAD_BYTES >> 20} MiB" in limits["payload, result"]
    assert limits["payload, result"].endswith(f"in a MongoDB store {MAX_DOCUMENT_PAYLOAD >> 20} MiB")
    assert f"deletes up to {PURGE_COUNT} expired documents" in PAGE
    assert f"tries it with {PROBES * PROBES} increments" in PAGE
    assert limits["items of one call"] == str(MAX_COUNT)
    assert limits["names of queues, keys, schedules"].startswith(f"{MAX_NAME} ")
    assert limits["priority"].startswith(f"0 to {MAX_PRIORITY}; {DEFAULT_PRIORITY} ")
    assert limits["retries"].endswith(f": {settings.max_retries}")
    assert f"`backoff_s` {settings.backoff_s:g} s" in limits["back-off"]
    assert f"`backoff_max_s` {settings.backoff_max_s / 3600:g} h" in limits["back-off"]
    assert f"`history_s` {settings.history_s / 86400:g} days" in limits["history"]
    assert f"up to {SCAN_LIMIT} entries" in PAGE
    assert f"stop counting at {COUNT_LIMIT:,}" in PAGE
    assert f"or {LONGEST_SLEEP_S:g} s;" in PAGE
    assert f"asks it every {POLL_S:g} s for each queue" in PAGE
    assert f"a lease in the store: {LEASE_S:g} s, renewed every {RENEW_S:g} s," in PAGE
    assert f"within {LEASE_S:g} s" in PAGE
    assert f"({MAX_BYTES >> 30} GiB)" in PAGE
    assert limits["topics of an outbox"] == str(MAX_TOPICS)
    assert f"({SESSION_TIMEOUT_S // 3600} h)" in PAGE


@pytest.mark.parametrize("database", [pytest.param("postgresql", marks=pytest.mark.needs("postgresql"))], indirect=True)
def test_a_postgresql_store_has_the_servers_clock(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 0.0)  # a machine whose clock is wrong
    store = database.open()
    (now,), _ = store.transact([lambda do: do.now])
    assert now > 1_700_000_000
    items = [NewItem(b"now"), NewItem(b"later", delay=3600.0)]
    store.transact([lambda do: do.configure("work"), lambda do: do.push("work", items)])
    ((taken,),), _ = store.transact([ReserveJob("work", 2, 30.0)])
    assert (taken.payload, now <= taken.due <= taken.until - 30.0) == (b"now", True)
    store.close()
