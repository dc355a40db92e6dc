"""What users may publish and subscribe, and how long a subscriber may make no progress: rules of the settings.

They are looked at when a link is attached, and again when the settings change, never for a message.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from delivery_records.model.patience import Patience, SlowAction
from delivery_records.model.topics import TopicError, check_pattern
from oncewire.settings.parsers import NotAllowed
from oncewire.settings.rule_tables import names, tables
from router.settings.groups import fits

DEFAULT_VHOST = "$default"
"""Stands in rules for the default virtual host; `*` fits it, too."""
USER_PLACE = "${user}"
"""In a pattern: the user's name, where it is one token without wildcards; else the pattern fits nothing."""
MAX_RULES = 1000
"""Each attach looks at all of them."""
RIGHTS = ("publish", "subscribe", "view", "replay")
"""What a rule of access can allow."""
SCHEME_ENDS = "://"
"""In the address of a service: queue://NAME, journal://NAME."""
_AT_SEPARATORS = re.compile("(?=[./])")
_NOT_IN_A_TOKEN = frozenset("./*#")
_SLOW_ACTIONS = {"wait": None, **{action.value: action for action in SlowAction}}


@dataclass(frozen=True, slots=True)
class AccessRule:
    """Allows users something; what no rule allows is refused.

    Attributes:
        users: names, `*` for any characters, and groups.
        publish: topics, and patterns of topics, that they may publish to.
        subscribe: patterns; they may subscribe to what matches nothing else than these do.
        view: queues whose payloads they may see in the inspector.
        replay: queues whose ended items they may replay.
        vhosts: names of the virtual hosts where the rule holds, as in `users`.
    """

    users: tuple[str, ...]
    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()
    view: tuple[str, ...] = ()
    replay: tuple[str, ...] = ()
    vhosts: tuple[str, ...] = ("*",)


@dataclass(frozen=True, slots=True)
class SlowRule:
    """What becomes of subscribers without progress (K-5b); the first rule that fits counts.

    Attributes:
        topics: patterns; the rule fits a subscription that matches nothing else than these do.
        users: names, as in `AccessRule`.
        after_s: how long they may make no progress; not used for `wait`.
        action: `expel`, `detach` or `wait`.
        vhosts: as in `AccessRule`.
    """

    topics: tuple[str, ...] = ("#",)
    users: tuple[str, ...] = ("*",)
    after_s: float = 0.0
    action: str = "wait"
    vhosts: tuple[str, ...] = ("*",)

    @property
    def patience(self) -> Patience | None:
        """In the record core's words."""
        action = _SLOW_ACTIONS[self.action]
        return None if action is None else Patience(self.after_s, action)


_Rule = TypeVar("_Rule", AccessRule, SlowRule)


def allowing_rule(
    rules: Sequence[AccessRule], right: str, user: str, address: str, groups: Collection[str] = (), vhost: str = ""
) -> int | None:
    """The place, from 1 on, of the first rule that allows it.

    Args:
        rules: those of the settings.
        right: publish, subscribe, view or replay.
        user: as logged in; empty without a login.
        address: a topic, a pattern or an address of a queue.
        groups: of the user.
        vhost: where; empty: in the default virtual host.
    """
    for number, rule in _of(rules, user, groups, vhost):
        if any(covers(each, address) for each in _of_user(getattr(rule, right), user)):
            return number
    return None


def may_publish(
    rules: Sequence[AccessRule], user: str, topic: str, groups: Collection[str] = (), vhost: str = ""
) -> bool:
    """Whether some rule allows it. Without rules everybody may do everything."""
    return not rules or allowing_rule(rules, "publish", user, topic, groups, vhost) is not None


def may_subscribe(
    rules: Sequence[AccessRule], user: str, pattern: str, groups: Collection[str] = (), vhost: str = ""
) -> bool:
    """Whether some rule allows all that the pattern matches. Without rules everybody may do everything."""
    return not rules or allowing_rule(rules, "subscribe", user, pattern, groups, vhost) is not None


def decide(rules: Sequence[AccessRule], right: str) -> bool:
    """Whether rules decide who may `view` or `replay`: one of them names queues for it. Else roles do."""
    return any(getattr(rule, right) for rule in rules)


def slow_number(
    rules: Sequence[SlowRule], user: str, pattern: str, groups: Collection[str] = (), vhost: str = ""
) -> int | None:
    """Which rule counts for a subscriber of this topic or pattern: its place, from 1 on."""
    for number, rule in _of(rules, user, groups, vhost):
        if any(covers(each, pattern) for each in _of_user(rule.topics, user)):
            return number
    return None


def patience_of(
    rules: Sequence[SlowRule], user: str, pattern: str, groups: Collection[str] = (), vhost: str = ""
) -> Patience | None:
    """What a subscriber of this topic or pattern is granted."""
    number = slow_number(rules, user, pattern, groups, vhost)
    return None if number is None else rules[number - 1].patience


def adopts(users: Sequence[str], user: str, groups: Collection[str] = ()) -> bool:
    """A-2c: whether a user keeps the links that were made without a login."""
    return bool(user) and fits(users, user, groups)


def covers(allowed: str, wanted: str) -> bool:
    """True when `allowed` matches whatever the topic or pattern `wanted` matches; some such pairs are not seen."""
    return _covers(_tokens(allowed), _tokens(wanted))


def _covers(allowed: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    """`#` of the allowed pattern takes any tokens, `*` one that is not `#`, others only themselves."""
    reachable = {0}
    for part in allowed:
        if part == "#":
            reachable = set(range(min(reachable), len(wanted) + 1))
        else:
            ahead = (at for at in reachable if at < len(wanted))
            reachable = {at + 1 for at in ahead if wanted[at] == part or (part == "*" and wanted[at] != "#")}
        if not reachable:
            return False
    return len(wanted) in reachable


@lru_cache(maxsize=4096)  # clients choose what they ask for
def _tokens(pattern: str) -> tuple[str, ...]:
    """Of a topic; of a service's address the scheme, and tokens with their separators: a.b and a/b are two journals."""
    scheme, separator, name = pattern.partition(SCHEME_ENDS)
    if not separator:
        return tuple(pattern.replace("/", ".").split("."))
    tokens = _AT_SEPARATORS.split(name)
    return scheme + separator, *(each[1:] if each[1:] in ("*", "#") and each[0] in "./" else each for each in tokens)


def _of(rules: Sequence[_Rule], user: str, groups: Collection[str], vhost: str) -> Iterator[tuple[int, _Rule]]:
    """The rules that are for this user in this virtual host, with their places from 1 on."""
    for number, rule in enumerate(rules, 1):
        if fits(rule.users, user, groups) and fits(rule.vhosts, vhost or DEFAULT_VHOST):
            yield number, rule


def _of_user(patterns: Sequence[str], user: str) -> Iterator[str]:
    for pattern in patterns:
        if USER_PLACE not in pattern:
            yield pattern
        elif user and not _NOT_IN_A_TOKEN & set(user):
            yield pattern.replace(USER_PLACE, user)


# --- settings ---------------------------------------------------------------------------------------------------------


def access_rules(value: object) -> tuple[AccessRule, ...]:
    """A list of tables {users, publish, subscribe, view, replay, vhosts}; in a text as JSON."""
    return tuple(
        AccessRule(
            names(table, "users", None),
            vhosts=names(table, "vhosts", ("*",)),
            **{right: patterns(table, right, ()) for right in RIGHTS},
        )
        for table in tables(value, {"users", "vhosts", *RIGHTS}, MAX_RULES)
    )


def slow_rules(value: object) -> tuple[SlowRule, ...]:
    """A list of tables {topics, users, after_s, action, vhosts}; in a text as JSON."""
    keys = {"topics", "users", "after_s", "action", "vhosts"}
    return tuple(_slow_rule(table) for table in tables(value, keys, MAX_RULES))


def user_patterns(value: object) -> tuple[str, ...]:
    """A list of names of users; in a text they are separated by commas."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    return names({"users": value}, "users", None) if value else ()


def _slow_rule(table: Mapping[str, object]) -> SlowRule:
    action, after_s = table.get("action"), table.get("after_s", 0)
    if not isinstance(action, str) or action not in _SLOW_ACTIONS:
        raise NotAllowed(f"action is one of {', '.join(_SLOW_ACTIONS)}")
    if isinstance(after_s, bool) or not isinstance(after_s, int | float):
        raise NotAllowed("after_s is a number of seconds")
    if action != "wait" and not 1 <= after_s <= 604_800:
        raise NotAllowed("after_s must be 1 to 604800 seconds")
    users, vhosts = names(table, "users", ("*",)), names(table, "vhosts", ("*",))
    return SlowRule(patterns(table, "topics", ("#",)), users, float(after_s), action, vhosts)


def patterns(table: Mapping[str, object], key: str, default: tuple[str, ...] | None) -> tuple[str, ...]:
    """A list of topics and patterns of a table; None = it must be there.

    Raises:
        NotAllowed: it is something else.
    """
    if default is not None and (key not in table or (table[key] == [] and not default)):
        return default
    found = names(table, key, None)
    for pattern in found:
        try:
            check_pattern(pattern.partition(SCHEME_ENDS)[2] or pattern)
        except TopicError as error:
            raise NotAllowed(str(error)) from None
    return found
