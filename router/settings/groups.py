"""Groups of users: names by which rules of the settings mean several users at once."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import TypeAlias

from oncewire.settings.parsers import NotAllowed
from oncewire.wire.vocabulary import ANONYMOUS

MARK = "@"
"""Begins the name of a group where rules name users."""
MAX_GROUPS = 1000
"""Each attach looks at all of them."""
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")

Groups: TypeAlias = Sequence[tuple[str, tuple[str, ...]]]
"""Name and users of each; `*` stands for any characters."""


def fits(patterns: Iterable[str], user: str, groups: Collection[str] = ()) -> bool:
    """Whether a user, empty without a login, is one of those that a rule names.

    Args:
        patterns: names, with `*` for any characters, and groups.
        user: as logged in. A name that begins with `@` is no group.
        groups: of the user.
    """
    name = user or ANONYMOUS
    return any(
        pattern[1:] in groups if pattern.startswith(MARK) else fnmatchcase(name, pattern) for pattern in patterns
    )


def groups_of(groups: Groups, user: str) -> frozenset[str]:
    """The groups that a user, empty without a login, is in."""
    return frozenset(name for name, users in groups if fits(users, user))


def named_groups(patterns: Iterable[str]) -> Iterable[str]:
    """The groups among what a rule names."""
    return (pattern[1:] for pattern in patterns if pattern.startswith(MARK))


def groups(value: object) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """A table name = [users]; in a text as JSON."""
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else {}
        except ValueError as error:
            raise NotAllowed(f"in a text it is JSON, a table of lists: {error}") from None
    if not isinstance(value, dict):
        raise NotAllowed("it is a table of lists of users")
    if len(value) > MAX_GROUPS:
        raise NotAllowed(f"there may be {MAX_GROUPS} groups")
    for name, users in value.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise NotAllowed("the name of a group has 1 to 64 of A-Z a-z 0-9 _ . -")
        if not isinstance(users, list) or not all(isinstance(user, str) and user for user in users):
            raise NotAllowed(f"{name} is a list of users")
        if any(user.startswith(MARK) for user in users):
            raise NotAllowed("a group is not in another group: list its users")
    return tuple((name, tuple(users)) for name, users in value.items())
