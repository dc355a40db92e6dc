"""What has become of a delivery, in one sentence: from the records that routers have of it."""

from __future__ import annotations

from collections.abc import Sequence

from topology.inspector.rows_core import Row
from topology.inspector.schema.states import at_subscription, word_of

NAMED = 8
"""Subscriptions named in an answer; the count is always given."""
IN_DOUBT = "in-doubt"


def answer_of(found: Sequence[Row]) -> Row:
    """State, sentence and who has not accepted it yet.

    Args:
        found: records of one delivery, at all routers that were asked.
    """
    if not found:
        return _answer("unknown", "No router has a record of it: it is settled everywhere, or was never here.")
    if len({row.get("network_tag") for row in found}) > 1:
        return _answer("unknown", "Several deliveries have this tag: name the publisher, or use a network tag.")
    records = [row for row in found if row.get("role") != "past"]
    if not records:
        return _answer("settled", "It is settled: no router has a record of it any more. These rules were traced.")
    ingress = next((row for row in records if row.get("role") == "ingress"), None)
    waiting = [each for row in records for each in _waiting(row)]
    if ingress is None:
        if waiting:
            text = f"{_counted(len(waiting))} not accepted it; its publisher's router is not among these."
            return _answer(IN_DOUBT, text, waiting)
        return _answer("accepted", "Done at the routers below; its publisher's router has no record of it any more.")
    total, owing = _numbers(ingress)
    state = str(ingress.get("state"))
    if owing:
        known = [{**each, "since_s": ingress.get("arrived_s")} for each in waiting]
        text = f"Not accepted yet: {owing} of {total} subscriptions {'has' if owing == 1 else 'have'} not accepted it."
        return _answer(IN_DOUBT, text, known)
    if state == IN_DOUBT:
        return _answer(state, f"All {total} subscriptions have processed it; an earlier delivery is not accepted yet.")
    if state == "settled":
        return _answer(state, "Its publisher has settled it.")
    return _answer(state, f"{word_of(state).capitalize()}; its publisher has the outcome and has not settled it yet.")


def _answer(state: str, text: str, waiting: Sequence[Row] = ()) -> Row:
    return {"state": state, "text": text, "waiting_for": list(waiting[:NAMED])}


def _waiting(record: Row) -> list[Row]:
    """Subscriptions at the router of this record that have not accepted the delivery."""
    return [
        {
            "subscription": each.get("name"),
            "router": record.get("router"),
            "since_s": None,
            "state": at_subscription(IN_DOUBT, str(each.get("detail"))),
        }
        for each in _rows(record, "local_subscriptions")
        if each.get("state") == IN_DOUBT
    ]


def _numbers(ingress: Row) -> tuple[int, int]:
    """Subscriptions that were to have it, and those of them that have not accepted it."""
    local, others = _rows(ingress, "local_subscriptions"), _rows(ingress, "other_routers")
    count = ingress.get("local_count")
    total = (count if isinstance(count, int) else len(local)) + sum(_number(each, "subscriptions") for each in others)
    owing = sum(each.get("state") == IN_DOUBT for each in local) + sum(_number(each, "owing") for each in others)
    return total, owing


def _number(row: Row, name: str) -> int:
    value = row.get(name)
    return value if isinstance(value, int) else 0


def _rows(record: Row, name: str) -> list[Row]:
    rows = record.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _counted(count: int) -> str:
    return f"{count} subscription has" if count == 1 else f"{count} subscriptions have"
