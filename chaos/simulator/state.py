"""The facts of a simulated world: its parts, what is under way between them, and what can be read off that.

Everything of the simulator may look here; what happens next is decided by the parts and by `World`, which wires them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from chaos.simulator.connections import SimulatedConnection
from chaos.simulator.cores import Cores
from chaos.simulator.etcd import SimEtcd
from chaos.simulator.roles import ClientRole, Keeps, PublisherRole, SubscriberRole
from chaos.simulator.routers import Router
from chaos.simulator.traits import MORTAL_TIMEOUT_S, Traits
from delivery_records.model import inputs
from delivery_records.model.limits import (
    LARGE_AHEAD_BYTES,
    MAX_ATTEMPTS,
    MESSAGE_CHUNK_BYTES,
    PIECE,
    READ_ATTACHES,
    ROUTER_BYTES,
    WINDOW_BYTES,
    Limits,
    OnEmpty,
    TopicPolicy,
)
from delivery_records.model.messages import Msg, Sync
from delivery_records.model.patience import Patience, SlowAction
from delivery_records.model.tags import link_key, shared_key
from delivery_records.model.topics import matches
from delivery_records.model.view import Kind, SubscriptionRecord

NONCE = b"test"
TOPIC = "t"
LETTERS_TOPIC = "dead"
LETTER_MARK = b"dead letter"
"""What routers add to a message that was failed (I-3e)."""
TIMEOUT_S = 90.0
"""T_sub and T_pub that simulated clients ask for: long against a failover, short against a healing run."""
SHORT_TIMEOUT_S = 20.0
"""T_pub of those that do not live long (K-5d)."""
SESSION_END = "session-end"
"""The expiry policy that counts from the end of an AMQP session (A-9)."""
SHARE = inputs.Share("together", is_global=True)
"""The subscription that sharers share."""
PADDING = bytes(100_000)
"""Four parts of a body (I-1a), and a few dozen such messages use the credit between two routers up (T-5)."""

FIRST_BYTES = 3_000
"""A large message of a world with streams begins with so much (L-1)."""
PART_BYTES = 2_000
"""So much of it each further part has."""
LARGE_BODY = b"".join(place.to_bytes(2, "big") for place in range(4_500))
"""What a large message has behind its name: every place in it is different."""
PIECE_BYTES = 1_200
AHEAD_BYTES = 4_000
STREAM_WINDOW_BYTES = 6_000
"""C-6 of such a world: less than one large message."""

Feed: TypeAlias = Callable[[Router, list[inputs.Input]], None]
"""One turn of a router, and what its effects set under way."""
_ON_EMPTY = (None, OnEmpty.ACCEPT, OnEmpty.RELEASE, OnEmpty.REJECT)
StopRouter: TypeAlias = Callable[[int], None]
"""Crash, or fence (K-3): all memory is gone and all its connections drop."""


def _policy(traits: Traits) -> TopicPolicy:
    """I-3d: of all topics of a world."""
    plain = TopicPolicy(
        report_rejections=traits.reports,
        max_attempts=traits.attempts or MAX_ATTEMPTS,
        dead_letter=LETTERS_TOPIC if traits.letters else "",
        ttl_s=float(traits.ttl_s),
        dead_letter_wait_s=float(traits.letter_wait),
    )
    on_empty = _ON_EMPTY[traits.on_empty]
    return plain if on_empty is None else replace(plain, on_empty=on_empty, on_empty_exactly_once=on_empty)


def _window_bytes(traits: Traits) -> int:
    """C-6: some of the large bodies fill what a publisher, and what a router may hold."""
    if traits.streams:
        return STREAM_WINDOW_BYTES
    return 2 * len(PADDING) if traits.large else WINDOW_BYTES


class WorldState:
    """Routers, clients and etcd, and what is under way."""

    def __init__(self, traits: Traits, cores: Cores, window: int) -> None:
        """An empty world, in which `window` messages of a publisher may be without outcome."""
        self.now = 0.0
        self.traits = traits
        self.limits = Limits(
            window=window,
            publisher_timeout_s=TIMEOUT_S,
            policy=_policy(traits),
            window_bytes=_window_bytes(traits),
            router_bytes=3 * len(PADDING) if traits.large else ROUTER_BYTES,
            large_ahead_bytes=AHEAD_BYTES if traits.streams else LARGE_AHEAD_BYTES,
            large_piece_bytes=PIECE_BYTES if traits.streams else MESSAGE_CHUNK_BYTES,
            read_attaches=0 if traits.unread else READ_ATTACHES,
            piece=1 if traits.pieces else PIECE,
        )
        self.cores = cores
        self.etcd = SimEtcd(cores.epoch_of if traits.together else None)
        self.routers: list[Router] = []
        self.publishers: Sequence[PublisherRole] = ()
        self.subscribers: Sequence[SubscriberRole] = ()
        self.connections: dict[int, SimulatedConnection] = {}
        """Links that a router has not seen the end of."""
        self.dying: dict[int, SimulatedConnection] = {}
        """Links whose router is dead and whose client does not know it yet."""
        self.frames: dict[tuple[int, int], deque[inputs.Input]] = {}
        """(sender's rid, receiver's rid) -> what is under way."""
        self.restores = 0
        """How often etcd came back from an old backup."""
        self.nonces = 0
        """How often operators drew a new nonce (K-9)."""
        self.nonce_revision = 0
        """Since when it has that nonce (K-9)."""
        self.coverage: Counter[str] = Counter()
        self.disturbances = 0
        """Faults, publishers that attach or repeat, SYNCs: after each a delivery may come again at once (I-1, I-5)."""
        self.faults = 0
        """Faults, and routers that stopped for whatever reason."""
        self.is_without_letters = False
        """Operators have taken the dead-letter topic out of the rules of all routers (I-3e)."""
        self.is_pausing = False
        """Time passes although somebody could do something."""
        self._links: dict[str, int] = {}
        self._live: dict[int, Router] = {}
        self._not_before: dict[ClientRole, float] = {}
        """When a client that was refused tries again."""

    def usable_routers(self) -> list[Router]:
        """Routers that clients can connect to: also one that is stalled, or is cut off from etcd (A-1)."""
        return [r for r in self.routers if r.records is not None and r.drains_until is None]

    @property
    def nonce(self) -> bytes:
        """The cluster nonce of today."""
        return NONCE[:-1] + bytes([NONCE[-1] + self.nonces])

    def stay_away(self, client: ClientRole, seconds: float) -> None:
        """A client goes and does not come back before that."""
        client.disconnect()
        self.hold_off(client, seconds)

    def hold_off(self, client: ClientRole, seconds: float) -> None:
        """A client that is away does not come back before that."""
        self._not_before[client] = self.now + seconds

    @property
    def policy(self) -> str:
        """The expiry policy that clients ask for (3.5.6)."""
        return SESSION_END if self.traits.session_end else "link-detach"

    @property
    def patience(self) -> Patience | None:
        """What a policy grants each subscriber (K-5b)."""
        if not self.traits.patience_s:
            return None
        return Patience(float(self.traits.patience_s), SlowAction.EXPEL if self.traits.expels else SlowAction.DETACH)

    def is_stock_publisher(self, index: int) -> bool:
        """True for a publisher without the capability."""
        return self.publishers[index].keeps in (Keeps.NO_MAP, Keeps.OWN_MAP)

    def resumes(self, index: int) -> bool:
        """True for one that presents its map all the same (A-3b)."""
        return self.publishers[index].keeps is Keeps.OWN_MAP

    def stores(self, index: int) -> bool:
        """True for a subscriber that states that it stores messages for others (I-3g)."""
        return index < self.traits.storers and not self.is_member(index)

    def is_stock_subscriber(self, index: int) -> bool:
        """True for a subscriber without a map."""
        return self.subscribers[index].keeps is Keeps.NO_MAP

    def drops_copies(self, index: int) -> bool:
        """True for a subscriber that remembers ids (D-3)."""
        return bool(self.traits.remembers) and self.traits.shipped and self.subscribers[index].keeps is Keeps.MAP

    def is_large(self, number: int) -> bool:
        """True for what comes in parts (L-1), where routers take it so."""
        return bool(self.traits.streams) and number % self.traits.streams == 0

    def body(self, publisher: int, number: int) -> bytes:
        """A message that names its publisher and its number."""
        name = bytes([publisher]) + number.to_bytes(4, "big")
        if self.is_large(number):
            return name + LARGE_BODY
        return name + (PADDING if self.traits.large and not self.traits.streams else b"")  # else it came in parts, too

    def topic(self, publisher: int) -> str:
        """What a publisher sends to."""
        return TOPIC if self.traits.topics == 1 else f"{TOPIC}.{publisher % self.traits.topics}"

    def pattern(self) -> str:
        """What subscribers ask for at first: all topics."""
        return TOPIC if self.traits.topics == 1 else f"{TOPIC}.*"

    def letter_body(self, publisher: int, number: int) -> bytes:
        """The letter of a message."""
        return self.body(publisher, number) + LETTER_MARK

    def gets_letters(self, subscriber: int) -> bool:
        """True for a dead-letter subscriber (I-3e)."""
        return subscriber < self.traits.letters

    def asked(self, subscriber: int) -> str:
        """What a subscriber asks for at first."""
        return LETTERS_TOPIC if self.gets_letters(subscriber) else self.pattern()

    def is_letters_sync_under_way(self) -> bool:
        """A SYNC of a letters stream is on its way to another router, and a letter that it names behind it."""
        for under_way in self.frames.values():
            named: set[tuple[int, int]] = set()
            for message in (frame.message for frame in under_way if isinstance(frame, inputs.RouterFrame)):
                if isinstance(message, Sync) and message.is_letters:
                    named |= {(epoch, number) for epoch in message.subscription_epochs for number in message.numbers}
                elif isinstance(message, Msg) and any((to, message.number) in named for to in message.to or ()):
                    return True
        return False

    def is_mortal(self, publisher: int) -> bool:
        """True for one that may be killed for good."""
        return 0 < publisher <= self.traits.mortals

    def session_timeout_s(self, publisher: int) -> float:
        """T_pub that it asks for with its newest attach."""
        if self.is_mortal(publisher):
            return MORTAL_TIMEOUT_S
        is_odd = self.links_of(self.publishers[publisher]) % 2 > 0
        return SHORT_TIMEOUT_S if self.traits.short_sessions and is_odd else TIMEOUT_S

    def links_of(self, client: ClientRole) -> int:
        """How often a client has connected."""
        return self._links.get(f"{'p' if client in self.publishers else 's'}{client.index}", 0)

    def is_subscribed(self, subscriber: int, publisher: int) -> bool:
        """Whether the subscription, as etcd knows it, matches a publisher's topic."""
        held = self.etcd.keys.get((Kind.SUBSCRIPTION, self.subscription_key(subscriber)))
        record = None if held is None else held.record
        return isinstance(record, SubscriptionRecord) and matches(record.topic, self.topic(publisher))

    def has_no_session(self, index: int) -> bool:
        """True for a publisher whose session ends with its link."""
        return self.publishers[index].keeps not in (Keeps.MAP, Keeps.OWN_MAP)

    def is_at_most_once(self, index: int) -> bool:
        """True for a subscriber that is owed nothing."""
        return self.subscribers[index].keeps is Keeps.NOTHING

    def clients(self) -> list[ClientRole]:
        """All publishers and subscribers."""
        return [*self.publishers, *self.subscribers]

    def subscription_key(self, index: int) -> str:
        """The etcd key of a subscriber's attachment."""
        return self._key("s", index)

    def is_member(self, index: int) -> bool:
        """True for a subscriber that shares its subscription with others (SH-1)."""
        return index >= len(self.subscribers) - self.traits.sharers

    def declines(self, index: int) -> bool:
        """True for a member that says undeliverable-here of whatever it gets."""
        return self.traits.declines and index == len(self.subscribers) - self.traits.sharers

    def share_of(self, index: int) -> inputs.Share | None:
        """What the attach of a subscriber says of that."""
        if not self.is_member(index):
            return None
        return replace(SHARE, by_group=self.traits.groups > 0)

    def life_key(self, index: int) -> str:
        """The etcd key of what a subscriber is owed by: the shared subscription of a member."""
        return shared_key("", SHARE.name) if self.is_member(index) else self.subscription_key(index)

    def publisher_key(self, index: int) -> str:
        """The etcd key of a publisher's attachment."""
        return self._key("p", index)

    def _key(self, kind: str, index: int) -> str:
        owner = self.owner(index)
        return link_key(*self.names(kind, index), owner.vhost, owner.user)

    def names(self, kind: str, index: int) -> tuple[str, str]:
        """Container-id and link name of a client."""
        if self.traits.filters:
            kind = "p"  # so that a filter may exclude what the own container publishes
        return (kind if self.traits.same_names else f"{kind}{index}", "link")

    def owner(self, index: int) -> inputs.Owner:
        """Who a client is (A-2c), and for how long a policy lets its links be kept (K-5c)."""
        user = f"u{index}" if self.traits.same_names else ""
        return inputs.Owner(user=user, longest_s=float(self.traits.longest_s) or None)

    def client_of(self, connection: SimulatedConnection) -> ClientRole | None:
        """Whose link it is; None when the client has left it."""
        return next((client for client in self.clients() if client.connection is connection), None)

    def is_subscribers(self, link: int) -> bool:
        """True for a link that a subscriber has now."""
        return any(each.connection is not None and each.connection.link == link for each in self.subscribers)

    def router_of(self, rid: int) -> Router | None:
        """The live router with this incarnation."""
        return self._live.get(rid)

    def is_up_to_date(self, router: Router, client: ClientRole) -> bool:
        """The router is a member, and what it knows of the client's attachment is what stands in etcd."""
        held = self.etcd.keys.get(self.attachment(client))
        if router.records is None or held is None or router.rid not in self.etcd.routers:
            return False
        kind, key = self.attachment(client)
        view = router.records.view
        known = (view.subscriptions if kind is Kind.SUBSCRIPTION else view.publishers).get(key)
        return known is not None and known.epoch == held.mod_revision

    def attachment(self, client: ClientRole) -> tuple[Kind, str]:
        """Where a client's attachment stands in etcd."""
        if client in self.publishers:
            return Kind.PUBLISHER, self.publisher_key(client.index)
        return Kind.SUBSCRIPTION, self.subscription_key(client.index)

    def comes_later(self, client: ClientRole) -> bool:
        """A late joiner does not come before half of the messages have been sent."""
        if not self.traits.late_joiner or client is not self.subscribers[-1]:
            return False
        return any(2 * publisher.next < publisher.messages for publisher in self.publishers)
