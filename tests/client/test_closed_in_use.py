"""A database that is closed while another thread uses it: an error that says what to do, and no crash of the process.

SQLite's handle, freed in the middle of a statement, ends the process, so each case is a program of its own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from oncewire.store.errors import StoreUnreachable
from oncewire.store.group_commit import GroupCommit
from oncewire.store.merging_core import unmerged
from oncewire.store.sqlite import SqliteStore

ROOT = Path(__file__).parents[2]
CHILD = (
    "import runpy, sys; sys.path.append(sys.argv.pop(1));"
    "runpy.run_module('tests.client.closing_child', run_name='__main__')"
)
"""The folder of the tests comes behind the installed packages, which are under test."""
WAIT_S = 120.0


def run(case: str, folder: Path) -> dict[str, Any]:
    """What the program of that case found out; it must end by itself."""
    command = [sys.executable, "-P", "-c", CHILD, str(ROOT), case, str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ended.returncode == 0, (ended.returncode, ended.stderr)
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_a_publisher_whose_journal_is_closed_under_it_fails_and_says_so(tmp_path: Path) -> None:
    found = run("publishing", tmp_path)
    for kind, text in found["errors"]:
        assert (kind, "close the client, and then the journal" in text) == ("JournalUnusable", True)
    assert found["received"] in (["last"], ["first", "last"]), "what failed is sent once if it was stored, else never"


def test_a_subscriber_whose_journal_is_closed_under_it_fails_and_the_next_one_gets_what_it_had(tmp_path: Path) -> None:
    found = run("accepting", tmp_path)
    first, second = found["errors"]
    assert (second[0], "close the client, and then the journal" in second[1]) == ("JournalUnusable", True)
    assert first in ([], second)
    assert found["received"] == [*(["first"] if first else []), "second", "last"], "what was stored never comes again"
    assert found["accepted"] == [True, True]


def test_a_block_whose_journal_is_closed_under_it_has_no_effect_and_its_message_comes_again(tmp_path: Path) -> None:
    found = run("in_a_block", tmp_path)
    for kind, text in found["errors"]:
        assert (kind, "close the client, and then the journal" in text) == ("JournalUnusable", True)
    assert found["received"] == ["first", "second", "last"]
    assert (found["accepted"], found["effects"]) == ([True, True], 0)


def test_a_client_leaves_a_block_behind_that_is_in_the_middle_of_a_statement(tmp_path: Path) -> None:
    found = run("left_behind", tmp_path)
    assert [kind for kind, _ in found["errors"]] == ["ClientClosed"]
    assert found["received"] == ["first", "second", "last"]
    assert (found["accepted"], found["effects"]) == ([True, True], 0)


def test_a_store_is_closed_when_the_transaction_of_its_thread_has_ended(tmp_path: Path) -> None:
    found = run("with_a_store", tmp_path)
    in_the_transaction, afterwards = found["errors"]
    assert (in_the_transaction, found["effects"]) == ([], 1)
    assert (afterwards[0], "open it again" in afterwards[1]) == ("StoreUnusable", True)


def test_an_outbox_is_closed_when_what_its_thread_stores_is_stored(tmp_path: Path) -> None:
    found = run("with_an_outbox", tmp_path)
    storing, afterwards = found["errors"]
    assert storing == [] or storing[0] == "JournalUnusable"
    assert (afterwards[0], "open it again" in afterwards[1]) == ("JournalUnusable", True)
    assert found["is_same"]


def test_a_job_for_a_store_that_was_closed_meanwhile_fails_and_does_not_wait_for_ever(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "store.db")
    group = GroupCommit(store, unmerged, lambda _names: None, lambda: None)
    assert group.submit(lambda do: do.execute("SELECT 1")).result(WAIT_S) == [(1,)]
    group.close()
    store.close()
    with pytest.raises(StoreUnreachable, match="open it again"):
        group.submit(lambda do: do.execute("SELECT 1"))
