"""A worker that is killed (SIGKILL) at one place: ``crash_worker.py KIND ADDRESS PLACE``.

PLACE: see tests/store/killing.py.

Moves items from `in` to `out` in two ways, both with an effect in the application's own table in the same transaction:
items that begin with "m" by `move`, all others by `commit` and `push`. Ends when `in` is empty.
"""

from __future__ import annotations

import os
import sys
from functools import partial

from bridges.workqueue import Commit, NewItem, Operations, Taken, Target
from tests.store.killing import killed_at
from tests.workqueue.queue_world import Database

TIMEOUT_S = 0.2
"""Of a reservation: the next worker takes over soon."""


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
