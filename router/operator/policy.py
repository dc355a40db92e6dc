"""Which rule decides for a user and an address, for people: the operation `explain`. It changes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TypeAlias

from delivery_records.model.topics import in_vhost
from delivery_records.model.view import View
from oncewire.wire.vocabulary import ANONYMOUS
from router.clients.client_quota import Uses
from router.settings.access_rules import RIGHTS, AccessRule, SlowRule, adopts, allowing_rule, decide, slow_number
from router.settings.config import RouterConfig
from router.settings.groups import groups_of
from router.settings.quotas import QuotaRule, quota_number
from router.settings.topic_rules import described, topic_rule_number
from topology.inspector.schema.model import Role

_Row: TypeAlias = dict[str, object]
ROLES_BY_RIGHT = {"view": Role.ADMIN, "replay": Role.OPERATOR}
"""Who may see payloads of queues, and replay items, where no rule of access names queues for it."""


def explain(config: RouterConfig, given: Mapping[str, object], role: Role) -> _Row:
    """What the rules say of a user.

    Args:
        config: the settings in force.
        given: `user` (none: without a login), `vhost` (none: the default one), and an address for each right that is
            asked about.
        role: of that user.
    """
    user, vhost = str(given.get("user") or ""), str(given.get("vhost") or "")
    groups = groups_of(config.groups, user)
    row: _Row = {"user": user or ANONYMOUS, "groups": sorted(groups), "role": role.word}
    for right in RIGHTS:
        if given.get(right):
            row[right] = _verdict(config.access_rules, right, user, str(given[right]), groups, vhost, role)
    number = quota_number(config.quota_rules, user, groups)
    row["quota"] = "none" if number is None else _numbered(number, config.quota_rules[number - 1])
    if given.get("subscribe"):
        number = slow_number(config.slow_rules, user, str(given["subscribe"]), groups, vhost)
        row["slow"] = "none: publishers wait" if number is None else _numbered(number, config.slow_rules[number - 1])
    published = str(given.get("publish") or "")
    if published and not published.startswith(config.services_prefixes):
        topic = in_vhost(vhost, published)
        number = topic_rule_number(config.topic_rules, topic)
        by = "no rule of topics.rules" if number is None else f"rule {number} of topics.rules"
        row["policy"] = f"{described(config.policy_of(topic))}, by {by}"
    row["adopts_links"] = adopts(config.adopts_links, user, groups)
    return row


def use_of(uses: Uses, view: View, user: str, vhost: str = "") -> _Row:
    """What a user uses of this router, and the keys of all routers."""
    use = uses.find((vhost, f"user {user}"))
    return {
        "connections": 0 if use is None else use.connections,
        "links": 0 if use is None else use.links,
        "keys": view.keys_of.get((vhost, user), 0),
        "bytes": 0 if use is None else use.bytes.held,
    }


def _verdict(
    rules: tuple[AccessRule, ...], right: str, user: str, address: str, groups: frozenset[str], vhost: str, role: Role
) -> str:
    if right in ROLES_BY_RIGHT and not decide(rules, right):
        needed = ROLES_BY_RIGHT[right]
        verdict = "allowed" if role >= needed else "refused"
        return f"{verdict}: no rule of access.rules has {right}, so it needs the role {needed.word}"
    if not rules:
        return "allowed: there are no access.rules"
    number = allowing_rule(rules, right, user, address, groups, vhost)
    if number is None:
        return "refused: no rule of access.rules allows it"
    rule = rules[number - 1]
    patterns = ", ".join(getattr(rule, right))
    return f"allowed by rule {number} of access.rules: users {', '.join(rule.users)}, {right} {patterns}"


def _numbered(number: int, rule: QuotaRule | SlowRule) -> _Row:
    return {"rule": number, **{name: each for name, each in asdict(rule).items() if each is not None}}
