"""Settings that are a list of rules: tables of TOML, or the same as JSON in a text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from oncewire.settings.parsers import NotAllowed


def tables(value: object, keys: set[str], most: int) -> Sequence[Mapping[str, object]]:
    """A list of so many tables that have these keys; in a text as JSON.

    Raises:
        NotAllowed: it is something else.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else []
        except ValueError as error:
            raise NotAllowed(f"in a text it is JSON, a list of tables: {error}") from None
    if not isinstance(value, list) or not all(isinstance(table, dict) for table in value):
        raise NotAllowed("it is a list of tables")
    if len(value) > most:
        raise NotAllowed(f"there may be {most} of them")
    for table in value:
        if not set(table) <= keys:
            raise NotAllowed(f"a table has {', '.join(sorted(keys))} and nothing else")
    return value


def names(table: Mapping[str, object], key: str, default: tuple[str, ...] | None) -> tuple[str, ...]:
    """A list of texts of a table; None = it must be there.

    Raises:
        NotAllowed: it is something else.
    """
    found = table.get(key, default)
    if isinstance(found, tuple):
        return found
    if not isinstance(found, list) or not found or not all(isinstance(each, str) and each for each in found):
        raise NotAllowed(f"{key} is a list of texts, with one at least")
    return tuple(found)
