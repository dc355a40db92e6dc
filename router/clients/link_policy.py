"""What the operator's rules say of one client's links: whose they are, whether they may be, how long they may wait."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from delivery_records.model.inputs import Owner, Share
from delivery_records.model.patience import Patience
from delivery_records.model.tags import link_key, shared_key
from delivery_records.model.topics import in_vhost, split_vhost
from delivery_records.model.view import Subscription, View
from oncewire.wire import UNAUTHORIZED_ACCESS, Link, ReceiverLink
from oncewire.wire.vocabulary import ANONYMOUS
from router.amqp.addresses import creator_of, is_made, made_in, new_address
from router.clients.link_refusal import LinkRefusal
from router.clients.shared_subscriptions import names_of
from router.settings.access_rules import adopts, may_publish, may_subscribe, patience_of
from router.settings.config import RouterConfig
from router.settings.groups import groups_of
from router.settings.quotas import QuotaRule, quota_of
from router.settings.virtual_hosts import VhostRefused, vhost_of

MAX_SHOWN = 100
"""Characters of an address in an error; the text must fit the client's frames."""
NOTHING_MADE: Final[dict[str, None]] = {}
"""What most connections have; never changed."""


class LinkPolicy:
    """Of one connection, whose user may still log in."""

    __slots__ = ("_config", "_hostname", "_made", "mechanism", "user", "vhost")

    def __init__(self, config: Callable[[], RouterConfig]) -> None:
        """Nobody has logged in. `config` returns the settings of now."""
        self._config = config
        self.user: str | None = None
        """Who has logged in; None without a login."""
        self.mechanism = ""
        """How; empty until then."""
        self.vhost = ""
        """The virtual host of the connection, once it is open; empty: the default one."""
        self._hostname = ""
        self._made: dict[str, None] = NOTHING_MADE

    @property
    def who(self) -> dict[str, str]:
        """Whose connection it is, for the log."""
        return {"user": self.user or ""} | ({"vhost": self.vhost} if self.vhost else {})

    def enter(self, hostname: str) -> None:
        """The client has opened the connection.

        Raises:
            VhostRefused: it may not open the virtual host it asks for.
        """
        self._hostname = hostname
        self.vhost = vhost_of(self._config().vhosts, self.user or "", hostname, self.groups)

    def look_again(self) -> None:
        """The settings have changed.

        Raises:
            VhostRefused: the same open would lead to another virtual host, or to none.
        """
        now = vhost_of(self._config().vhosts, self.user or "", self._hostname, self.groups)
        if now != self.vhost:
            raise VhostRefused(f"by the setting vhosts this is a connection to {now or 'the default virtual host'}")

    def inside(self, topic: str) -> str:
        """A topic of the client as routers know it (A-2c), or an address that a router made (X-2)."""
        return in_vhost(made_in(self.vhost) if is_made(topic) else self.vhost, topic)

    def make_address(self, creator: str = "") -> str:
        """An address that nobody had before and nobody can guess, for this connection to receive from (X-2).

        Args:
            creator: key of the publisher whose dynamic target it is for.
        """
        if not self._made:
            self._made = {}
        address = new_address(creator)
        self._made[address] = None
        return address

    def forget_address(self, address: str) -> None:
        """The link that it was made for has ended."""
        self._made.pop(address, None)

    def has_made(self, address: str) -> bool:
        """Whether it was made for a link of this connection that is still there."""
        return address in self._made

    def _refuse_unless_made(self, link: Link, address: str, view: View) -> None:
        """X-2: its connection receives from it, and everybody who knows it sends to it, as long as it exists."""
        if self.has_made(address):
            return
        if not self._is_there(address, view):
            text = f"there is no address {address[:MAX_SHOWN]} (any more): whoever asked for it has disconnected"
            raise LinkRefusal("amqp:not-found", text)
        if not isinstance(link, ReceiverLink):
            text = "only the connection that this address was made for receives from it: attach with a dynamic source"
            raise LinkRefusal("amqp:resource-locked", text)

    def _is_there(self, address: str, view: View) -> bool:
        """Whether somebody receives from it, or the link is there whose dynamic target it was made for."""
        inside = self.inside(address)
        creator = view.publishers.get(creator_of(address))
        return bool(view.matching(inside)) or (creator is not None and creator.record.topic == inside)

    def key_of(self, link_name: str, container_id: str) -> str:
        """The key of a link of the client's in etcd (A-2c)."""
        owner = self.owner
        return link_key(container_id, link_name, owner.vhost, "" if owner.adopts else owner.user)

    @property
    def owner(self) -> Owner:
        """Whose links these are (A-2c)."""
        user = self.user or ""
        return Owner(self.vhost, user, adopts=adopts(self._config().adopts_links, user, self.groups))

    @property
    def groups(self) -> frozenset[str]:
        """The groups that the user is in."""
        return groups_of(self._config().groups, self.user or "")

    @property
    def quota(self) -> QuotaRule:
        """How much the user may use."""
        return quota_of(self._config().quota_rules, self.user or "", self.groups)

    def patience_for(self, topic: str | None) -> Patience | None:
        """How long a subscriber of this topic may make no progress (K-5b); None: it is not known, and not limited."""
        if topic is None:
            return None
        return patience_of(self._config().slow_rules, self.user or "", topic, self.groups, self.vhost)

    def subscribed_to(self, link_name: str, container_id: str, view: View) -> str | None:
        """The topic or pattern of a subscription that is looked up; None: there is none, as far as the view knows."""
        key = self.key_of(link_name, container_id)
        found = view.subscriptions.get(key) or self._shared(link_name, container_id, view)
        return None if found is None else split_vhost(found.record.topic)[1]

    def looked_up_share(self, link_name: str, container_id: str, view: View) -> Share | None:
        """SH-1: the shared subscription that a link's name stands for, where it has none of its own; None: no such one.

        Whoever looks one up need not say of which kind it is (2.6.3).
        """
        own = view.subscriptions.get(self.key_of(link_name, container_id))
        if own is None:
            shared = self._shared(link_name, container_id, view)
        else:
            shared = view.subscriptions.get(own.record.member_of)
        return None if shared is None else Share(shared.record.link_name, not shared.record.container_id)

    def _shared(self, link_name: str, container_id: str, view: View) -> Subscription | None:
        owner = self.owner
        user = "" if owner.adopts else owner.user
        for name in names_of(link_name):
            for container in (container_id, ""):
                found = view.subscriptions.get(shared_key(container, name, owner.vhost, user))
                if found is not None:
                    return found
        return None

    def refuse_unless_allowed(self, link: Link, address: str | None, container_id: str, view: View) -> None:
        """Look at the rules of access.

        Args:
            link: a subscriber's or a publisher's.
            address: its topic or pattern; None: it looks an existing subscription up.
            container_id: of the client.
            view: knows what is subscribed to.

        Raises:
            LinkRefusal: this user may not have it. The log names the setting, the client hears no more than needed.
        """
        if address is None:
            address = self.subscribed_to(link.name, container_id, view)
        if address is not None and is_made(address):  # X-2, also of a subscription that is looked up by its name
            self._refuse_unless_made(link, address, view)
            return
        rules, user = self._config().access_rules, self.user or ""
        if not rules:
            return
        if address is None:
            raise LinkRefusal("amqp:not-found", "there is no subscription of that name to look up")
        is_publisher = isinstance(link, ReceiverLink)
        if not (may_publish if is_publisher else may_subscribe)(rules, user, address, self.groups, self.vhost):
            verb = "publish to" if is_publisher else "subscribe to"
            where = f" in the virtual host {self.vhost}" if self.vhost else ""
            why = f"no rule of access.rules lets {user or ANONYMOUS} {verb} {address}{where}"
            raise LinkRefusal(UNAUTHORIZED_ACCESS, f"this user may not {verb} this address", why)
