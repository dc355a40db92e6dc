"""What users may publish and subscribe, and how long a subscriber may make no progress: rules of the settings.

They are looked at when a link is attached, and again when the settings change, never for a message.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache

from delivery_records.patience import Patience, SlowAction
from delivery_records.topics import TopicError, check_pattern
from oncewire.settings.parsers import NotAllowed
from oncewire.wire.vocabulary import ANONYMOUS

USER_PLACE = "${user}"
"""In a pattern: the user's name, where it is one token without wildcards; else the pattern fits nothing."""
MAX_RULES = 1000
"""Each attach looks at all of them."""
_NOT_IN_A_TOKEN = frozenset("./*#")
_SLOW_ACTIONS = {"wait": None, **{action.value: action for action in SlowAction}}


@dataclass(frozen=True, slots=True)
class AccessRule:
    """Allows users something; what no rule allows is refused.

    Attributes:
        users: names; `*` stands for any characters.
        publish: topics, and patterns of topics, that they may publish to.
        subscribe: patterns; they may subscribe to what matches nothing else than these do.
    """

    users: tuple[str, ...]
    publish: tuple[str, ...] = ()
    subscribe: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SlowRule:
    """What becomes of subscribers without progress (K-5b); the first rule that fits counts.

    Attributes:
        topics: patterns; the rule fits a subscription that matches nothing else than these do.
        users: names, as in `AccessRule`.
        after_s: how long they may make no progress; not used for `wait`.
        action: `expel`, `detach` or `wait`.
    """

    topics: tuple[str, ...] = ("#",)
    users: tuple[str, ...] = ("*",)
    after_s: float = 0.0
    action: str = "wait"

    @property
    def patience(self) -> Patience | None:
        """In the record core's words."""
        action = _SLOW_ACTIONS[self.action]
        return None if action is None else Patience(self.after_s, action)


def may_publish(rules: Sequence[AccessRule], user: str, topic: str) -> bool:
    """Whether some rule allows it. Without rules everybody may do everything."""
    return not rules or any(
        covers(each, topic) for rule in _of(rules, user) for each in _of_user(rule.publish, user)
    )


def may_subscribe(rules: Sequence[AccessRule], user: str, pattern: str) -> bool:
    """Whether some rule allows all that the pattern matches. Without rules everybody may do everything."""
    return not rules or any(
        covers(each, pattern) for rule in _of(rules, user) for each in _of_user(rule.subscribe, user)
    )


def patience_of(rules: Sequence[SlowRule], user: str, pattern: str) -> Patience | None:
    """What a subscriber of this topic or pattern is granted."""
    for rule in rules:
        if _fits(rule.users, user) and any(covers(each, pattern) for each in _of_user(rule.topics, user)):
            return rule.patience
    return None


def adopts(users: Sequence[str], user: str) -> bool:
    """A-2c: whether a user keeps the links that were made without a login."""
    return bool(user) and _fits(users, user)


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
    return tuple(pattern.replace("/", ".").split("."))


def _of(rules: Sequence[AccessRule], user: str) -> Iterator[AccessRule]:
    return (rule for rule in rules if _fits(rule.users, user))


def _fits(patterns: Sequence[str], user: str) -> bool:
    return any(fnmatchcase(user or ANONYMOUS, pattern) for pattern in patterns)


def _of_user(patterns: Sequence[str], user: str) -> Iterator[str]:
    for pattern in patterns:
        if USER_PLACE not in pattern:
            yield pattern
        elif user and not _NOT_IN_A_TOKEN & set(user):
            yield pattern.replace(USER_PLACE, user)


# --- settings ---------------------------------------------------------------------------------------------------------


def access_rules(value: object) -> tuple[AccessRule, ...]:
    """A list of tables {users, publish, subscribe}; in a text as JSON."""
    return tuple(
        AccessRule(
            _names(table, "users", None), _patterns(table, "publish", ()), _patterns(table, "subscribe", ()),
        )
        for table in _tables(value, {"users", "publish", "subscribe"})
    )  # fmt: skip


def slow_rules(value: object) -> tuple[SlowRule, ...]:
    """A list of tables {topics, users, after_s, action}; in a text as JSON."""
    return tuple(_slow_rule(table) for table in _tables(value, {"topics", "users", "after_s", "action"}))


def user_patterns(value: object) -> tuple[str, ...]:
    """A list of names of users; in a text they are separated by commas."""
    if isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    return _names({"users": value}, "users", None) if value else ()


def _slow_rule(table: Mapping[str, object]) -> SlowRule:
    action, after_s = table.get("action"), table.get("after_s", 0)
    if not isinstance(action, str) or action not in _SLOW_ACTIONS:
        raise NotAllowed(f"action is one of {', '.join(_SLOW_ACTIONS)}")
    if isinstance(after_s, bool) or not isinstance(after_s, int | float):
        raise NotAllowed("after_s is a number of seconds")
    if action != "wait" and not 1 <= after_s <= 604_800:
        raise NotAllowed("after_s must be 1 to 604800 seconds")
    return SlowRule(_patterns(table, "topics", ("#",)), _names(table, "users", ("*",)), float(after_s), action)


def _tables(value: object, names: set[str]) -> Sequence[Mapping[str, object]]:
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else []
        except ValueError as error:
            raise NotAllowed(f"in a text it is JSON, a list of tables: {error}") from None
    if not isinstance(value, list) or not all(isinstance(table, dict) for table in value):
        raise NotAllowed("it is a list of tables")
    if len(value) > MAX_RULES:
        raise NotAllowed(f"there may be {MAX_RULES} rules")
    for table in value:
        if not set(table) <= names:
            raise NotAllowed(f"a rule has {', '.join(sorted(names))} and nothing else")
    return value


def _names(table: Mapping[str, object], key: str, default: tuple[str, ...] | None) -> tuple[str, ...]:
    found = table.get(key, default)
    if isinstance(found, tuple):
        return found
    if not isinstance(found, list) or not found or not all(isinstance(each, str) and each for each in found):
        raise NotAllowed(f"{key} is a list of texts, with one at least")
    return tuple(found)


def _patterns(table: Mapping[str, object], key: str, default: tuple[str, ...]) -> tuple[str, ...]:
    if key not in table or (table[key] == [] and not default):
        return default
    found = _names(table, key, None)
    for pattern in found:
        try:
            check_pattern(pattern)
        except TopicError as error:
            raise NotAllowed(str(error)) from None
    return found
