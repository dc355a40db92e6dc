"""The view: a router's fold of the etcd watch (rules K-2, K-4, K-7).

The view says which routers live, where each subscription and publisher is attached, and at which epoch. An epoch names
the last write to an attachment key, in the whole cluster; `created` (a subscription's incarnation) the first one. Both
are numbers in one order, which the shell makes of etcd's revisions: several writes of one revision have epochs of their
own (A-2e). What is called a revision in the record core is such a number.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import TypeAlias

from delivery_records.model.topics import matches

SESSION_NONE = 0
"""No session yet: the publisher has not proved that it is alive (A-4)."""
SESSION_IS_THIS_PUT = -1
"""The session is the revision of the very put that carries this value (A-4, c.5)."""


PROTOCOL = 1
"""Version of the rules that routers follow; neighbours compare theirs when they connect."""


class Kind(Enum):
    """Which kind of key a change is about."""

    ROUTER = "routers"
    SUBSCRIPTION = "subs"
    PUBLISHER = "pubs"


class SubscriptionMode(Enum):
    """How much a subscription's link promises (protocol c.3)."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    AT_MOST_ONCE = "at-most-once"


@dataclass(frozen=True, slots=True)
class RouterRecord:
    """One router incarnation (key `routers/<node id>.<rid in hex>`, under its lease)."""

    node_id: str
    rid: int
    """The incarnation: the id of the etcd lease the key lives under (K-1a)."""
    inter_router: str = ""
    """host:port other routers connect to; empty when it only connects out."""
    amqp: str = ""
    """URL clients use, for redirects and the inspector."""
    http: str = ""
    protocol_min: int = PROTOCOL
    protocol_max: int = PROTOCOL
    version: str = ""
    leaving: bool = False
    """Written before an orderly stop revokes the lease: no grace time is needed (K-8)."""
    draining: bool = False
    """It serves until its clients have moved, and takes no new ones: nobody is sent to it (K-8a)."""
    group: str = ""
    """What the workers behind one address have in common; empty where a router is one process."""


@dataclass(frozen=True, slots=True)
class SubscriptionRecord:
    """Value of `subs/<h>`: one subscription and where it is attached."""

    container_id: str
    link_name: str
    topic: str
    """Topic or pattern (see topics.py)."""
    rid: int
    """Router incarnation the subscriber is attached to."""
    nonce: str
    """Names the put (K-2a)."""
    timeout_s: float = 0.0
    """Granted terminus timeout T_sub in seconds."""
    expiry_policy: str = "session-end"
    mode: SubscriptionMode = SubscriptionMode.AT_LEAST_ONCE
    map_bound: int = 0
    """B_s: entries the subscriber's unsettled map may hold; 0 = no map (C-4)."""
    provisional: bool = False
    """Created by an attach that has not shown life yet (A-10)."""
    resuming: bool = False
    """The attach presented unsettled entries (the notes' 'old' link)."""
    peer: str = ""
    """The client's address, to name both sides of a steal."""
    vhost: str = ""
    user: str = ""
    """Whose link it is (A-2c); empty for the default virtual host, and without a login."""
    shared: bool = False
    """A shared subscription itself: it has no link, its members have (SH-1)."""
    grouped: bool = False
    """Of a shared subscription: messages of one group come in order (SH-6)."""
    member_of: str = ""
    """Key of the shared subscription that the link is a member of (SH-1)."""
    filter: str = ""
    """Canonical text of its filter (E-9); empty: it gets all messages of its topic."""
    stores: bool | None = None
    """It keeps messages for others, who process them later (I-3g). None: its router is of a release that cannot say."""


@dataclass(frozen=True, slots=True)
class PublisherRecord:
    """Value of `pubs/<h>`: one publisher, where it is attached, and its session."""

    container_id: str
    link_name: str
    topic: str
    rid: int
    nonce: str
    session: int = SESSION_NONE
    timeout_s: float = 0.0
    """T_pub in seconds."""
    resuming: bool = False
    peer: str = ""
    vhost: str = ""
    user: str = ""


Record: TypeAlias = RouterRecord | SubscriptionRecord | PublisherRecord


@dataclass(frozen=True, slots=True)
class Change:
    """One etcd event: `record` is None for a deletion. `key` is the last part of the etcd key; revisions are epochs."""

    kind: Kind
    key: str
    record: Record | None
    create_revision: int
    mod_revision: int


@dataclass(frozen=True, slots=True)
class Router:
    """A live router incarnation in the view."""

    record: RouterRecord
    create_revision: int


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription in the view."""

    key: str
    record: SubscriptionRecord
    epoch: int
    created: int

    @property
    def name(self) -> str:
        """`container-id/link-name`, as shown to people; `*/name` for a shared one with any container-ids."""
        return f"{self.record.container_id or '*'}/{self.record.link_name}"


@dataclass(frozen=True, slots=True)
class Publisher:
    """A publisher in the view."""

    key: str
    record: PublisherRecord
    epoch: int
    created: int

    @property
    def session(self) -> int:
        """The session's number, 0 when none has started."""
        return session_of_record(self.record, self.epoch)

    @property
    def name(self) -> str:
        """`container-id/link-name`, as shown to people."""
        return f"{self.record.container_id}/{self.record.link_name}"


def session_of_record(record: PublisherRecord, mod_revision: int) -> int:
    """The session a publisher's record stands for at that revision."""
    return mod_revision if record.session == SESSION_IS_THIS_PUT else record.session


class View:
    """What this router knows of the cluster at revision `applied`."""

    __slots__ = (
        "_map_shares",
        "_matching",
        "applied",
        "coming",
        "dead",
        "keys_of",
        "members_of",
        "publisher_epochs",
        "publishers",
        "publishers_of",
        "routers",
        "sessions",
        "subscription_epochs",
        "subscriptions",
    )

    def __init__(self) -> None:
        """Start empty, at revision 0; the first snapshot fills it (K-1)."""
        self.applied = 0
        self.routers: dict[int, Router] = {}
        self.dead: dict[int, None] = {}
        """Incarnations whose key is gone: their frames are no longer taken."""
        self.subscriptions: dict[str, Subscription] = {}
        self.publishers: dict[str, Publisher] = {}
        self.subscription_epochs: dict[int, str] = {}
        self.publisher_epochs: dict[int, str] = {}
        self.sessions: dict[int, str] = {}
        self.coming: dict[int, PublisherRecord] = {}
        """Sessions of the snapshot that is being applied; one may come behind a subscriber that has its deliveries."""
        self.publishers_of: dict[str, int] = {}
        """How many publishers each topic has (C-4)."""
        self.keys_of: dict[tuple[str, str], int] = {}
        """How many subscriptions and publishers each (virtual host, user) has, for quotas."""
        self.members_of: dict[str, dict[str, Subscription]] = {}
        """The members of each shared subscription that has some, by key, in the order of their last puts (SH-1)."""
        self._matching: dict[str, list[Subscription]] = {}
        self._map_shares: dict[str, int] = {}

    def attachment(self, path: str) -> Subscription | Publisher | None:
        """What is at `subs/<h>` or `pubs/<h>`."""
        kind, key = split_path(path)
        return (self.subscriptions if kind is Kind.SUBSCRIPTION else self.publishers).get(key)

    def apply(self, change: Change) -> None:
        """Fold one change in. The caller sets `applied` when all changes of a revision are in (K-7)."""
        if change.kind is Kind.ROUTER:
            self._apply_router(change)
        elif change.kind is Kind.SUBSCRIPTION:
            self._apply_subscription(change)
        else:
            self._apply_publisher(change)

    def publisher_of(self, session: int) -> PublisherRecord | None:
        """Whose session it is; None: nobody's, so it is over (E-6)."""
        key = self.sessions.get(session)
        return self.coming.get(session) if key is None else self.publishers[key].record

    def announce(self, entries: Iterable[Change]) -> None:
        """K-4: a snapshot has these keys at last, and its changes follow one by one."""
        self.coming = {
            session_of_record(entry.record, entry.mod_revision): entry.record
            for entry in entries
            if isinstance(entry.record, PublisherRecord)
        }

    def matching(self, topic: str) -> list[Subscription]:
        """Subscriptions whose topic or pattern matches `topic`, no members; cached until a matching key changes."""
        found = self._matching.get(topic)
        if found is None:
            owing = (s for s in self.subscriptions.values() if not s.record.member_of)
            found = [s for s in owing if matches(s.record.topic, topic)]
            if len(self._matching) >= MATCH_CACHE_TOPICS:
                self._matching.clear()
            self._matching[topic] = found
        return found

    def map_share(self, topic: str) -> int:
        """C-4: entries each publisher of `topic` may have in the smallest of its subscribers' maps; 0 = no bound.

        A subscriber's map is shared by the publishers of every topic its pattern matches. Cached until a key changes.
        """
        share = self._map_shares.get(topic)
        if share is None:
            bounded = [s.record for s in self._links_matching(topic) if s.record.map_bound]
            shares = [record.map_bound // max(1, self._publishers_matching(record.topic)) for record in bounded]
            share = max(1, min(shares)) if shares else 0
            if len(self._map_shares) >= MATCH_CACHE_TOPICS:
                self._map_shares.clear()
            self._map_shares[topic] = share
        return share

    def _links_matching(self, topic: str) -> Iterable[Subscription]:
        """Where deliveries of a topic may go: any member of a shared subscription may have to take all of them."""
        for subscription in self.matching(topic):
            yield subscription
            yield from self.members_of.get(subscription.key, {}).values()

    def _publishers_matching(self, pattern: str) -> int:
        return sum(count for topic, count in self.publishers_of.items() if matches(pattern, topic))

    def difference(self, entries: list[Change]) -> list[Change]:
        """The changes that lead from this view to a snapshot's `entries` (K-4).

        A key whose create revision differs was deleted and put again: both are reported, in that order.
        """
        changes: list[Change] = []
        present = {(entry.kind, entry.key) for entry in entries}
        for kind, key, created, epoch in self._held():
            if (kind, key) not in present:
                changes.append(Change(kind, key, None, created, epoch))
        for entry in entries:
            held = self._revisions(entry)
            if held is not None and held[0] != entry.create_revision:
                changes.append(Change(entry.kind, entry.key, None, held[0], held[1]))
            if held is None or held[1] != entry.mod_revision:
                changes.append(entry)
        # Routers first: an attachment at a router means something only once the router is known. So does a member
        # of a shared subscription, which is put again with each member, when that is known.
        return sorted(
            changes,
            key=lambda change: (
                change.kind is not Kind.ROUTER,
                not _is_shared(change),
                change.mod_revision,
                change.record is not None,
            ),
        )

    def _held(self) -> list[tuple[Kind, str, int, int]]:
        held = [
            (Kind.ROUTER, router_key(r.record), r.create_revision, r.create_revision) for r in self.routers.values()
        ]
        held += [(Kind.SUBSCRIPTION, s.key, s.created, s.epoch) for s in self.subscriptions.values()]
        held += [(Kind.PUBLISHER, p.key, p.created, p.epoch) for p in self.publishers.values()]
        return held

    def _revisions(self, entry: Change) -> tuple[int, int] | None:
        if entry.kind is Kind.ROUTER:
            assert isinstance(entry.record, RouterRecord)
            router = self.routers.get(entry.record.rid)
            return None if router is None else (router.create_revision, -1)
        found = (self.subscriptions if entry.kind is Kind.SUBSCRIPTION else self.publishers).get(entry.key)
        return None if found is None else (found.created, found.epoch)

    def _apply_router(self, change: Change) -> None:
        if change.record is None:
            rid = rid_of_key(change.key)
            self.routers.pop(rid, None)
            self.dead[rid] = None
            if len(self.dead) > DEAD_ROUTERS:
                self.dead.pop(next(iter(self.dead)))
        else:
            assert isinstance(change.record, RouterRecord)
            self.routers[change.record.rid] = Router(change.record, change.create_revision)

    def _apply_subscription(self, change: Change) -> None:
        self._map_shares.clear()
        old = self.subscriptions.pop(change.key, None)
        if old is not None:
            if not old.record.shared:
                del self.subscription_epochs[old.epoch]
            self._count_key(old.record, -1)
            self._forget_matching(old.record.topic)
            self._take_out_member(old)
        if change.record is not None:
            assert isinstance(change.record, SubscriptionRecord)
            new = Subscription(change.key, change.record, change.mod_revision, change.create_revision)
            self.subscriptions[change.key] = new
            if not new.record.shared:  # it is put together with a member, whose epoch that is
                self.subscription_epochs[change.mod_revision] = change.key
            if new.record.member_of:
                self.members_of.setdefault(new.record.member_of, {})[new.key] = new
            self._count_key(change.record, 1)
            self._forget_matching(change.record.topic)

    def _take_out_member(self, old: Subscription) -> None:
        members = self.members_of.get(old.record.member_of)
        if members is not None:
            del members[old.key]
            if not members:
                del self.members_of[old.record.member_of]

    def _apply_publisher(self, change: Change) -> None:
        old = self.publishers.pop(change.key, None)
        if old is not None:
            del self.publisher_epochs[old.epoch]
            self._count_publisher(old.record.topic, -1)
            self._count_key(old.record, -1)
            if old.session:
                del self.sessions[old.session]
        if change.record is not None:
            assert isinstance(change.record, PublisherRecord)
            new = Publisher(change.key, change.record, change.mod_revision, change.create_revision)
            # Store the number itself: a later copy of this record must not move the session with its revision.
            new = replace(new, record=replace(new.record, session=new.session))
            self.publishers[change.key] = new
            self.publisher_epochs[new.epoch] = new.key
            self._count_publisher(new.record.topic, 1)
            self._count_key(new.record, 1)
            if new.session:
                self.sessions[new.session] = new.key

    def _count_publisher(self, topic: str, step: int) -> None:
        self._map_shares.clear()
        count = self.publishers_of.get(topic, 0) + step
        if count:
            self.publishers_of[topic] = count
        else:
            del self.publishers_of[topic]

    def _count_key(self, record: SubscriptionRecord | PublisherRecord, step: int) -> None:
        owner = (record.vhost, record.user)
        count = self.keys_of.get(owner, 0) + step
        if count:
            self.keys_of[owner] = count
        else:
            del self.keys_of[owner]

    def _forget_matching(self, pattern: str) -> None:
        if "*" not in pattern and "#" not in pattern:  # it matches itself alone
            self._matching.pop(pattern, None)
            return
        for topic in [topic for topic in self._matching if matches(pattern, topic)]:
            del self._matching[topic]


def _is_shared(change: Change) -> bool:
    return isinstance(change.record, SubscriptionRecord) and change.record.shared


DEAD_ROUTERS = 10_000
"""Dead incarnations that are remembered; a frame can be late by seconds, not by 10,000 restarts."""
MATCH_CACHE_TOPICS = 10_000
"""Topics whose matching subscriptions are remembered; the cache starts over when it is full."""


def router_key(record: RouterRecord) -> str:
    """The last part of a router's etcd key: `<node id>.<rid in hex>`."""
    return f"{record.node_id}.{record.rid:x}"


def subscription_path(key: str) -> str:
    """Where a subscription stands in etcd, below the prefix."""
    return f"{Kind.SUBSCRIPTION.value}/{key}"


def publisher_path(key: str) -> str:
    """Where a publisher stands in etcd, below the prefix."""
    return f"{Kind.PUBLISHER.value}/{key}"


def split_path(path: str) -> tuple[Kind, str]:
    """The kind and the key of an attachment's path."""
    kind, _, key = path.partition("/")
    return Kind(kind), key


def rid_of_key(key: str) -> int:
    """The incarnation in a router's key; node ids may contain dots."""
    return int(key.rpartition(".")[2], 16)
