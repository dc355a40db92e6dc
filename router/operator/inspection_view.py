"""Rows of what every router knows: routers, links, topics, subscriptions, publishers.

Heads and counts are kept until etcd or the links say something new; rows are made when they are asked for.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from delivery_records.diagnostics.figures import PublisherFigures, SubscriberFigures
from delivery_records.model.terms import timeout_of
from delivery_records.model.timers import Timer
from delivery_records.model.topics import is_pattern, matches, split_vhost
from delivery_records.model.view import Publisher, Router, Subscription
from router.incarnations.incarnation import Incarnation
from router.settings.topic_rules import described
from topology.inspector.owners_core import Owner, owner_of
from topology.inspector.rows_core import Head, Row
from topology.inspector.topic_names_core import topic_facts, topic_name, topic_named

GONE = "gone"
"""Where an attachment is whose router has died."""
_T = TypeVar("_T")


class Kept(Generic[_T]):
    """A value that is made anew when its version has moved."""

    def __init__(self, version: Callable[[], object], make: Callable[[], _T]) -> None:
        self._version = version
        self._make = make
        self._made: tuple[object, _T] | None = None

    def get(self) -> _T:
        """The value of now."""
        version = self._version()
        if self._made is None or self._made[0] != version:
            self._made = (version, self._make())
        return self._made[1]


class ViewTables:
    """The network as one incarnation knows it."""

    def __init__(self, incarnation: Incarnation) -> None:
        """Gather nothing yet."""
        self.core = incarnation.records
        self._view = self.core.view
        self._routing = incarnation.neighbours.routing
        of_view: Callable[[], object] = lambda: self._view.applied  # noqa: E731
        of_links: Callable[[], object] = lambda: (self._view.applied, self._routing.changes)  # noqa: E731
        self._names = Kept(of_view, self._make_names)
        self._counts = Kept(of_view, self._make_counts)
        self._topic_counts = Kept(
            of_view,
            lambda: Counter(s.record.topic for s in self._view.subscriptions.values() if not s.record.member_of),
        )
        self._patterns = Kept(of_view, lambda: [topic for topic in self._topic_counts.get() if is_pattern(topic)])
        self._topic_rows: Kept[dict[str, Row]] = Kept(of_view, dict)
        self._router_rows = Kept(of_links, self._make_routers)
        # Not of the whole view: of 10,000 links nothing changes with a subscription.
        of_mesh: Callable[[], object] = lambda: (self._routing.changes, frozenset(self._view.routers))  # noqa: E731
        self._link_rows = Kept(of_mesh, self._make_links)
        self._heads: dict[str, Kept[Sequence[Head]]] = {
            "routers": Kept(of_links, self._router_heads),
            "links": Kept(of_mesh, self._link_heads),
            "topics": Kept(of_view, self._topic_heads),
            "subscriptions": Kept(of_view, lambda: _sorted(self.head_of(s) for s in self._view.subscriptions.values())),
            "publishers": Kept(of_view, lambda: _sorted(self.head_of(p) for p in self._view.publishers.values())),
        }

    # --- heads --------------------------------------------------------------------------------------------------------

    def heads(self, table: str) -> Sequence[Head]:
        """All rows of a table, sorted; the same object until something changes."""
        return self._heads[table].get()

    def head(self, table: str, key: str) -> Head | None:
        """One row's head."""
        if table == "subscriptions":
            subscription = self._view.subscriptions.get(key)
            return None if subscription is None else self.head_of(subscription)
        if table == "publishers":
            publisher = self._view.publishers.get(key)
            return None if publisher is None else self.head_of(publisher)
        assert table == "topics"
        topic = topic_named(key)
        known = topic in self._view.publishers_of or topic in self._topic_counts.get()
        return topic_head(topic) if known else None

    def head_of(self, attachment: Subscription | Publisher) -> Head:
        """The head of a subscription or publisher."""
        record = attachment.record
        name = attachment.name
        return Head(name, attachment.key, name, record.topic, (self.name_of(record.rid), f"{record.rid:x}"))

    def name_of(self, rid: int) -> str:
        """A router's id; `gone` when it is in etcd no more; empty of a shared subscription, which is at none."""
        return self._names.get().get(rid, GONE) if rid else ""

    def _topic_heads(self) -> Sequence[Head]:
        return _sorted(topic_head(each) for each in self._topic_counts.get().keys() | self._view.publishers_of.keys())

    def _router_heads(self) -> Sequence[Head]:
        return _sorted(
            Head(r.record.node_id, f"{rid:x}", r.record.node_id, "", (r.record.node_id, f"{rid:x}"))
            for rid, r in self._view.routers.items()
        )

    def _link_heads(self) -> Sequence[Head]:
        return _sorted(
            Head(
                f"{row['from']} {row['to']}",
                key,
                f"{row['from']} {row['to']}",
                "",
                (str(row["from"]), str(row["from_rid"]), str(row["to"]), str(row["to_rid"])),
            )
            for key, row in self._link_rows.get().items()
        )

    # --- rows ---------------------------------------------------------------------------------------------------------

    def row(self, table: str, key: str) -> Row | None:
        """One row, None when it has gone."""
        if table == "subscriptions":
            subscription = self._view.subscriptions.get(key)
            return None if subscription is None else self._subscription(subscription)
        if table == "publishers":
            publisher = self._view.publishers.get(key)
            return None if publisher is None else self._publisher(publisher)
        if table == "topics":
            return self._topic(key)
        return (self._router_rows if table == "routers" else self._link_rows).get().get(key)

    def _make_names(self) -> Mapping[int, str]:
        return {rid: router.record.node_id for rid, router in self._view.routers.items()}

    def _make_counts(self) -> tuple[Counter[int], Counter[int]]:
        return (
            Counter(s.record.rid for s in self._view.subscriptions.values()),
            Counter(p.record.rid for p in self._view.publishers.values()),
        )

    def _make_routers(self) -> dict[str, Row]:
        return {f"{rid:x}": self._router(rid, router) for rid, router in self._view.routers.items()}

    def _router(self, rid: int, router: Router) -> Row:
        record = router.record
        subscriptions, publishers = self._counts.get()
        is_self = rid == self.core.rid
        hop = self._routing.paths.next_hops.get(rid)
        return {
            "key": f"{rid:x}",
            "id": record.node_id,
            "amqp": record.amqp,
            "http": record.http,
            "version": record.version,
            "group": record.group,
            "state": "leaving" if record.leaving else "draining" if record.draining else "serving",
            "is_self": is_self,
            "subscriptions": subscriptions[rid],
            "publishers": publishers[rid],
            "next_hop": None if hop is None else self._name_in_links(hop),
            "distance": 0 if is_self else self._routing.paths.distances.get(rid),
        }

    def _name_in_links(self, rid: int) -> str:
        return self._names.get().get(rid) or self._routing.names().get(rid, f"{rid:x}")

    def _make_links(self) -> dict[str, Row]:
        announced = self._routing.announced()
        names = {**self._routing.names(), **self._names.get()}
        distances = {**self._routing.paths.distances, self.core.rid: 0}
        hops = self._routing.paths.next_hops
        found: dict[str, Row] = {}
        for origin, links in announced.items():
            for peer, cost in links.items():
                is_up = origin in announced.get(peer, ())
                is_best = (
                    is_up
                    and origin in distances
                    and distances[origin] + cost == distances.get(peer)
                    and hops.get(peer) == (peer if origin == self.core.rid else hops.get(origin))
                )
                key = f"{origin:x}>{peer:x}"
                found[key] = {
                    "key": key,
                    "from": names.get(origin, f"{origin:x}"),
                    "to": names.get(peer, f"{peer:x}"),
                    "from_rid": f"{origin:x}",
                    "to_rid": f"{peer:x}",
                    "cost": cost,
                    "state": "up" if is_up else "one-way",
                    "on_best_path": is_best,
                }
        return found

    def _topic(self, key: str) -> Row | None:
        rows = self._topic_rows.get()
        row = rows.get(key)
        if row is None:
            if self.head("topics", key) is None:
                return None
            row = rows[key] = self._make_topic(topic_named(key))
        policy = "" if row["is_pattern"] else described(self.core.turn.policy_of(topic_named(key)))
        return {**row, "policy": policy}  # rules change without the view

    def _make_topic(self, name: str) -> Row:
        subscriptions, publishers = self._topic_counts.get(), self._view.publishers_of
        vhost, bare = split_vhost(name)
        if is_pattern(name):
            subscribed = subscriptions[name]
            published = sum(count for topic, count in publishers.items() if matches(name, topic))
        else:
            subscribed = subscriptions[name] + sum(
                subscriptions[pattern] for pattern in self._patterns.get() if matches(pattern, name)
            )
            published = publishers.get(name, 0)
        return {
            "key": topic_name(name),
            "name": bare,
            "vhost": vhost,
            "is_pattern": is_pattern(name),
            "publishers": published,
            "subscriptions": subscribed,
        }

    # --- attachments --------------------------------------------------------------------------------------------------

    def owner(self, subscription: Subscription) -> Owner:
        """Who owns it, and what ends it."""
        record = subscription.record
        shared = self._view.subscriptions.get(record.member_of)
        topic = split_vhost(record.topic)[1]
        return owner_of(subscription.name, topic, "" if shared is None else shared.name)

    def _subscription(self, subscription: Subscription) -> Row:
        core, record = self.core, subscription.record
        figures = core.figures.subscriber(subscription.key)
        state = self._state(record.rid, figures)
        members = len(self._view.members_of.get(subscription.key, ())) if record.shared else None
        if members is not None:
            state = "shared" if members else "detached"
        shared = self._view.subscriptions.get(record.member_of, subscription)
        row: Row = {
            "key": subscription.key,
            "name": subscription.name,
            **topic_facts(record.topic),
            "router": self.name_of(record.rid),
            "rid": f"{record.rid:x}",
            "epoch": subscription.epoch,
            "members": members,
            "member_of": shared.name if record.member_of else "",
            "grouped": shared.record.grouped,
            "owner": self.owner(subscription).kind,
            # Text, for JavaScript's numbers end at 2^53.
            "incarnation": str(core.turn.reported_incarnation(shared.created)),
            "mode": record.mode.value,
            "timeout_s": timeout_of(subscription),
            "peer": record.peer,
            "user": record.user,
            "filter": record.filter,
            "stores": record.stores is True,
            "state": state or "attached",
            "expires_in_s": None if state is None else self._expires_in("subs", subscription.key),
            "confirmed": None,
            "joins_behind": [],
            "lag": None,
            "former": None,
            "held": None,
            "credit": None,
        }
        if figures is not None:
            row |= self._numbers_of(figures)
        return row

    def _numbers_of(self, figures: SubscriberFigures) -> Row:
        numbers: Row = {
            "confirmed": figures.confirmed,
            "lag": figures.unsettled,
            "former": self.core.figures.former(figures.key),
            "held": figures.held,
            "credit": figures.credit,
        }
        if not figures.is_proven:
            numbers["state"] = "provisional"
        if not figures.confirmed:
            numbers["joins_behind"] = [self.name_of(rid) for rid in self.core.barrier.missing(figures.created)]
        return numbers

    def _publisher(self, publisher: Publisher) -> Row:
        core, record = self.core, publisher.record
        figures = core.figures.publisher(publisher.key)
        state = self._state(record.rid, figures)
        row: Row = {
            "key": publisher.key,
            "name": publisher.name,
            **topic_facts(record.topic),
            "router": self.name_of(record.rid),
            "rid": f"{record.rid:x}",
            "epoch": publisher.epoch,
            "session": publisher.session,
            "peer": record.peer,
            "user": record.user,
            "state": state or "suspended",
            "expires_in_s": self._expires_in("pubs", publisher.key),
            "unsettled": None,
            "granted": None,
            "unreceived": None,
            "reported": None,
            "bytes": None,
            "credit": None,
        }
        if figures is not None:
            row |= {
                "state": figures.phase,
                "unsettled": figures.unsettled,
                "granted": figures.granted,
                "unreceived": figures.unreceived,
                "reported": figures.reported,
                "bytes": figures.bytes,
                "credit": figures.credit,
            }
        elif state == "detached":
            row["state"] = "suspended"
        return row

    def _state(self, rid: int, figures: SubscriberFigures | PublisherFigures | None) -> str | None:
        """Where an attachment is; None when its link is here."""
        if figures is not None:
            return None
        if rid == self.core.rid:
            return "detached"
        return "elsewhere" if rid in self._view.routers else "orphaned"

    def _expires_in(self, kind: str, key: str) -> float | None:
        deadline = self.core.timers.deadline(Timer.EXPIRY, f"{kind}/{key}")
        return None if deadline is None else seconds(deadline - time.monotonic())


def topic_head(topic: str) -> Head:
    """The head of a topic."""
    name = topic_name(topic)
    return Head(name, name, name, topic)


def seconds(value: float) -> float:
    """A duration for people and JSON: not negative, in milliseconds."""
    return round(max(0.0, value), 3)


def _sorted(heads: Iterable[Head]) -> Sequence[Head]:
    return tuple(sorted(heads))
