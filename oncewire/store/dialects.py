"""What SQLite and PostgreSQL spell differently: `/*NAME*/` stands for it in our statements."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one database spells what differs."""

    identity: str
    bytes: str
    whole: str
    """A whole number that names a row: SQLite keeps the rows in the order of such a key, without an index beside it."""
    skip_locked: str
    lock: str
    end_silent: str
    """Finds who has the row of an owner whose lease ran out, and ends a transaction that has waited for its client for
    1 s: who takes over just now takes milliseconds."""

    def spell(self, statement: str) -> str:
        """Return a statement of ours in this database's words."""
        if "/*" not in statement:
            return statement
        return (
            statement.replace("/*identity*/", self.identity)
            .replace("/*whole*/", self.whole)
            .replace("/*bytes*/", self.bytes)
            .replace("/*skip locked*/", self.skip_locked)
            .replace("/*lock*/", self.lock)
            .replace("/*end silent*/", self.end_silent)
        )


SQLITE = Dialect("INTEGER PRIMARY KEY AUTOINCREMENT", "BLOB", "INTEGER", "", "", "SELECT ?, ? WHERE 0")
POSTGRES = Dialect(
    "BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY",
    "BYTEA",
    "BIGINT",
    "FOR UPDATE SKIP LOCKED",
    "FOR UPDATE",
    # Who has locked a row alone stands in its xmax.
    """SELECT CASE WHEN wait_event = 'ClientRead' AND state_change < clock_timestamp() - interval '1 s'
        THEN pg_terminate_backend(pid) END
    FROM oncewire_owners AS owners JOIN pg_stat_activity ON backend_xid = owners.xmax
    WHERE owners.name = ? AND owners.lease <= ? AND pid <> pg_backend_pid()""",
)
