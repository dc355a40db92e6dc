"""Bring a store's tables to what this program knows: each feature has numbered migrations and a version of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from oncewire.store.errors import StoreVersionUnknown
from oncewire.store.transaction import Connection


@dataclass(frozen=True, slots=True)
class Feature:
    """The tables of one feature.

    Attributes:
        name: stands with the version in the store.
        migrations: statements, in the order of the versions. A published migration is never changed; a new one
            follows it.
        former: a table that has rows where a version wrote the feature's tables that had no number here, and that no
            migration reads; None = there was none.
    """

    name: str
    migrations: tuple[tuple[str, ...], ...]
    former: str | None = None


_VERSIONS: Final = "CREATE TABLE IF NOT EXISTS oncewire_versions (feature TEXT PRIMARY KEY, version INTEGER NOT NULL)"
_PUT_VERSION: Final = """
INSERT INTO oncewire_versions (feature, version) VALUES (?, ?)
ON CONFLICT (feature) DO UPDATE SET version = excluded.version"""
_ONE_VERSION: Final = "CREATE TABLE IF NOT EXISTS oncewire_queue_version (version INTEGER NOT NULL)"
_BEFORE: Final = ((0, 0), (0, 1), (1, 1), (2, 1), (3, 1), (4, 1))
"""Versions of `store` and `queues`, by the one version that a store of queues had before."""


def migrate(connection: Connection, name: str, features: Sequence[Feature]) -> None:
    """Run the migrations that the store lacks. The caller's transaction makes it all or nothing, and has the lock.

    Raises:
        StoreVersionUnknown: a later version wrote the store, or one that is too old.
    """
    connection.execute(_VERSIONS)
    versions: Mapping[str, int] = dict(connection.execute("SELECT feature, version FROM oncewire_versions"))
    versions = versions or _of_one_version(connection, name)
    for feature in features:
        version = versions.get(feature.name, 0)
        _check(name, version, len(feature.migrations))
        if not version and feature.former is not None:
            _check_former(connection, name, feature.former)
        for statements in feature.migrations[version:]:
            for statement in statements:
                connection.execute(statement)
        if version < len(feature.migrations):
            connection.execute(_PUT_VERSION, (feature.name, len(feature.migrations)))


def _of_one_version(connection: Connection, name: str) -> Mapping[str, int]:
    """Note what the tables of a store are that had one version for all; nothing of a new one."""
    connection.execute(_ONE_VERSION)
    rows = connection.execute("SELECT version FROM oncewire_queue_version")
    connection.execute("DROP TABLE oncewire_queue_version")
    if not rows:
        return {}
    version = int(rows[0][0])
    _check(name, version, len(_BEFORE) - 1)
    versions = dict(zip(("store", "queues"), _BEFORE[version], strict=True))
    for feature, known in versions.items():
        connection.execute(_PUT_VERSION, (feature, known))
    return versions


def _check_former(connection: Connection, name: str, table: str) -> None:
    connection.execute(f"CREATE TABLE IF NOT EXISTS {table} (version INTEGER)")
    if connection.execute(f"SELECT 1 FROM {table} LIMIT 1"):  # noqa: S608  # a name of ours
        raise StoreVersionUnknown(
            f"the store {name} cannot be used",
            f"an earlier version of Oncewire made its tables ({table} is one of them), and this one does not read them",
            "let that version process what it has begun, then use a new database, or drop these tables",
        )
    connection.execute(f"DROP TABLE {table}")


def _check(name: str, version: int, known: int) -> None:
    if version > known:
        raise StoreVersionUnknown(
            f"the store {name} cannot be used",
            f"its tables are of version {version}, and this program knows up to {known}",
            "use the newer version of Oncewire that wrote it",
        )
