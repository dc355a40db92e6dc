"""What a router remembers of etcd in its file (K-9): the newest, whole, whatever a write meets."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from pathlib import Path

import pytest

from router.incarnations.etcd_memory import EtcdMemory
from router.process.logs import EventLog
from router.settings.config import RouterConfig

NONCE = b"life"


def memory_in(folder: Path) -> EtcdMemory:
    return EtcdMemory(RouterConfig(id="r1", etcd_memory_folder=str(folder)), EventLog("r1"))


def kept_revision(folder: Path) -> int:
    (life,) = json.loads((folder / "r1.json").read_text("utf-8"))["lives"]
    revision: int = life["revision"]
    return revision


async def test_a_write_that_is_cancelled_ends_before_the_next_one_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = memory_in(tmp_path)
    memory.load()
    is_writing, may_go_on, flush = threading.Event(), threading.Event(), os.fsync

    def slow_disk(file: int) -> None:
        is_writing.set()
        may_go_on.wait(10)
        flush(file)

    monkeypatch.setattr(os, "fsync", slow_disk)
    memory.seen.note(NONCE, 7, None)
    writing = asyncio.create_task(memory.keep())
    await asyncio.to_thread(is_writing.wait, 10)
    monkeypatch.setattr(os, "fsync", flush)
    memory.seen.note(NONCE, 9, None)
    writing.cancel()
    asyncio.get_running_loop().call_later(0.1, may_go_on.set)
    await asyncio.gather(writing, return_exceptions=True)
    assert kept_revision(tmp_path) == 7
    await memory.save()
    assert kept_revision(tmp_path) == 9


async def test_memory_that_could_not_be_written_is_written_when_that_works_again(tmp_path: Path) -> None:
    folder = tmp_path / "memory"
    memory = memory_in(folder)
    memory.load()
    folder.rmdir()
    memory.seen.note(NONCE, 7, None)
    await memory.save()
    folder.mkdir()
    await memory.save()
    assert kept_revision(folder) == 7
