"""The patterns of LIKE: `%` stands for any characters, `_` for one. The time is proportional to the string.

A regular expression may go back again and again. Here each part between two `%` is looked for once, at its first place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

_Part: TypeAlias = Sequence[str | None]
"""Characters; None stands for any."""


def parts_of(pattern: str, escape: str) -> list[list[str | None]]:
    """What stands between the `%` of a pattern.

    Raises:
        ValueError: the pattern ends with its escape character.
    """
    parts: list[list[str | None]] = [[]]
    characters = iter(pattern)
    for character in characters:
        if character == escape:
            escaped = next(characters, None)
            if escaped is None:
                raise ValueError(f"the pattern {pattern:.80} ends with its escape character")
            parts[-1].append(escaped)
        elif character == "%":
            parts.append([])
        else:
            parts[-1].append(None if character == "_" else character)
    return parts


def compile_like(pattern: str, escape: str) -> Callable[[str], bool]:
    """A test of strings."""
    first, *rest = parts_of(pattern, escape)
    if not rest:
        return lambda text: len(text) == len(first) and _is_at(first, text, 0)
    *middle, last = rest
    searches = [_search_for(part) for part in middle if part]
    least = len(first) + len(last)

    def test(text: str) -> bool:
        end = len(text) - len(last)
        if len(text) < least or not _is_at(first, text, 0) or not _is_at(last, text, end):
            return False
        at = len(first)
        for search in searches:
            at = search(text, at, end)
            if at < 0:
                return False
        return True

    return test


def _is_at(part: _Part, text: str, at: int) -> bool:
    return all(wanted is None or wanted == text[at + place] for place, wanted in enumerate(part))


def _search_for(part: _Part) -> Callable[[str, int, int], int]:
    """Finds the first place of a part in text[start:stop], and returns where it ends there; -1: nowhere."""
    if None not in part:
        plain = "".join(character for character in part if character is not None)

        def find(text: str, start: int, stop: int) -> int:
            at = text.find(plain, start, stop)
            return at if at < 0 else at + len(plain)

        return find
    # Shift-And: bit n of `state` says that the n + 1 characters read last are the first ones of the part.
    anything = sum(1 << place for place, wanted in enumerate(part) if wanted is None)
    masks: dict[str, int] = {}
    for place, wanted in enumerate(part):
        if wanted is not None:
            masks[wanted] = masks.get(wanted, anything) | 1 << place
    done = 1 << len(part) - 1

    def scan(text: str, start: int, stop: int) -> int:
        state = 0
        for at in range(start, stop):
            state = (state << 1 | 1) & masks.get(text[at], anything)
            if state & done:
                return at + 1
        return -1

    return scan
