"""The patterns of LIKE: `%` stands for any characters, `_` for one. What it reads of a string is counted.

A regular expression may go back again and again. Here each part between two `%` is looked for once, at its first place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from oncewire.filters.limits import CHARS_A_STEP
from oncewire.filters.sections import MessageSections

WIDE: Final = 512
"""Characters of a part with `_` that one step compares: they are bits of one number."""


Search: TypeAlias = Callable[[str, int, int, MessageSections], int]
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


def compile_like(pattern: str, escape: str) -> Callable[[str, MessageSections], bool]:
    """A test of strings; what it does is counted."""
    first, *rest = parts_of(pattern, escape)
    if not rest:
        return lambda text, _steps: len(text) == len(first) and _is_at(first, text, 0)
    *middle, last = rest
    searches = [_search_for(part) for part in middle if part]
    least = len(first) + len(last)

    def test(text: str, steps: MessageSections) -> bool:
        end = len(text) - len(last)
        if len(text) < least or not _is_at(first, text, 0) or not _is_at(last, text, end):
            return False
        at = len(first)
        for search in searches:
            at = search(text, at, end, steps)
            if at < 0:
                return False
        return True

    return test


def _is_at(part: _Part, text: str, at: int) -> bool:
    return all(wanted is None or wanted == text[at + place] for place, wanted in enumerate(part))


def _search_for(part: _Part) -> Search:
    """Finds the first place of a part in text[start:stop], and returns where it ends there; -1: nowhere."""
    if None not in part:
        plain = "".join(character for character in part if character is not None)

        def find(text: str, start: int, stop: int, steps: MessageSections) -> int:
            at = text.find(plain, start, stop)
            end = at + len(plain)
            steps.spend(((stop if at < 0 else end) - start) // CHARS_A_STEP)
            return at if at < 0 else end

        return find
    # Shift-And: bit n of `state` says that the n + 1 characters read last are the first ones of the part.
    anything = sum(1 << place for place, wanted in enumerate(part) if wanted is None)
    masks: dict[str, int] = {}
    for place, wanted in enumerate(part):
        if wanted is not None:
            masks[wanted] = masks.get(wanted, anything) | 1 << place
    done = 1 << len(part) - 1

    each = 1 + len(part) // WIDE

    def scan(text: str, start: int, stop: int, steps: MessageSections) -> int:
        state = 0
        last = min(stop, start + steps.steps_left // each + 1)  # what is read beyond that is not paid for
        for at in range(start, last):
            state = (state << 1 | 1) & masks.get(text[at], anything)
            if state & done:
                steps.spend((at + 1 - start) * each)
                return at + 1
        steps.spend((last - start) * each)
        return -1

    return scan
