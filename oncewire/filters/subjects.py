"""Filters for the subject of a message, as bindings of AMQP 0-10 exchanges have them (Apache's registered filters)."""

from __future__ import annotations

from collections.abc import Callable

from oncewire.filters.errors import FilterError
from oncewire.filters.sections import PROPERTY_FIELDS, MessageSections

MAX_SUBJECT_TOKENS = 64
"""Bounds the work of one match, together with the length of subjects that are compared."""
_SUBJECT = PROPERTY_FIELDS.index("subject")


def compile_subject(wanted: str) -> Callable[[MessageSections], bool]:
    """The subject is this text."""

    def test(sections: MessageSections) -> bool:
        subject = sections.property(_SUBJECT)
        return isinstance(subject, str) and subject == wanted

    return test


def check_subject_pattern(pattern: str) -> None:
    """Refuse a pattern that would cost too much.

    Raises:
        FilterError: it has too many tokens.
    """
    if pattern.count(".") >= MAX_SUBJECT_TOKENS:
        raise FilterError(f"subject-pattern: it has more than {MAX_SUBJECT_TOKENS} tokens; make it shorter")


def compile_subject_pattern(pattern: str) -> Callable[[MessageSections], bool]:
    """The subject's tokens, between dots, fit the pattern's: `*` is one token, `#` any number, also none."""
    tokens = pattern.split(".")

    def test(sections: MessageSections) -> bool:
        subject = sections.property(_SUBJECT)
        if not isinstance(subject, str):
            return tokens == ["#"]
        if subject.count(".") >= MAX_SUBJECT_TOKENS:
            return tokens == ["#"]
        return _fits(tokens, subject.split("."))

    return test


def _fits(pattern: list[str], subject: list[str]) -> bool:
    """Positions of the subject that can be reached after each token of the pattern."""
    reachable = {0}
    for part in pattern:
        if part == "#":
            reachable = set(range(min(reachable), len(subject) + 1))
        else:
            reachable = {at + 1 for at in reachable if at < len(subject) and part in ("*", subject[at])}
        if not reachable:
            return False
    return len(subject) in reachable
