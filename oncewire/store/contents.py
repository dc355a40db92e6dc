"""What a store is used for: the seam between the databases and the features that stand in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from oncewire.store.migrations import Feature
from oncewire.store.store import Job
from oncewire.store.tables import BASE
from oncewire.store.transaction import Connection, SqlTransaction

CLOCK = "SELECT extract(epoch FROM clock_timestamp())"

Send: TypeAlias = Callable[[str, Sequence[object]], Any]
"""Sends a statement to PostgreSQL; the cursor that it returns has the rows when the round trip is over."""


class Begun:
    """A transaction that PostgreSQL has begun, and what it was sent in the round trip of its BEGIN.

    Args:
        clock: has the server's time in its first column.
        contents: of the store.
    """

    def __init__(self, clock: Any, contents: Contents) -> None:
        self._clock = clock
        self._contents = contents

    def transaction(self, connection: Connection, now: float | None) -> SqlTransaction:
        """Return what jobs get, when the replies are here; `now` = None: the server's time."""
        server_now = self._clock.fetchall()[0][0]
        return self._contents.transaction(connection, float(server_now) if now is None else now)


class Contents:
    """Says which tables a store has and what its jobs get. These have what all stores have; others extend them.

    One for each store.

    Args:
        features: with tables of their own. Several features stand side by side, in one database and one transaction.
    """

    def __init__(self, features: Sequence[Feature] = ()) -> None:
        self.features = (BASE, *features)

    def transaction(self, connection: Connection, now: float) -> SqlTransaction:
        """Return what the jobs of a transaction get."""
        return SqlTransaction(connection, now)

    def begin(self, send: Send, jobs: Sequence[Job], now_us: int | None) -> Begun:
        """Send PostgreSQL what the first jobs need, so that it costs no round trip of its own.

        Args:
            send: for statements behind the BEGIN.
            jobs: of the transaction.
            now_us: its time; None = the server's.
        """
        return Begun(send(CLOCK, ()), self)
