"""Messages that expire (E-10): how long simulated ones live, and a judge of what routers let expire."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from chaos.simulator import coverage
from chaos.simulator.roles import Keeps
from chaos.simulator.routers import Router
from chaos.simulator.state import WorldState
from chaos.simulator.violation import Violation
from delivery_records.model import effects, inputs
from delivery_records.model.tags import SESSION_AT

CLOCKS = 0.7
"""A second of the fastest router's clock, which N-3 allows to be a third fast."""
_Message = tuple[int, int]


def own_ttl_ms(number: int, ttl_s: int) -> int | None:
    """The ttl of a message's header: none, less than its topic's policy allows, or more."""
    return {1: 250 * ttl_s, 2: 2000 * ttl_s}.get(number % 4)


class SimulatedTtl:
    """Reads the ttl of a message for simulated routers."""

    def __init__(self, ttl_s: int) -> None:
        """In a world with this policy."""
        self._ttl_s = ttl_s

    def read(self, message: bytes, message_format: int) -> int | None:
        """See delivery_records.model.expiry_times.ReadTtl."""
        return own_ttl_ms(int.from_bytes(message[1:5], "big"), self._ttl_s)


class ExpiryJudge:
    """Knows when each message arrived, what each link was sent, and what expired for whom."""

    def __init__(self, world: WorldState, new_again: Counter[_Message], processed: Mapping[int, set[_Message]]) -> None:
        """Nothing was sent. `new_again`: how often publishers sent a message again as a new one."""
        self._world = world
        self._new_again = new_again
        self._processed = processed
        self._arrived: dict[_Message, float] = {}
        """When it was received whole by a router for the first time."""
        self._messages: dict[bytes, _Message] = {}
        """By the network tag without its first byte."""
        self._sent: set[tuple[int, _Message]] = set()
        """(link, message)."""
        self._sent_to_members: set[_Message] = set()
        self._expired_here: set[tuple[int, _Message]] = set()
        self._forgetful: set[int] = set()
        """Subscribers that have lost their map, once at least."""
        self._expired: dict[int, set[_Message]] = {}
        """Subscriber -> what it was not sent in time; all members have what the shared subscription was not."""

    def on_turn(self, router: Router, batch: Iterable[inputs.Input]) -> None:
        """A router is about to read these."""
        assert router.records is not None
        for item in batch:
            if not isinstance(item, inputs.PublisherTransfer) or not item.tag:
                continue  # an empty tag may be used again at once
            ingress = router.records.links.get(item.link)
            session = getattr(ingress, "session", 0)
            message = item.message[0], int.from_bytes(item.message[1:5], "big")
            if session and self._world.publishers[message[0]].keeps is not Keeps.NOTHING:
                self._arrived.setdefault(message, self._world.now)
                self._messages[self._world.nonce + session.to_bytes(6, "big") + item.tag] = message

    def on_delivered(self, effect: effects.Deliver) -> None:
        """A router sends a delivery to a subscriber.

        Raises:
            Violation: it had expired on this link.
        """
        if len(effect.message) < 5:
            return
        message = effect.message[0], int.from_bytes(effect.message[1:5], "big")
        place = effect.link, message
        if place in self._expired_here and not self._new_again[message]:
            raise Violation(f"SENT: p{message[0]}/{message[1]} had expired, and is sent on link {effect.link}")
        self._sent.add(place)
        if self._world.traits.sharers:
            connection = self._world.connections.get(effect.link)
            client = None if connection is None else self._world.client_of(connection)
            if client is not None and self._world.is_member(client.index):
                self._sent_to_members.add(message)

    def on_amnesia(self, subscriber: int) -> None:
        """It has lost its map."""
        self._forgetful.add(subscriber)

    def on_expired(self, note: effects.Note) -> set[_Message]:
        """A router lets deliveries expire for a subscription. Returns them.

        Raises:
            Violation: too early, or the subscriber has them.
        """
        link, key, tags = note.fields.get("link"), note.fields["key"], note.fields["tags"]
        assert isinstance(tags, list)
        world = self._world
        members = [s.index for s in world.subscribers if world.is_member(s.index)]
        mine = [s.index for s in world.subscribers if world.subscription_key(s.index) == key]
        who = members if link is None else mine
        world.coverage[coverage.SHARED_EXPIRED] += link is None
        found: set[_Message] = set()
        for tag in tags:
            message = self._message_of(bytes.fromhex(tag), is_whole=link is not None, publisher=note.fields)
            if message is None:
                continue
            self._check_time(message)
            if isinstance(link, int):
                self._check_unsent(link, who, message)
                self._expired_here.add((link, message))
            elif message in self._sent_to_members and not self._new_again[message] and not world.restores:
                raise Violation(f"TTL: p{message[0]}/{message[1]} for the members, one of whom was sent it")
            for subscriber in who:
                self._expired.setdefault(subscriber, set()).add(message)
            found.add(message)
        return found

    def _message_of(self, tag: bytes, *, is_whole: bool, publisher: Mapping[str, object]) -> _Message | None:
        if is_whole:
            return self._messages.get(tag[SESSION_AT:])
        session = publisher["session"]
        assert isinstance(session, int)
        return self._messages.get(self._world.nonce + session.to_bytes(6, "big") + tag)

    def _check_time(self, message: _Message) -> None:
        world = self._world
        own = own_ttl_ms(message[1], world.traits.ttl_s)
        lifetime = min(world.traits.ttl_s, world.traits.ttl_s if own is None else own / 1000)
        lived = world.now - self._arrived[message]
        if lived < CLOCKS * lifetime:
            raise Violation(f"TTL: p{message[0]}/{message[1]} after {lived:g} of {lifetime:g} s")

    def _check_unsent(self, link: int, who: Iterable[int], message: _Message) -> None:
        world = self._world
        if self._new_again[message] or world.restores:
            return
        it = f"p{message[0]}/{message[1]}"
        if (link, message) in self._sent:
            raise Violation(f"TTL: {it} on link {link}, which was sent it")
        for subscriber in who:
            client = world.subscribers[subscriber]
            # N-1: an attach that is read late presents what the subscriber had when it was sent.
            is_its_link = client.connection is not None and client.connection.link == link
            keeps_map = is_its_link and client.keeps is Keeps.MAP and subscriber not in self._forgetful
            if keeps_map and world.traits.topics == 1 and message in self._processed.get(subscriber, ()):
                raise Violation(f"TTL: {it} for s{subscriber}, which has processed it")

    def expired(self, subscriber: int) -> set[_Message]:
        """What it needs not have."""
        return self._expired.get(subscriber, set())

    def has_expired(self, message: _Message) -> bool:
        """For a subscription at least."""
        return any(message in messages for messages in self._expired.values())
