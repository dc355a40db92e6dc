"""How much of a router one user may use: rules of the settings. They are looked at when a client opens or attaches."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from oncewire.settings.parsers import KIB, MIB, TIB, NotAllowed, Parser, number, size, whole_number
from oncewire.settings.rule_tables import names, tables
from router.settings.access_rules import MAX_RULES
from router.settings.groups import fits

MAX_TIMEOUT_S = 2_592_000
"""The most that limits.publisher_timeout_cap_s can be."""


@dataclass(frozen=True, slots=True)
class QuotaRule:
    """The quotas of some users; None: as the settings limits.* say. The first rule that fits a user counts.

    Attributes:
        users: names, `*` for any characters, and groups.
        connections: open ones at this router.
        sessions: AMQP sessions of one connection.
        links: of all connections of the user at this router.
        keys: subscriptions and publishers in etcd, of all routers.
        attach_rate: attaches a second, as limits.attach_rate.
        unsettled: deliveries in the window of one publisher.
        bytes: of bodies that are held for the user at this router.
        map_entries: of the unsettled map that one attach presents.
        timeout_s: longest time-out of a subscription or of a publisher's session (K-5c).
        min_frame_size: smallest max-frame-size that a client may open with.
        min_map: entries that must fit the frames of a subscriber that keeps a map (C-4).
        message_size: of the largest message.
    """

    users: tuple[str, ...]
    connections: int | None = None
    sessions: int | None = None
    links: int | None = None
    keys: int | None = None
    attach_rate: float | None = None
    unsettled: int | None = None
    bytes: int | None = None
    map_entries: int | None = None
    timeout_s: float | None = None
    min_frame_size: int | None = None
    min_map: int | None = None
    message_size: int | None = None


NO_QUOTA = QuotaRule(())
"""Of whoever no rule fits."""

_PARSERS: Mapping[str, Parser] = {
    "connections": whole_number(1, 1_000_000),
    "sessions": whole_number(1, 65_536),
    "links": whole_number(1, 1_000_000),
    "keys": whole_number(1, 10_000_000),
    "attach_rate": number(1, 1_000_000),
    "unsettled": whole_number(1, 65_536),
    "bytes": size(64 * KIB, TIB),
    "map_entries": whole_number(0, 1_000_000),
    "timeout_s": number(0, MAX_TIMEOUT_S),
    "min_frame_size": size(512, 16 * MIB),
    "min_map": whole_number(1, 65_536),
    "message_size": size(KIB, TIB),
}
NAMES = tuple(_PARSERS)
"""Every quota there is."""
assert {each.name for each in fields(QuotaRule)} == {"users", *NAMES}


def quota_number(rules: Sequence[QuotaRule], user: str, groups: Collection[str] = ()) -> int | None:
    """Which rule counts for a user, empty without a login: its place, from 1 on."""
    return next((number for number, rule in enumerate(rules, 1) if fits(rule.users, user, groups)), None)


def quota_of(rules: Sequence[QuotaRule], user: str, groups: Collection[str] = ()) -> QuotaRule:
    """The rule that counts for a user, empty without a login."""
    return next((rule for rule in rules if fits(rule.users, user, groups)), NO_QUOTA)


def quota_rules(value: object) -> tuple[QuotaRule, ...]:
    """A list of tables {users, and some quotas}; in a text as JSON."""
    return tuple(_rule(table) for table in tables(value, {"users", *NAMES}, MAX_RULES))


def _rule(table: Mapping[str, object]) -> QuotaRule:
    quotas: dict[str, Any] = {}
    for name, found in table.items():
        if name == "users":
            continue
        try:
            quotas[name] = _PARSERS[name](found)
        except (NotAllowed, TypeError, ValueError) as error:
            why = str(error) if isinstance(error, NotAllowed) else "it is a number"
            raise NotAllowed(f"{name}: {why}") from None
    if not quotas:
        raise NotAllowed(f"a rule has users and one at least of {', '.join(NAMES)}")
    return QuotaRule(names(table, "users", None), **quotas)
