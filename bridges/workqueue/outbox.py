"""The outbox and queues in a transaction of the application's own, on the connection that it has (W-29).

``add(connection, topic, body)`` publishes a message if the transaction of this connection commits, and only then. The
outbox publisher of this database sends it, in whatever process it runs.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

from bridges.store import outbox
from bridges.workqueue.contents import QueueContents
from bridges.workqueue.items import Commit, Json, NewItem, Pushed
from bridges.workqueue.messages import new_message
from bridges.workqueue.store import Operations
from oncewire.client.bodies import Body
from oncewire.client.codec import CodecSource
from oncewire.store.foreign import within, within_async

__all__ = ["add", "add_async", "commit", "commit_async", "push", "push_async"]


def add(connection: object, topic: str, *bodies: Body | Json, codec: CodecSource | None = None) -> None:
    """Publish messages to a topic if the transaction of this connection commits (W-21).

    A topic's messages have the order of the commits, so transactions that add to one topic wait for each other: add
    just before the commit.

    Args:
        connection: of sqlite3, psycopg or SQLAlchemy (Connection or Session), in the store's database.
        topic: where they go.
        bodies: bytes, an ``oncewire.wire.Message``, or values that become JSON; with a codec what that encodes.
        codec: a dataclass, a model of pydantic, or a ``Codec``.

    Raises:
        InvalidRequest: there is no transaction, no store in this database, or the connection is of another kind; or a
            message cannot be published. Nothing was added, and the transaction goes on.
    """
    messages = [new_message(topic, body, codec) for body in bodies]
    within(connection, _contents(), lambda do: outbox.publish(do, messages))


async def add_async(connection: object, topic: str, *bodies: Body | Json, codec: CodecSource | None = None) -> None:
    """As `add`, also on a connection of psycopg, asyncpg or SQLAlchemy that is awaited."""
    messages = [new_message(topic, body, codec) for body in bodies]
    await within_async(connection, _contents(), lambda do: outbox.publish(do, messages))


def push(connection: object, queue: str, *items: NewItem) -> list[Pushed]:
    """Push items into a queue if the transaction of this connection commits; arguments and errors as of `add`.

    Raises:
        UnknownQueue: there is no queue of that name: make it by ``Queue.open``.
    """
    return within(connection, _contents(), partial(_push, queue=queue, items=items))


async def push_async(connection: object, queue: str, *items: NewItem) -> list[Pushed]:
    """As `push`, also on a connection that is awaited."""
    return await within_async(connection, _contents(), partial(_push, queue=queue, items=items))


def commit(connection: object, *commits: Commit) -> None:
    """End reserved items as done if the transaction of this connection commits: their effect and their end are one.

    Args:
        connection: as of `add`.
        commits: of items, ``item.as_commit()``, with their results and messages.

    Raises:
        AlreadyReassigned: an item is another worker's by now (W-5). Roll back.
    """
    within(connection, _contents(), partial(_commit, commits=commits))


async def commit_async(connection: object, *commits: Commit) -> None:
    """As `commit`, also on a connection that is awaited."""
    await within_async(connection, _contents(), partial(_commit, commits=commits))


def _push(do: Operations, queue: str, items: Sequence[NewItem]) -> list[Pushed]:
    return do.push(queue, items)


def _commit(do: Operations, commits: Sequence[Commit]) -> None:
    do.commit(commits)


def _contents() -> QueueContents:
    """One number for all that is random: work that is run again must do the same."""
    number = random.random()
    return QueueContents(chance=lambda: number)
