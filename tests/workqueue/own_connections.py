"""Connections of an application's own, of each kind that the outbox takes, with one way to use them all."""

from __future__ import annotations

import importlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any

import pytest

from bridges.workqueue import NewItem, Pushed, Reserved, outbox
from tests.workqueue.queue_world import Database


@dataclass
class Own:
    """A connection in a transaction of the application's."""

    connection: Any
    run: Callable[[str], Awaitable[object]]
    """A statement of the application."""
    commit: Callable[[], Awaitable[None]]
    rollback: Callable[[], Awaitable[None]]
    is_awaited: bool = True

    async def add(self, topic: str, *bodies: Any) -> None:
        if self.is_awaited:
            await outbox.add_async(self.connection, topic, *bodies)
        else:
            outbox.add(self.connection, topic, *bodies)

    async def push(self, queue: str, *items: NewItem) -> list[Pushed]:
        if self.is_awaited:
            return await outbox.push_async(self.connection, queue, *items)
        return outbox.push(self.connection, queue, *items)

    async def commit_item(self, item: Reserved) -> None:
        if self.is_awaited:
            await item.commit(connection=self.connection)
        else:
            outbox.commit(self.connection, item.as_commit())
            item.is_settled = True


def _sync(connection: Any, run: Callable[[str], object], commit: Any = None, rollback: Any = None) -> Own:
    def awaited(call: Callable[..., object]) -> Callable[..., Awaitable[Any]]:
        async def wait(*arguments: object) -> object:
            return call(*arguments)

        return wait

    ended = awaited(commit or connection.commit), awaited(rollback or connection.rollback)
    return Own(connection, awaited(run), *ended, is_awaited=False)


def _words(database: Database) -> dict[str, str]:
    return dict(word.split("=", 1) for word in database.address.split())


def engine_of(database: Database, driver: str, *, is_awaited: bool = False, **options: str) -> Any:
    if database.kind == "sqlite":
        url = f"sqlite:///{database.address}"
    else:
        words = _words(database)
        url = f"postgresql+{driver}://{words['user']}@/{words['dbname']}?host={words['host']}"
    if is_awaited:
        return importlib.import_module("sqlalchemy.ext.asyncio").create_async_engine(url, **options)
    return importlib.import_module("sqlalchemy").create_engine(url, **options)


@asynccontextmanager
async def by_sqlite3(database: Database) -> AsyncIterator[Own]:
    with closing(sqlite3.connect(database.address)) as connection:
        connection.row_factory = sqlite3.Row
        yield _sync(connection, connection.execute)


@asynccontextmanager
async def by_psycopg(database: Database) -> AsyncIterator[Own]:
    with importlib.import_module("psycopg").connect(database.address) as connection:
        yield _sync(connection, connection.execute)


@asynccontextmanager
async def by_psycopg_awaited(database: Database) -> AsyncIterator[Own]:
    psycopg = importlib.import_module("psycopg")
    async with await psycopg.AsyncConnection.connect(database.address, row_factory=psycopg.rows.dict_row) as connection:
        yield Own(connection, connection.execute, connection.commit, connection.rollback)


@asynccontextmanager
async def by_asyncpg(database: Database) -> AsyncIterator[Own]:
    words = _words(database)
    asyncpg = importlib.import_module("asyncpg")
    async with (
        asyncpg.create_pool(user=words["user"], database=words["dbname"], host=words["host"], min_size=1) as pool,
        pool.acquire() as connection,
    ):
        transaction = connection.transaction()
        await transaction.start()
        ended = False

        def ending(end: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
            async def once() -> None:
                nonlocal ended
                ended = True
                await end()

            return once

        yield Own(connection, connection.execute, ending(transaction.commit), ending(transaction.rollback))
        if not ended:
            await transaction.rollback()


def by_sqlalchemy(driver: str, *, is_session: bool) -> Callable[[Database], Any]:
    @asynccontextmanager
    async def opened(database: Database) -> AsyncIterator[Own]:
        sqlalchemy = importlib.import_module("sqlalchemy")
        engine = engine_of(database, driver)
        session = importlib.import_module("sqlalchemy.orm").Session
        try:
            with session(engine) if is_session else engine.connect() as connection:
                yield _sync(connection, lambda text: connection.execute(sqlalchemy.text(text)))
        finally:
            engine.dispose()

    return opened


def by_sqlalchemy_awaited(driver: str, *, is_session: bool) -> Callable[[Database], Any]:
    @asynccontextmanager
    async def opened(database: Database) -> AsyncIterator[Own]:
        sqlalchemy = importlib.import_module("sqlalchemy")
        engine = engine_of(database, driver, is_awaited=True)
        session = importlib.import_module("sqlalchemy.ext.asyncio").AsyncSession
        try:
            async with session(engine) if is_session else engine.connect() as connection:
                yield Own(
                    connection,
                    lambda text: connection.execute(sqlalchemy.text(text)),
                    connection.commit,
                    connection.rollback,
                )
        finally:
            await engine.dispose()

    return opened


ALCHEMY = pytest.mark.needs("sqlalchemy")
POSTGRES = pytest.mark.needs("postgresql")
ASYNCPG = pytest.mark.needs("asyncpg")
KINDS = [
    pytest.param("sqlite", by_sqlite3, id="sqlite3"),
    pytest.param("sqlite", by_sqlalchemy("", is_session=False), id="alchemy-sqlite", marks=ALCHEMY),
    pytest.param("sqlite", by_sqlalchemy("", is_session=True), id="session-sqlite", marks=ALCHEMY),
    pytest.param("postgresql", by_psycopg, id="psycopg", marks=POSTGRES),
    pytest.param("postgresql", by_psycopg_awaited, id="psycopg-awaited", marks=POSTGRES),
    pytest.param("postgresql", by_asyncpg, id="asyncpg", marks=[POSTGRES, ASYNCPG]),
    pytest.param(
        "postgresql", by_sqlalchemy("psycopg", is_session=False), id="alchemy-psycopg", marks=[POSTGRES, ALCHEMY]
    ),
    pytest.param(
        "postgresql", by_sqlalchemy("psycopg", is_session=True), id="session-psycopg", marks=[POSTGRES, ALCHEMY]
    ),
    pytest.param(
        "postgresql",
        by_sqlalchemy_awaited("psycopg", is_session=True),
        id="session-psycopg-awaited",
        marks=[POSTGRES, ALCHEMY],
    ),
    pytest.param(
        "postgresql",
        by_sqlalchemy_awaited("asyncpg", is_session=False),
        id="alchemy-asyncpg",
        marks=[POSTGRES, ALCHEMY, ASYNCPG],
    ),
    pytest.param(
        "postgresql",
        by_sqlalchemy_awaited("asyncpg", is_session=True),
        id="session-asyncpg",
        marks=[POSTGRES, ALCHEMY, ASYNCPG],
    ),
]
"""Kind of database, what opens the connection."""
