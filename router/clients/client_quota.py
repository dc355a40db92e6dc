"""What users use of this router, and the quotas they have (router/settings/quotas.py).

They are looked at when a client opens, begins a session or attaches, never for a message. Whoever has not logged in
counts by address, as for the rate of attaches; keys without a login count together. A link that has a key keeps it:
quotas are for what is new. Nothing is kept of a user who has no connection.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import replace
from typing import Protocol, TypeAlias

from delivery_records.model.inputs import PublisherAttach, SubscriberAttach
from delivery_records.model.tags import link_key
from delivery_records.model.view import View
from oncewire.transport.admission_core import group_of
from oncewire.wire import RESOURCE_LIMIT_EXCEEDED, Connection
from oncewire.wire.vocabulary import ANONYMOUS
from router.clients.link_policy import LinkPolicy
from router.clients.link_refusal import LinkRefusal
from router.clients.session_window import SessionWindows
from router.clients.user_bytes import UserBytes, Waiter
from router.records_driver import RecordsDriver
from router.routed.half import CarriedLinks
from router.settings.config import RouterConfig
from router.settings.quotas import NO_QUOTA, QuotaRule

_Attach: TypeAlias = PublisherAttach | SubscriberAttach
_Who: TypeAlias = tuple[str, str]
"""Virtual host, and user or address."""


class QuotaClient(Waiter, Protocol):
    """A client's connection."""

    engine: Connection
    routed: CarriedLinks
    peer_host: str
    max_message_size: int
    kept_message_size: int

    @property
    def policy(self) -> LinkPolicy:
        """Knows the user."""
        ...

    @property
    def link_count(self) -> int:
        """Its links, to topics and to services."""
        ...


class Use:
    """What one user uses of this router."""

    __slots__ = ("bytes", "connections", "links", "new_keys")

    def __init__(self) -> None:
        """Nothing."""
        self.connections = 0
        self.links = 0
        """As of the last turn of each connection."""
        self.bytes = UserBytes()
        self.new_keys: dict[str, int] = {}
        """Keys that the view does not show yet, with the links whose attaches write them."""

    def keys(self, view: View, links: Container[int], owner: tuple[str, str]) -> int:
        """Keys that the user has in etcd, or is about to have; `links` of now."""
        for key, link in list(self.new_keys.items()):
            if key in view.subscriptions or key in view.publishers or link not in links:
                del self.new_keys[key]
        return view.keys_of.get(owner, 0) + len(self.new_keys)


class Uses:
    """What all users use who have a connection."""

    __slots__ = ("_of",)

    def __init__(self) -> None:
        """Nobody is connected."""
        self._of: dict[_Who, Use] = {}

    def __len__(self) -> int:
        return len(self._of)

    def find(self, who: _Who) -> Use | None:
        """What somebody uses; None: nothing."""
        return self._of.get(who)

    def enter(self, who: _Who) -> Use:
        """One more connection."""
        use = self._of.setdefault(who, Use())
        use.connections += 1
        return use

    def leave(self, who: _Who) -> None:
        """One connection less."""
        use = self._of[who]
        use.connections -= 1
        if not use.connections:
            del self._of[who]


class ClientQuota:
    """Of one connection."""

    __slots__ = ("_client", "_config", "_links", "_use", "_uses", "_who", "_windows")

    def __init__(
        self, client: QuotaClient, uses: Uses, windows: SessionWindows, config: Callable[[], RouterConfig]
    ) -> None:
        """It has not opened."""
        self._client = client
        self._uses = uses
        self._windows = windows
        self._config = config
        self._use: Use | None = None
        self._who: _Who = ("", "")
        self._links = 0

    def open(self) -> None:
        """The client has logged in and opened.

        Raises:
            LinkRefusal: its user has a quota that does not allow it.
        """
        client = self._client
        self._who = who_of(client.policy, client.peer_host)
        rule = client.policy.quota
        if rule.min_frame_size is not None and client.engine.send_frame_size < rule.min_frame_size:
            text = f"open with a max-frame-size of {rule.min_frame_size} or more"
            raise self._refusal("min_frame_size", rule.min_frame_size, text)
        use = self._uses.find(self._who)
        if rule.connections is not None and use is not None and use.connections >= rule.connections:
            text = _limited("connections of this user at this router", rule.connections)
            raise self._refusal("connections", rule.connections, text)
        self._use = self._uses.enter(self._who)
        self._share_bytes(rule)

    def refusal_of_session(self) -> LinkRefusal | None:
        """Why the session that the client has just begun is ended; None: it may stay."""
        most, client = self._client.policy.quota.sessions, self._client
        is_service = len(client.routed) > client.routed.near_count  # its router begins sessions
        if most is None or is_service or len(client.engine.sessions) <= most:
            return None
        return self._refusal("sessions", most, _limited("sessions of a connection of this user", most))

    def take_link(self) -> None:
        """A link is about to be attached, for a topic or to a service.

        Raises:
            LinkRefusal: its user may not have more links.
        """
        self.count_links()
        most, use = self._client.policy.quota.links, self._use
        if most is not None and use is not None and use.links >= most:
            raise self._refusal("links", most, _limited("links of this user at this router", most))

    def admit(self, attach: _Attach, driver: RecordsDriver) -> _Attach:
        """An attach as it is granted to this user.

        Raises:
            LinkRefusal: a quota does not allow it. The log names user and quota, the client hears the number alone.
        """
        client = self._client
        self.take_link()
        rule = client.policy.quota
        config, most = self._config(), rule.message_size
        client.max_message_size = config.max_message_size if most is None else min(config.max_message_size, most)
        client.kept_message_size = min(config.kept_message_size, client.max_message_size)
        if rule is NO_QUOTA:
            return attach
        self._share_bytes(rule)
        if isinstance(attach, SubscriberAttach) and rule.min_map is not None and 0 < attach.map_bound < rule.min_map:
            text = f"frames must hold an unsettled map of {rule.min_map} entries: raise max-frame-size"
            raise self._refusal("min_map", rule.min_map, text)
        if rule.map_entries is not None:
            attach = self._bound_map(attach, rule.map_entries, driver)
        if rule.keys is not None:
            self._take_key(attach, rule.keys, driver)
        if isinstance(attach, PublisherAttach) and rule.unsettled is not None:
            bound = min(attach.map_bound or rule.unsettled, rule.unsettled)
            attach = replace(attach, map_bound=bound)
        return replace(attach, owner=replace(attach.owner, longest_s=rule.timeout_s))

    def _bound_map(self, attach: _Attach, most: int, driver: RecordsDriver) -> _Attach:
        """A subscriber is sent no more than it may present; beyond that its map has one of each publisher (C-4)."""
        entries, beyond = len(attach.unsettled or ()), 0
        if isinstance(attach, SubscriberAttach):
            entries, beyond = max(entries, attach.entries), len(driver.records.view.publishers)
            attach = replace(attach, map_bound=max(1, min(attach.map_bound, most)) if attach.map_bound else 0)
        if entries > most + beyond:
            text = f"{_limited('entries of an unsettled map', most)}, and this one has {entries}"
            raise self._refusal("map_entries", most, text)
        return attach

    def _take_key(self, attach: _Attach, most: int, driver: RecordsDriver) -> None:
        use, owner = self._use, attach.owner
        if use is None or attach.topic is None:  # a look-up writes no new key
            return
        key = link_key(attach.container_id, attach.link_name, owner.vhost, "" if owner.adopts else owner.user)
        view = driver.records.view
        held = view.publishers if isinstance(attach, PublisherAttach) else view.subscriptions
        if key in held:
            return
        if key not in use.new_keys and use.keys(view, driver.links, (owner.vhost, owner.user)) >= most:
            text = f"{_limited('subscriptions and publishers of this user', most)}: end one, or wait until one expires"
            raise self._refusal("keys", most, text)
        use.new_keys[key] = attach.link

    def count_links(self) -> None:
        """At the end of a turn: what the connection has by now."""
        links = self._client.link_count
        if self._use is not None and links != self._links:
            self._use.links += links - self._links
            self._links = links

    def leave(self) -> None:
        """The connection has ended."""
        self._windows.unshare()
        if self._use is not None:
            self._use.links -= self._links
            self._use = None
            self._uses.leave(self._who)

    def _share_bytes(self, rule: QuotaRule) -> None:
        use = self._use
        if use is not None and (rule.bytes is not None or use.bytes.is_limited):
            use.bytes.set_limit(rule.bytes)
            self._windows.share(use.bytes, self._client)

    def _refusal(self, quota: str, most: float, text: str) -> LinkRefusal:
        user = self._client.policy.user or f"{ANONYMOUS} at {group_of(self._client.peer_host)}"
        return LinkRefusal(RESOURCE_LIMIT_EXCEEDED, text, f"quota.rules: {quota} = {most:g} for {user}")


def _limited(what: str, most: int) -> str:
    return f"{what} are limited to {most}"


def who_of(policy: LinkPolicy, host: str) -> _Who:
    """Who a connection counts for. A user's name cannot be mistaken for an address."""
    return policy.owner.vhost, group_of(host) if policy.user is None else f"user {policy.user}"
