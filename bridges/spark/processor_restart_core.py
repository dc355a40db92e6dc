"""When a query that failed is started again, and when that would be of no use. Without clock and chance."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from bridges.node import errors

FIRST_S = 1.0
CAP_S = 60.0
"""Pauses double from the first up to the cap: a query takes seconds to start, a database minutes to recover."""
HEALTHY_S = 300.0
"""A query that ran so long was well: the next failure is another one."""
HOPELESS: tuple[type[errors.NodeError], ...] = (
    errors.BadRequest,
    errors.OwnedByAnother,
    errors.Fenced,
    errors.JournalReplaced,
    errors.RangeTrimmed,
    errors.RangeNotThere,
    errors.RangeHole,
    errors.SubscriptionGap,
    errors.SubscriptionEnded,
    errors.SnapshotUnknown,
    errors.BatchForgotten,
    errors.NotAuthenticated,
)
"""Errors that need intervention."""
_OURS = re.compile(r"\bbridges\.[a-z_.]+\.(\w+): .*")
"""An error of ours comes without a traceback (spark_calls.py)."""
_HOPELESS = frozenset(kind.__name__ for kind in HOPELESS)

_TRACEBACK = "Traceback (most recent call last):\n"
_QUERY = "\n=== Streaming Query ==="
_CRASHED = "Python worker exited unexpectedly"
_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(: |$)")
_HEAD = re.compile(r"^(\[STREAM_FAILED\] )?Query \[.*?\] terminated with exception: ")


def is_hopeless(failure: str) -> bool:
    """Whether a query that failed so fails again at once: Spark hands on a Python error as text."""
    return any(found[1] in _HOPELESS for found in _OURS.finditer(failure))


def cause_of(failure: str) -> str:
    """What ended a query, as one line; Spark's text begins with ids, and has the cause somewhere behind them.

    It is the exception that a Python worker reported, with the delivery that it was called with; or that a worker
    crashed; or else Spark's own first line.
    """
    spark, _, reported = failure.partition(_TRACEBACK)
    if reported:
        found = ""
        lines = iter(reported.partition(_QUERY)[0].split("\n"))
        for line in lines:
            if line and not line[0].isspace() and _EXCEPTION.match(line):
                found = line
            elif found and line.startswith("processor "):  # the note of processor_core.attempt
                return f"{found} ({line.strip()})"
        if found:
            return found
    if (ours := _OURS.search(spark)) is not None:
        return ours[0].removesuffix(" SQLSTATE: 38000")
    if _CRASHED in spark:
        return "a Python worker of Spark crashed: it was killed, ran out of memory, or native code in it failed"
    return _HEAD.sub("", spark).partition("\n")[0].strip()


@dataclass(slots=True)
class BackOff:
    """How long to wait before a query is started again.

    Attributes:
        first_s, cap_s: the pauses.
        healthy_s: how long a query must run to begin with the first pause again.
    """

    first_s: float = FIRST_S
    cap_s: float = CAP_S
    healthy_s: float = HEALTHY_S
    _failures: int = field(default=0, init=False)

    def pause_s(self, ran_s: float, chance: float) -> float:
        """The pause after a failure.

        Args:
            ran_s: how long the query ran before it.
            chance: from 0 to 1, another each time; the pause is shortened by up to a half, so that processors that
                failed together do not restart together.
        """
        if ran_s >= self.healthy_s:
            self._failures = 0
        pause_s = min(self.cap_s, self.first_s * 2.0 ** min(self._failures, 32))
        self._failures += 1
        return pause_s * (1.0 - 0.5 * chance)
