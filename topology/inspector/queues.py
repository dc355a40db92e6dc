"""Queues and journals in the inspector: whoever keeps them implements `QueueReader`; API and page know only this."""

from __future__ import annotations

from typing import Protocol

from topology.inspector.rows_core import Row

ENDINGS = ("done", "popped", "moved", "dead", "replayed", "discarded")
"""How an item ends; docs/workqueue.md."""


NO_STORE = (404, "this router shows no queues and journals", "set queue_store to the address of the store of an edge")
"""HTTP's status, what is wrong, and what to do, where the router has no store."""


class QueueReader(Protocol):
    """A store of work queues and journals.

    A method that raises has changed nothing; `refusal_of` explains what it raised. It is found by an entry point, so
    nothing of this folder has to be imported to implement it.
    """

    async def queues(self) -> list[Row]:
        """Return each queue in numbers; the fields are those of docs/inspector-api.md."""
        ...

    async def outbox(self) -> list[Row]:
        """Return what waits in the store's outbox, by topic; the fields are those of docs/inspector-api.md."""
        ...

    async def entries(self, queue: str, ending: str | None, limit: int, cursor: str | None) -> Row:
        """Return ended items of a queue, newest first: `items` without payloads, and `next`, the cursor behind them."""
        ...

    async def entry(self, queue: str, number: int, *, with_payload: bool) -> Row:
        """Return one ended item. Its payload and result are None unless they are asked for."""
        ...

    async def replay(self, queue: str, number: int) -> Row:
        """Push the payload of an ended item as a new item; returns its number as `item`."""
        ...

    async def journals(self) -> list[Row]:
        """Return each journal in numbers; the fields are those of docs/inspector-api.md."""
        ...

    async def journal(self, name: str) -> Row:
        """Return one journal, with its readers as `readers`."""
        ...

    def refusal_of(self, error: Exception) -> tuple[int, str, str] | None:
        """Return HTTP's status for an error (400, 404, 409, 503), what is wrong and what to do; None = a fault."""
        ...

    async def close(self) -> None:
        """Release the store."""
        ...
