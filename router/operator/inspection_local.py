"""Rows of what this router alone knows: who waits for whom, channels, neighbours, connections, deliveries' records."""

from __future__ import annotations

import base64
import hashlib
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from delivery_records.diagnostics.lateness import DELAYED_S, STUCK_S
from delivery_records.diagnostics.lookup import FoundDelivery, find
from delivery_records.diagnostics.waits import Holder, Reason
from delivery_records.model.tags import network_tag, own_tag, session_of
from delivery_records.model.view import Subscription
from oncewire.wire.annotations import PROPERTIES_CODE, read_section_code
from oncewire.wire.decoding import skip
from oncewire.wire.errors import DecodeError
from router.clients.listener import ClientListener
from router.clients.subscriber_link import SubscriberLink
from router.incarnations.incarnation import Incarnation
from router.operator.inspection_view import ViewTables, seconds
from topology.inspector.rows_core import Head, Row
from topology.inspector.topic_names_core import topic_facts, topic_name

UNREACHABLE = "unreachable"
"""State of a subscription that owes a delivery: no path leads to its router."""
UNDERWAY = "underway"
"""The same: the delivery has not arrived at the subscription's router."""
NAMED = 8
"""Subscriptions named for the delivery a publisher waits for; the count is always given."""
LOOKS = 50_000
"""Cursors looked at for one answer: all those of 500 publishers with 10,000 subscriptions would stop the loop for a
second. Rows behind that have their count and no names."""
PULSE_S = 0.2
"""Counts of what waits are made at most this often, however many ask."""
FIRST_BYTES = 256
"""To recognise a message, not to read it."""
MAX_NAMED_HOLDERS = 500
"""Subscriptions of one router named in a delivery's record."""


@dataclass(slots=True)
class Pulse:
    """What waits at this router, at one moment."""

    at: float
    waiting: int = 0
    """Publishers with unsettled deliveries."""
    delayed: int = 0
    stuck: int = 0
    held: int = 0
    """Subscriptions here for which nothing has moved for STUCK_S, though deliveries are held."""
    delayed_topics: Counter[str] = field(default_factory=Counter)
    """As operators name them."""


class LocalTables:
    """What one incarnation holds."""

    def __init__(self, incarnation: Incarnation, view: ViewTables, listener: ClientListener) -> None:
        """Gather nothing yet."""
        self._incarnation = incarnation
        self._core = incarnation.records
        self._view = view
        self._listener = listener
        self._pulse = Pulse(0.0)

    def pulse(self) -> Pulse:
        """What waits now, or waited a moment ago."""
        now = time.monotonic()
        if now - self._pulse.at < PULSE_S:
            return self._pulse
        pulse = self._pulse = Pulse(now)
        for publisher in self._core.figures.publishers():
            if publisher.since is None:
                continue
            pulse.waiting += 1
            if now - publisher.since > DELAYED_S:
                pulse.delayed += 1
                pulse.delayed_topics[topic_name(publisher.topic)] += 1
                pulse.stuck += now - publisher.since > STUCK_S
        pulse.held = sum(each.held > 0 and now - each.held_since > STUCK_S for each in self._core.figures.subscribers())
        return pulse

    # --- tables -------------------------------------------------------------------------------------------------------

    def heads(self, table: str) -> Sequence[Head]:
        """All rows of a table, sorted."""
        if table == "waits":
            return self._wait_heads()
        if table == "channels":
            rids = [channel.rid for channel in self._core.channels.existing()]
        elif table == "neighbours":
            rids = list(self._incarnation.neighbours.links)
        else:
            assert table == "connections"
            return sorted(
                Head(each.container_id, each.peer, f"{each.container_id} {each.peer}")
                for each in self._listener.connections()
            )
        names = {rid: self._view.name_of(rid) for rid in rids}
        return sorted(Head(name, f"{rid:x}", name, "", (name, f"{rid:x}")) for rid, name in names.items())

    def rows(self, table: str, heads: Sequence[Head]) -> list[Row]:
        """The rows of these heads."""
        if table == "waits":
            return self._waits(heads)
        if table == "channels":
            return [row for head in heads if (row := self._channel(head)) is not None]
        if table == "neighbours":
            return [row for head in heads if (row := self._neighbour(head)) is not None]
        return self._connections(heads)

    def _wait_heads(self) -> Sequence[Head]:
        me = (self._core.node_id, f"{self._core.rid:x}")
        return sorted(
            # Digits in front, so that the longest wait comes first and keeps its place.
            Head(f"{each.since:020.6f}", f"{me[1]}.{each.key}", each.name, each.topic, me)
            for each in self._core.figures.publishers()
            if each.since is not None
        )

    def _waits(self, heads: Sequence[Head]) -> list[Row]:
        now = time.monotonic()
        looks = LOOKS
        rows: list[Row] = []
        for head in heads:
            figures = self._core.figures
            publisher = figures.publisher(head.key.rpartition(".")[2])
            found = None if publisher is None else figures.wait(publisher.key)
            if publisher is None or found is None:
                continue
            tag = network_tag(self._core.nonce, publisher.session, found.tag)
            names: list[Row] = []
            if found.reason is Reason.SUBSCRIPTIONS:
                holders, looked = figures.owing(publisher.key, found.number, NAMED, looks)
                looks -= looked
                names = [
                    {
                        "subscription": each.subscription.name,
                        "key": each.subscription.key,
                        "owner": self._view.owner(each.subscription).kind,
                        "ends_with": self._view.owner(each.subscription).command,
                        "router": self._view.name_of(each.subscription.record.rid),
                        "rid": f"{each.subscription.record.rid:x}",
                        "since_s": seconds(now - each.since),
                        "state": self._seen(each.state, each.subscription, tag),
                    }
                    for each in holders
                ]
            rows.append(
                {
                    "key": head.key,
                    "publisher": publisher.name,
                    **topic_facts(publisher.topic),
                    "router": self._core.node_id,
                    "rid": f"{self._core.rid:x}",
                    "phase": publisher.phase,
                    "peer": publisher.peer,
                    "user": publisher.user,
                    "unsettled": publisher.unsettled,
                    "granted": publisher.granted,
                    "bytes": publisher.bytes,
                    "credit": publisher.credit,
                    "oldest_s": seconds(now - found.since),
                    # Since this attach: the router before knew how old it is.
                    "oldest_is_older": found.number < publisher.presented,
                    "oldest_tag": tag.hex(),
                    "reason": found.reason.value,
                    "waiting_for": names,
                    "waiting_for_count": found.owing,
                }
            )
        return rows

    def holder(self, tag: bytes, key: str) -> str | None:
        """Where a delivery is on its way to a subscription; None when there is no such subscription."""
        subscription = self._core.view.subscriptions.get(key)
        if subscription is None:
            return None
        found = self._core.figures.holder(key, tag)
        return None if found is None else self._seen(found, subscription, tag)

    def _seen(self, found: Holder, subscription: Subscription, tag: bytes) -> str:
        """The same, distinguished by the paths and the entries here: who waits for a path blames no client."""
        if found is Holder.ELSEWHERE and subscription.record.rid not in self._incarnation.neighbours.routing.next_hops:
            return UNREACHABLE
        if found is Holder.HELD and not self._core.figures.has_entry(subscription.key, tag):
            return UNDERWAY
        return found.value

    def _channel(self, head: Head) -> Row | None:
        channel = self._core.channels.find(int(head.key, 16))
        if channel is None:
            return None
        return {
            "key": head.key,
            "at": self._core.node_id,
            "router": head.order,
            "rid": head.key,
            "state": channel.state.value,
            "generation": channel.generation,
            "sent": channel.sent,
            "received": channel.received,
            "waiting": channel.waiting,
        }

    def _neighbour(self, head: Head) -> Row | None:
        link = self._incarnation.neighbours.links.get(int(head.key, 16))
        if link is None:
            return None
        return {
            "key": head.key,
            "at": self._core.node_id,
            "router": head.order,
            "rid": head.key,
            "cost": link.cost,
            "bytes_in": link.bytes_in,
            "bytes_out": link.bytes_out,
            "waiting_bytes": link.output.queued_bytes,
            "dropped_frames": link.output.dropped,
        }

    def _connections(self, heads: Sequence[Head]) -> list[Row]:
        wanted = {head.key for head in heads}
        shells = self._incarnation.driver.links
        rows: dict[str, Row] = {}
        for connection in self._listener.connections():
            if connection.peer in wanted:
                numbers = connection.link_numbers
                publishers = sum(not isinstance(shells.get(number), SubscriberLink) for number in numbers)
                rows[connection.peer] = {
                    "key": connection.peer,
                    "container_id": connection.container_id,
                    "peer": connection.peer,
                    "vhost": connection.policy.vhost,
                    "user": connection.policy.user or "",
                    "router": self._core.node_id,
                    "links": len(numbers),
                    "publishers": publishers,
                    "subscriptions": len(numbers) - publishers,
                }
        return [rows[head.key] for head in heads if head.key in rows]

    # --- deliveries ---------------------------------------------------------------------------------------------------

    def deliveries(self, tag: bytes, publisher: str, with_bodies: bool) -> list[Row]:
        """Records of the deliveries of this tag, and what is traced of those that have none any more."""
        now = time.monotonic()
        here = find(self._core.turn, self._core.endpoints, tag, publisher)
        rows = [self._record(found, with_bodies, now) for found in here]
        known = {row["network_tag"] for row in rows}
        steps = self._core.trace.steps_of(tag)
        return rows + [
            self._past(past, now)
            for past in dict.fromkeys(step.tag for step in steps)
            if past.hex() not in known and (not publisher or self._owner_of(past) == publisher)
        ]

    def _owner_of(self, tag: bytes) -> str:
        view = self._core.view
        owner = view.publishers.get(view.sessions.get(session_of(tag, self._core.nonce), ""))
        return "" if owner is None else owner.name

    def _record(self, found: FoundDelivery, with_bodies: bool, now: float) -> Row:
        bare = _bare(found.message, found.message_format)
        since = None if found.arrived is None else seconds(now - found.arrived)
        return {
            "role": "ingress" if found.is_ingress else "egress",
            **self._who(),
            "size": len(bare) if bare else None,
            "digest": hashlib.sha256(bare).hexdigest() if bare else None,
            "first_bytes": base64.b64encode(bare[:FIRST_BYTES]).decode() if bare and with_bodies else None,
            "publisher": found.publisher,
            "publisher_tag": None if found.publisher_tag is None else found.publisher_tag.hex(),
            "network_tag": found.network_tag.hex(),
            **topic_facts(found.topic),
            "session": found.session,
            "number": None if found.number < 0 else found.number,
            "state": found.state,
            "local_subscriptions": [
                {
                    "name": each.name,
                    "state": each.state,
                    "detail": each.detail or None,
                    "since_s": since if each.owed else None,
                }
                for each in found.local[:MAX_NAMED_HOLDERS]
            ],
            "local_count": len(found.local),
            "other_routers": [
                {
                    "router": self._view.name_of(each.rid),
                    "rid": f"{each.rid:x}",
                    "state": Holder.IN_DOUBT.value if each.owing else "rejected" if each.rejected else "accepted",
                    "subscriptions": each.subscriptions,
                    "owing": each.owing,
                    "since_s": since if each.owing else None,
                }
                for each in found.others
            ],
            "arrived_s": since,
            **self._rules(found.network_tag, now),
        }

    def _past(self, tag: bytes, now: float) -> Row:
        """What is traced of a delivery that is settled and forgotten here."""
        own = own_tag(tag)
        return {
            "role": "past",
            **self._who(),
            "size": None,
            "digest": None,
            "first_bytes": None,
            "publisher": self._owner_of(tag),
            "publisher_tag": None if own is None else own.hex(),
            "network_tag": tag.hex(),
            **topic_facts(""),
            "session": session_of(tag, self._core.nonce),
            "number": None,
            "state": "settled",
            "local_subscriptions": [],
            "local_count": 0,
            "other_routers": [],
            "arrived_s": None,
            **self._rules(tag, now),
        }

    def _who(self) -> Row:
        return {"router": self._core.node_id, "rid": f"{self._core.rid:x}"}

    def _rules(self, tag: bytes, now: float) -> Row:
        steps = self._core.trace.steps_of(tag)
        off = None
        if not self._core.trace.is_on and not steps:
            off = (
                "rules are not traced, for that costs time with each message; for a while it can be switched on: "
                f"oncewire manage call router {self._core.node_id} trace on=true"
            )
        return {
            "rules": [{"rule": step.rule, "text": step.text, "at_s": seconds(now - step.at)} for step in steps],
            "rules_off": off,
        }


def _bare(message: bytes, message_format: int) -> bytes:
    """The bare message (AMQP 1.0 section 3.2), which no router touches; other formats are taken whole."""
    if message_format:
        return message
    at = 0
    try:
        while at < len(message):
            code, value = read_section_code(message, at)
            if code >= PROPERTIES_CODE:
                break
            at = skip(message, value, len(message))
    except DecodeError:
        return message
    return message[at:]
