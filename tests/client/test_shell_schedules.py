"""The client library under every order of its tasks that many seeds bring about: `tests.client.shell_world`.

Each check and lock that a task needs between an await and what depends on it is taken out again by an edit, and the
same seeds must notice.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.client.shell_world import load_shell, run_world
from tests.support.effort import rounds

SEEDS = range(rounds(60))
EDITED_SEEDS = range(150)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Links that fail are this test's daily work."""
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


def test_tasks_in_any_order_make_one_effect_of_each_message_and_use_no_number_twice(tmp_path: Path) -> None:
    """S-2, P-2, G2."""
    shell = load_shell()
    for seed in SEEDS:
        run_world(seed, tmp_path, shell)


# name -> module, text in its source, what stands there instead, a seed that noticed it once and is tried first
EDITS = {
    "S-2: a transaction of a link that ended while it waited for the journal begins": (
        "journal_writer",
        "                user._check_usable()  # S-2: it may have ended while this waited\n",
        "",
        4,
    ),
    "S-2: a transaction of a link that ended in its block commits": (
        "journal_writer",
        "                user._check_usable()  # S-2: it may have ended inside the block\n",
        "",
        26,
    ),
    "S-2: opening does not wait for the journal": (
        "journal_writer",
        "        async with self._lock:\n            yield\n",
        "        yield\n",
        25,
    ),
    "S-2: what an ended subscriber has not recorded is still written": (
        "receiving_link",
        "return self._failure is None and self._core.wants_commit",
        "return self._core.wants_commit",
        31,
    ),
    "S-2: what an ended publisher has not stored is still written": (
        "publisher_link",
        "return self._failure is None and self._core.wants_commit",
        "return self._core.wants_commit",
        124,
    ),
    "acceptances that are being recorded are reported as failed when the link ends": (
        "receiving_link",
        "for waiter in self._recording:",
        "for waiter in [*self._recording, *self._being_recorded]:",
        4,
    ),
    "a link that is being opened can be opened twice": (
        "links",
        "if key in self.by_key or key in self._opening:",
        "if key in self.by_key:",
        4,
    ),
    "a second close of a publisher does not wait for the first": (
        "link",
        "        await asyncio.wait([self._over])\n        return False\n",
        "        return False\n",
        0,
    ),
    "a subscriber whose suspend was cancelled is neither open nor closed": (
        "subscriber",
        "        try:\n            await self._journal.drain(self)\n        finally:\n",
        "        await self._journal.drain(self)\n        if True:\n",
        11,
    ),
    "a subscriber whose unsubscribe was cancelled is neither open nor closed": (
        "subscriber",
        "        finally:\n            self._fail(self._is_over())\n",
        "        except ZeroDivisionError:\n            pass\n        else:\n            self._fail(self._is_over())\n",
        2,
    ),
    "the journal is released while something is under way with it": (
        "journal_writer",
        "                async with self._last_turn():\n                    pass\n",
        "                self.journal.is_claimed = self._has_claim = False\n",
        104,
    ),
}


@pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")
@pytest.mark.parametrize("name", EDITS)
def test_a_check_or_lock_taken_out_of_the_shell_is_noticed(name: str, tmp_path: Path) -> None:
    module, text, instead, noticed = EDITS[name]
    shell = load_shell({module: (text, instead)})

    def run_all() -> None:
        for seed in (noticed, *EDITED_SEEDS):
            run_world(seed, tmp_path, shell)

    with pytest.raises(Exception):  # noqa: B017, PT011  # it fails in one of many ways
        run_all()
    gc.collect()  # here, where a journal that the edit leaves open is no fault of another test
