"""What the judges raise."""

from __future__ import annotations


class Violation(AssertionError):
    """A guarantee is broken; the first word says which: LOST, DUP, ORDER, HOLE, ALTERED, BLOCKED, LEAK, EXPIRED, ..."""


FOUND_AS = {
    "LOST": "lost",
    "HOLE": "lost",
    "DROPPED": "lost",
    "DUP": "duplicated",
    "ORDER": "reordered",
    "BLOCKED": "stuck",
    "LEAK": "stuck",
}
"""The checker's words; whatever else is wrong (an assertion, a session that ended by itself) is *unexpected*."""
