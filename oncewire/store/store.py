"""What a store does: run jobs, each with the object of a transaction, and notify other processes of changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

Row: TypeAlias = tuple[Any, ...]


class Transaction(Protocol):
    """What can be done inside one transaction of any store; all of it counts, or none (W-1).

    A feature's operations are functions of it, or methods of a protocol that extends it.
    """

    now: float
    """Time of the transaction by the store's clock (W-15)."""
    touched: set[str]
    """Names whose waiters are notified when it has committed (W-13)."""

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run a statement in this transaction, the application's own tables included. Parameters are ``?``."""
        ...

    def write(self, statement: str, parameters: Sequence[object] = ()) -> None:
        """Run a statement whose rows nobody needs; its error may come with a later one or the commit."""
        ...

    def write_many(self, statement: str, rows: Sequence[Sequence[object]]) -> None:
        """Run a statement once for each row of parameters, as `write` does."""
        ...

    def check_room(self) -> None:
        """Called before anything is added: what takes away has some room even in a store that is full.

        Raises:
            StoreFull: it has reached its limit.
        """
        ...


Job: TypeAlias = Callable[[Any], Any]
"""Something to do inside a transaction, with the object that the store's contents make.

It may be run again after a rollback, so it has no effects but in the store.
"""


class Store(Protocol):
    """A database. Blocking; one thread at a time uses it."""

    def transact(self, jobs: Sequence[Job]) -> tuple[list[Any], frozenset[str]]:
        """Run the jobs in one transaction that is durable on return.

        Returns the results, and the names whose waiters should look.

        Raises:
            EdgeError: of a job, or of the store; nothing of any job has happened.
        """
        ...

    def announce(self, names: frozenset[str]) -> None:
        """Notify waiters in other processes that these have changed; the best that can be done, and no error."""
        ...

    def open_notices(self) -> int:
        """Begin to receive notices. Returns a file descriptor that is readable when there are some."""
        ...

    def read_notices(self) -> frozenset[str]:
        """Return the names that others announced; called when the descriptor is readable.

        Raises:
            StoreError: notices are received no longer; `open_notices` begins anew.
        """
        ...

    def break_off(self) -> None:
        """Break the connection, from any thread: who waits for its answer gets StoreUnreachable. No error."""
        ...

    def close(self) -> None:
        """Release the store; what was returned is durable."""
        ...
