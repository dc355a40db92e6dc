"""Who may read and change what over HTTP: rules of the settings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from oncewire.settings.rule_tables import names, tables

MAX_RULES = 1000
"""Each request looks at all of them."""
ANONYMOUS = "$anonymous"
"""Stands for whoever has not logged in."""


@dataclass(frozen=True, slots=True)
class HttpRule:
    """Allows users something; what no rule allows is refused.

    Attributes:
        users: names; `*` stands for any characters.
        read: what they may read, written in the same way.
        manage: what they may trim, seek in and delete.
    """

    users: tuple[str, ...]
    read: tuple[str, ...] = ()
    manage: tuple[str, ...] = ()


def allows(rules: Sequence[HttpRule], right: str, user: str, name: str) -> bool:
    """Whether one of the rules allows it.

    Args:
        rules: those of the settings.
        right: read or manage.
        user: as logged in; empty = nobody has.
        name: of the journal.
    """
    return any(_fits(rule.users, user or ANONYMOUS) and _fits(getattr(rule, right), name) for rule in rules)


def _fits(patterns: Sequence[str], text: str) -> bool:
    return any(_compiled(pattern).fullmatch(text) for pattern in patterns)


@lru_cache(maxsize=2 * MAX_RULES)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, re.split(r"\*+", pattern))), re.DOTALL)


def http_rules(value: object) -> tuple[HttpRule, ...]:
    """A list of tables {users, read, manage}; in a text as JSON."""
    found = tables(value, {"users", "read", "manage"}, MAX_RULES)
    return tuple(
        HttpRule(names(table, "users", None), names(table, "read", ()), names(table, "manage", ())) for table in found
    )
