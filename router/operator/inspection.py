"""What the inspector shows of this router. Gathered when somebody asks; while somebody watches, changes are noted."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from delivery_records.model.inputs import Input, ViewChanges, ViewSnapshot
from delivery_records.model.view import Kind, PublisherRecord, SubscriptionRecord
from router.clients.listener import ClientListener
from router.incarnations.incarnation import Incarnation
from router.operator.inspection_local import LocalTables, Pulse
from router.operator.inspection_view import ViewTables, topic_head
from router.operator.rates import SERIES, Rates
from topology.inspector.rows_core import LINKS, PUBLISHERS, ROUTERS, SUBSCRIPTIONS, TOPICS, Head, Row
from topology.inspector.source import Observer, OtherRouter
from topology.keys.epochs import revision_of

_OF_VIEW = frozenset({ROUTERS, LINKS, TOPICS, SUBSCRIPTIONS, PUBLISHERS})
_NO_RATES: dict[str, Row] = {
    table: dict.fromkeys((*names, *(("accepted_p50_s", "accepted_p99_s") if table in (ROUTERS, TOPICS) else ())))
    for table, names in SERIES.items()
}
"""Of rows that only another router can measure."""
_TABLES = {Kind.SUBSCRIPTION: SUBSCRIPTIONS, Kind.PUBLISHER: PUBLISHERS}


class Inspected(Protocol):
    """The router process, as far as the inspector shows it."""

    def waiting_for(self) -> list[str]:
        """What is missing until the router accepts clients."""
        ...

    def draining(self) -> dict[str, object] | None:
        """See `Status`."""
        ...


class Inspection:
    """One router's knowledge, for the inspector: implements its `Source`."""

    def __init__(
        self, router: Inspected, listener: ClientListener, node_id: str, version: str, standalone: bool
    ) -> None:
        """Show a router that has no incarnation yet."""
        self._router = router
        self._listener = listener
        self._node_id = node_id
        self._version = version
        self._standalone = standalone
        self._started_at = time.monotonic()
        self._incarnation: Incarnation | None = None
        self._view: ViewTables | None = None
        self._local: LocalTables | None = None
        self._observer: Observer | None = None
        self._rates: Rates | None = None

    def begin(self, incarnation: Incarnation | None) -> None:
        """Show this incarnation from now on; None: there is none, and the tables are empty."""
        self._incarnation = incarnation
        self._view = self._local = None
        if self._rates is not None:
            self._rates.stop()
            self._rates = None
        if incarnation is not None:
            self._rates = Rates(incarnation)
            self._view = ViewTables(incarnation)
            self._local = LocalTables(incarnation, self._view, self._listener)
            incarnation.view_watch = self._on_view
        if self._observer is not None:
            self._observer.on_reset()

    # --- see `Source` -------------------------------------------------------------------------------------------------

    def overview(self) -> Row:
        """The router itself."""
        missing = self._router.waiting_for()
        incarnation = self._incarnation
        return {
            "router": self._node_id,
            "rid": self.rid(),
            "version": self._version,
            "uptime_s": round(time.monotonic() - self._started_at, 1),
            "ready": not missing,
            "waiting_for": missing,
            "draining": self._router.draining(),
            "lease_left_s": 0.0 if incarnation is None else round(incarnation.membership.lease_left(), 1),
            "applied": self.applied(),
            "standalone": self._standalone,
            "counts": self._counts(),
        }

    def _counts(self) -> dict[str, int]:
        counts = dict.fromkeys(("routers", "links", TOPICS, SUBSCRIPTIONS, PUBLISHERS, "windows", "joining"), 0)
        pulse = Pulse(0.0)
        if self._incarnation is not None and self._local is not None:
            core = self._incarnation.records
            pulse = self._local.pulse()
            counts |= {
                "routers": len(core.view.routers),
                "links": len(self.heads("links")),
                TOPICS: len(self.heads(TOPICS)),
                SUBSCRIPTIONS: len(core.view.subscriptions),
                PUBLISHERS: len(core.view.publishers),
                "windows": len(core.ingresses),
                "joining": core.barrier.waiting,
            }
        return counts | {
            "connections": self._listener.connection_count,
            "waiting_publishers": pulse.waiting,
            "delayed_1s": pulse.delayed,
            "stuck_10s": pulse.stuck,
            "held_10s": pulse.held,
        }

    def applied(self) -> int:
        """See `Source`."""
        return 0 if self._incarnation is None else revision_of(self._incarnation.records.view.applied)

    def heads(self, table: str) -> Sequence[Head]:
        """See `Source`."""
        if self._view is None or self._local is None:
            return ()
        return self._view.heads(table) if table in _OF_VIEW else self._local.heads(table)

    def head(self, table: str, key: str) -> Head | None:
        """See `Source`."""
        return None if self._view is None else self._view.head(table, key)

    def row(self, table: str, key: str) -> Row | None:
        """See `Source`; only tables of the view have single rows."""
        assert table in _OF_VIEW
        if self._view is None or self._local is None:
            return None
        row = self._view.row(table, key)
        if row is None:
            return None
        row = {**row, **self._rates_of(table, row)}
        if table == TOPICS:
            row["waiting"] = self._local.pulse().delayed_topics[key]
        return row

    def _rates_of(self, table: str, row: Row) -> Row:
        """The rates of a row, as far as this router measures them."""
        own = self.rid()
        is_here = {
            ROUTERS: row["key"] == own,
            LINKS: own in (row.get("from_rid"), row.get("to_rid")),
            TOPICS: True,
        }.get(table, row.get("rid") == own)
        return self._rates.of(table, str(row["key"])) if is_here and self._rates is not None else _NO_RATES[table]

    def rid(self) -> str:
        """See `Source`."""
        return "" if self._incarnation is None else f"{self._incarnation.records.rid:x}"

    def measured(self, table: str) -> set[str]:
        """See `Source`."""
        return set() if self._rates is None else self._rates.keys(table)

    def history(self, table: str, key: str, points: int) -> Row:
        """See `Source`."""
        assert self._rates is not None
        return self._rates.history(table, key, points)

    def measured_s(self) -> float:
        """See `Source`."""
        return 0.0 if self._rates is None else self._rates.age_s

    def rows(self, table: str, heads: Sequence[Head]) -> list[Row]:
        """See `Source`."""
        if self._local is None:
            return []
        if table not in _OF_VIEW:
            return self._local.rows(table, heads)
        return [row for head in heads if (row := self.row(table, head.key)) is not None]

    def deliveries(self, tag: bytes, publisher: str, with_bodies: bool) -> list[Row]:
        """See `Source`."""
        return [] if self._local is None else self._local.deliveries(tag, publisher, with_bodies)

    def holder(self, tag: bytes, key: str) -> str | None:
        """See `Source`."""
        return None if self._local is None else self._local.holder(tag, key)

    def others(self) -> list[OtherRouter]:
        """See `Source`."""
        if self._incarnation is None:
            return []
        core = self._incarnation.records
        return [
            OtherRouter(router.record.node_id, f"{rid:x}", router.record.http)
            for rid, router in core.view.routers.items()
            # Our own name under another number is a life of ours that is over.
            if rid != core.rid and router.record.node_id != self._node_id
        ]

    def observe(self, observer: Observer | None) -> None:
        """See `Source`."""
        self._observer = observer

    # --- changes ------------------------------------------------------------------------------------------------------

    def _on_view(self, inputs: Sequence[Input]) -> None:
        """What the watch says, before the record core hears of it: rows that are about to change are noted."""
        observer, view = self._observer, self._view
        if observer is None or view is None:
            return
        for each in inputs:
            if isinstance(each, ViewSnapshot):
                observer.on_reset()
            elif isinstance(each, ViewChanges):
                for change in each.changes:
                    table = _TABLES.get(change.kind)
                    if table is None:
                        continue  # routers are compared as a whole
                    before = view.head(table, change.key)
                    observer.on_changed(table, change.key, before)
                    after = change.record.topic if isinstance(change.record, _ATTACHMENTS) else ""
                    for topic in {after, before.topic if before is not None else ""} - {""}:
                        head = topic_head(topic)
                        observer.on_changed(TOPICS, head.key, head)


_ATTACHMENTS = (SubscriptionRecord, PublisherRecord)
