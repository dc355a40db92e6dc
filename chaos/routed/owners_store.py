"""The store that processes share: SQLite in memory, with the locks of PostgreSQL's transactions that were left open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bridges.journal.contents import JOURNALS
from chaos.routed.journal_store import START, JournalStore, SqlConnection
from oncewire.store.claims import CLAIMS
from oncewire.store.dialects import SQLITE
from oncewire.store.migrations import migrate
from oncewire.store.store import Row
from oncewire.store.tables import BASE

_END_SILENT = "SELECT end_silent(name) FROM oncewire_owners WHERE name = ? AND lease <= ? AND is_held(name)"
"""As PostgreSQL does it: whoever waits for its client in a transaction loses that, and what it has locked."""
_CHANGES = ("INSERT INTO oncewire_owners", "UPDATE oncewire_owners")


class Held(Exception):
    """Another transaction has the row: whoever wants it waits."""


class OwnersConnection(SqlConnection):
    """See the module.

    Attributes:
        held: names whose rows a transaction has that was left open, with what is called when it is ended.
        ended: names whose transaction was ended by another process.
        mine: names whose rows the transaction has that runs.
    """

    dialect = replace(SQLITE, end_silent=_END_SILENT)

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[str, Any] = {}
        self.mine: frozenset[str] = frozenset()
        self.ended: set[str] = set()
        self.raw.create_function("is_held", 1, lambda name: name in self.held)
        self.raw.create_function("end_silent", 1, self._end)
        migrate(self, "memory", (BASE, JOURNALS, CLAIMS))

    def _end(self, name: str) -> None:
        self.ended.add(name)
        self.held.pop(name)()

    def _wait(self, statement: str, parameters: Sequence[object]) -> None:
        if "/*lock*/" in statement or statement.strip().startswith(_CHANGES):
            taken = (self.held.keys() - self.mine) & {each for each in parameters if isinstance(each, str)}
            if taken:
                raise Held(*taken)

    def execute(self, statement: str, parameters: Sequence[object] = ()) -> list[Row]:
        """Run one statement, unless it has to wait."""
        self._wait(statement, parameters)
        return self.raw.execute(self.dialect.spell(statement), tuple(parameters)).fetchall()


class OwnersStore(JournalStore):
    """What all processes of a run share."""

    def __init__(self) -> None:
        super().__init__()
        self.connection = self._connection = OwnersConnection()

    @property
    def time(self) -> float:
        """By its clock."""
        return START + self.now

    def rows(self, query: str, *parameters: object) -> list[Row]:
        """What an operator sees."""
        return self.connection.raw.execute(query, parameters).fetchall()
