"""What operators decide for the messages of topics (I-3d): rules, looked at when a publisher attaches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from delivery_records.model.limits import OnEmpty, TopicPolicy
from delivery_records.model.topics import check_topic, in_vhost, matches, split_vhost
from oncewire.settings.parsers import NotAllowed, number, one_of, whole_number
from oncewire.settings.rule_tables import names, tables
from router.amqp.addresses import is_made
from router.settings.access_rules import DEFAULT_VHOST, MAX_RULES, patterns
from router.settings.groups import fits

MAX_RETRY_S = 86_400.0
"""A day: a delivery that waits for its next attempt is in nobody's map but its publisher's (E-4a)."""
MIN_RETRY_S = 0.01
"""Shorter waits would make a subscriber that fails at once a load for its router."""
ON_EMPTY = one_of(*(each.value for each in OnEmpty))
ON_EMPTY_ALLOWED = "accept, release or reject"
ON_REJECT = one_of("accept", "report")
ON_REJECT_ALLOWED = "accept or report"
MAX_ATTEMPTS = whole_number(1, 1_000_000)
MAX_ATTEMPTS_ALLOWED = "1 to 1000000"
RETRY_S = number(MIN_RETRY_S, MAX_RETRY_S)
RETRY_ALLOWED = f"{MIN_RETRY_S:g} to {MAX_RETRY_S:.0f} seconds"
DEAD_LETTER_ALLOWED = "a topic without wildcards"
MAX_TTL_S = 30 * 86_400.0
"""A month: what a message that waits longer is worth, its operator knows; and the time between routers fits 32 bits."""
TTL_S = number(0, MAX_TTL_S)
TTL_ALLOWED = f"0 to {MAX_TTL_S:.0f} seconds"
LETTER_WAIT_S = number(0, MAX_RETRY_S)
LETTER_WAIT_ALLOWED = f"0 to {MAX_RETRY_S:.0f} seconds"
"""A day, as for attempts: so long a letter may be in nobody's hands but its publisher's."""
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class TopicRule:
    """The policy of some topics; the first rule that fits counts.

    Attributes:
        topics: topics, and patterns of topics.
        vhosts: names of the virtual hosts where the rule holds, `*` for any characters.
        on_empty: outcome of a message that no subscription is done with: accept, release or reject.
        on_reject: outcome where a subscription rejected: accept or report.
        max_attempts: failed attempts until a delivery is rejected.
        retry_first_s: wait before the next attempt; it doubles.
        retry_cap_s: longest such wait.
        dead_letter: topic for what subscriptions fail, of the same virtual host (I-3e).
        dead_letter_wait_s: how long dead letters wait while nobody subscribes to that topic; 0: without end.
        ttl_s: longest life of a message that was not sent to a subscription; 0: without end.

    What is None is as the settings limits.* say.
    """

    topics: tuple[str, ...]
    vhosts: tuple[str, ...] = ("*",)
    on_empty: str | None = None
    on_reject: str | None = None
    max_attempts: int | None = None
    retry_first_s: float | None = None
    retry_cap_s: float | None = None
    ttl_s: float | None = None
    dead_letter: str | None = None
    dead_letter_wait_s: float | None = None


def _topic(value: object) -> str:
    if not isinstance(value, str) or any(ord(char) < ord(" ") for char in value):
        raise ValueError(DEAD_LETTER_ALLOWED)
    check_topic(value)
    return value


_DECIDED: Mapping[str, tuple[Callable[[Any], Any], str]] = {
    "on_empty": (ON_EMPTY, ON_EMPTY_ALLOWED),
    "on_reject": (ON_REJECT, ON_REJECT_ALLOWED),
    "max_attempts": (MAX_ATTEMPTS, MAX_ATTEMPTS_ALLOWED),
    "retry_first_s": (RETRY_S, RETRY_ALLOWED),
    "retry_cap_s": (RETRY_S, RETRY_ALLOWED),
    "dead_letter": (_topic, DEAD_LETTER_ALLOWED),
    "dead_letter_wait_s": (LETTER_WAIT_S, LETTER_WAIT_ALLOWED),
    "ttl_s": (TTL_S, TTL_ALLOWED),
}
"""What a rule may decide, and what is allowed."""


def topic_rules(value: object) -> tuple[TopicRule, ...]:
    """A list of tables {topics, vhosts, and some of what a rule may decide}; in a text as JSON."""
    return tuple(_rule(table) for table in tables(value, {"topics", "vhosts", *_DECIDED}, MAX_RULES))


def _rule(table: Mapping[str, object]) -> TopicRule:
    decided: dict[str, Any] = {}
    for name, (parse, allowed) in _DECIDED.items():
        if name not in table:
            continue
        try:
            decided[name] = parse(table[name])
        except (NotAllowed, TypeError, ValueError):
            raise NotAllowed(f"{name} is {allowed}") from None
    if not decided:
        raise NotAllowed(f"a rule has topics and one at least of {', '.join(_DECIDED)}")
    rule = TopicRule(patterns(table, "topics", None), names(table, "vhosts", ("*",)), **decided)
    first_s, cap_s = rule.retry_first_s, rule.retry_cap_s
    if first_s is not None and cap_s is not None and first_s > cap_s:
        raise NotAllowed("retry_first_s is at most retry_cap_s")
    if rule.dead_letter_wait_s is not None and rule.dead_letter is None:
        raise NotAllowed("a rule with dead_letter_wait_s has dead_letter, the topic that is waited for")
    return rule


def topic_rule_number(rules: Sequence[TopicRule], topic: str) -> int | None:
    """Which rule counts for a topic as routers know it: its place, from 1 on."""
    vhost, bare = split_vhost(topic)
    for place, rule in enumerate(rules, 1):
        if fits(rule.vhosts, vhost or DEFAULT_VHOST) and any(matches(each, bare) for each in rule.topics):
            return place
    return None


def policy_by(rules: Sequence[TopicRule], default: TopicPolicy, topic: str) -> TopicPolicy:
    """The policy of a topic as routers know it; `default` has what no rule decides."""
    is_dead_letter = _is_dead_letter(rules, topic)
    place = topic_rule_number(rules, topic)
    if place is None:
        return replace(default, is_dead_letter=True) if is_dead_letter else default
    rule = rules[place - 1]
    vhost, bare = split_vhost(topic)
    # I-3e: a dead-letter topic has none of its own; nobody can subscribe beside an address that was made.
    dead_letter = rule.dead_letter if not is_dead_letter and not is_made(bare) else None
    on_empty = None if rule.on_empty is None else OnEmpty(rule.on_empty)
    return TopicPolicy(
        on_empty=_or(on_empty, default.on_empty),
        on_empty_exactly_once=_or(on_empty, default.on_empty_exactly_once),
        report_rejections=default.report_rejections if rule.on_reject is None else rule.on_reject == "report",
        max_attempts=_or(rule.max_attempts, default.max_attempts),
        retry_first_s=_or(rule.retry_first_s, default.retry_first_s),
        retry_cap_s=_or(rule.retry_cap_s, default.retry_cap_s),
        dead_letter=in_vhost(vhost, dead_letter) if dead_letter else "",
        dead_letter_wait_s=_or(rule.dead_letter_wait_s, default.dead_letter_wait_s) if dead_letter else 0.0,
        is_dead_letter=is_dead_letter,
        ttl_s=_or(rule.ttl_s, default.ttl_s),
    )


def _is_dead_letter(rules: Sequence[TopicRule], topic: str) -> bool:
    """Whether a rule of its virtual host names a topic as the one for dead letters."""
    vhost, bare = split_vhost(topic)
    return any(rule.dead_letter == bare and fits(rule.vhosts, vhost or DEFAULT_VHOST) for rule in rules)


def described(policy: TopicPolicy) -> str:
    """A policy in one line, for people."""
    on_empty, capable = policy.on_empty.value, policy.on_empty_exactly_once.value
    return (
        f"on_empty={on_empty if on_empty == capable else f'{on_empty}/{capable}'}"
        f" on_reject={'report' if policy.report_rejections else 'accept'} max_attempts={policy.max_attempts}"
        f" retry={policy.retry_first_s:g}-{policy.retry_cap_s:g}s"
        f"{f' ttl={policy.ttl_s:g}s' if policy.ttl_s else ''}"
        + (f" dead_letter={split_vhost(policy.dead_letter)[1]}" if policy.dead_letter else "")
        + (f" dead_letter_wait={policy.dead_letter_wait_s:g}s" if policy.dead_letter_wait_s else "")
    )


def _or(decided: _Value | None, default: _Value) -> _Value:
    return default if decided is None else decided
