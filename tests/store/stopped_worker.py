"""A process that stops in the middle of a transaction: ``stopped_worker.py ADDRESS HOW``.

It owns `it`, has the lock of that row, has written notes, and stops (SIGSTOP): behind a statement that it waited for
(HOW `waited`), behind one that it did not wait for (`sent`), or before it has sent all of one (`begun`). Continued, it
says what became of the transaction.
"""

from __future__ import annotations

import os
import signal
import sys

from oncewire.store.contents import Contents
from oncewire.store.errors import EdgeError
from oncewire.store.owners import take_over
from oncewire.store.postgres import PostgresStore
from oncewire.store.store import Transaction
from tests.store.test_stores import NOTE, NOTES


def main(address: str, how: str) -> None:
    """Own it, stop, and try to end the transaction."""
    store = PostgresStore(address, contents=Contents([NOTES]))
    (owner,), _ = store.transact([lambda do: take_over(do, "it", 0.0)])

    def stops(do: Transaction) -> None:
        owner.check(do)
        do.write_many(NOTE, [(number, "stopped") for number in range(300)])
        if how == "waited":
            do.execute("SELECT 1")
        elif how == "begun":
            store._send("SELECT 1", ())  # without the synchronisation that follows it
        os.kill(os.getpid(), signal.SIGSTOP)
        do.write(NOTE, (300, "stopped"))

    for job in (stops, owner.check):
        try:
            store.transact([job])
        except EdgeError as error:
            sys.stdout.write(f"{type(error).__name__}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
