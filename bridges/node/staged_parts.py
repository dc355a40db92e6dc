"""What tasks have staged in an outbox, as far as it goes again: what lost, and what nobody will commit any more."""

from __future__ import annotations

from oncewire.store.store import Transaction

KEPT_STAGED_S = 24 * 3600.0
"""Rows of a write that stands alone, when its job was killed (O-13): longer than its slowest task may take."""


def staged_and_decided(do: Transaction) -> tuple[int, int]:
    """Bytes of parts that are (decided, only staged)."""
    by_kind = "SELECT manifest IS NULL, sum(bytes) FROM node_parts GROUP BY manifest IS NULL"
    found: dict[int, int] = dict(do.execute(by_kind))
    return int(found.get(0, 0)), int(found.get(1, 0))


def delete_parts(do: Transaction, condition: str, values: tuple[object, ...]) -> None:
    """Delete parts with their bodies; the condition is SQL of ours."""
    which = f"(SELECT id FROM node_parts WHERE {condition})"  # noqa: S608  # the conditions are ours
    do.execute(f"DELETE FROM node_bodies WHERE part IN {which}", values)  # noqa: S608
    do.execute(f"DELETE FROM node_part_topics WHERE part IN {which}", values)  # noqa: S608
    do.execute(f"DELETE FROM node_parts WHERE {condition}", values)  # noqa: S608


def delete_abandoned(do: Transaction, now_ms: int) -> None:
    """Delete what writes that stand alone have staged, and not committed since (O-13).

    Parts of other batches have no time: the sink's next commit deletes them.
    """
    delete_parts(
        do,
        "manifest IS NULL AND batch IN (SELECT batch FROM node_parts WHERE manifest IS NULL"
        " GROUP BY batch HAVING max(staged_ms) BETWEEN 1 AND ?)",
        (now_ms - int(KEPT_STAGED_S * 1000),),
    )
