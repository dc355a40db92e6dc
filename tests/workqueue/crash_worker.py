"""A worker that is killed (SIGKILL) at one place: ``crash_worker.py KIND ADDRESS PLACE``.

PLACE is "STATEMENT before" or "STATEMENT after": the number of the statement, or "work" for the commit of the first
item's work. With any other number it is not killed.

Moves items from `in` to `out` in two ways, both with an effect in the application's own table in the same transaction:
items that begin with "m" by `move`, all others by `commit` and `push`. Ends when `in` is empty.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from functools import partial

from bridges.workqueue import Commit, NewItem, Operations, Taken, Target
from bridges.workqueue.store import Row, Store
from tests.workqueue.queue_world import Database

TIMEOUT_S = 0.2
"""Of a reservation: the next worker takes over soon."""


def killed_at(store: Store, place: str) -> None:
    """Count the store's statements from now on, and die at this place."""
    plain = store.execute  # type: ignore[attr-defined]
    number, _, side = place.partition(" ")
    statements = commits = 0

    def execute(statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        nonlocal statements, commits
        statements += 1
        commits += statement == "COMMIT"
        # The first commit is of the reservation, the second one of the work.
        is_here = statement == "COMMIT" and commits == 2 if number == "work" else statements == int(number)
        if is_here and side == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        rows: list[Row] = plain(statement, parameters)
        if is_here:
            os.kill(os.getpid(), signal.SIGKILL)
        return rows

    store.execute = store.write = execute  # type: ignore[attr-defined]


def work(do: Operations, taken: Taken) -> None:
    """One item's transaction."""
    name = taken.payload.decode()
    do.execute("INSERT INTO effects VALUES (?, ?)", (name, os.getpid()))
    if name.startswith("m"):
        do.move(taken.handle, [Target("out", taken.payload.upper())])
    else:
        do.push("out", [NewItem(taken.payload.upper())])
        do.commit([Commit(taken.handle, result=b"done")])


def main(kind: str, address: str, place: str) -> None:
    """Work until nothing is left."""
    store = Database(kind, address).open()
    killed_at(store, place)
    while True:
        (found, due), _ = store.transact([lambda do: do.reserve("in", 1, TIMEOUT_S), lambda do: do.next_due("in")])
        if found:
            store.transact([partial(work, taken=found[0])])
        elif due is None:
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
