"""What the late query gives for what the journal keeps, worked out without Spark, and what is wrong with its output.

The query counts the flights of each carrier that arrived in each second, and publishes a count when the watermark has
closed its second. Seconds are of the journal's clock, which a repeated batch reads again as they were.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from chaos.experiments.spark_demo.outputs_core import CARRIER, FINDINGS_SHOWN

DELAY_MS = 1_000
"""Of the watermark: so much must have arrived behind a second before it is closed."""
SECOND_MS = 1_000

Group = tuple[int, str]
"""The beginning of a second, in milliseconds since 1970, and a carrier."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A message of the journal: when it arrived there, in microseconds since 1970, and its body."""

    arrived_us: int
    body: bytes


@dataclass(slots=True)
class HistoryVerdict:
    """What the checker found. Every number but the first two is 0 in a run that is exact.

    Attributes:
        kept: messages in the journal of the flights.
        groups: counts that were published, each group once.
        lost: flights that are not in the journal, and closed groups without a count.
        duplicated: flights that are in the journal again, and further counts of a group.
        torn: counts that are wrong, of no group, or of one that is not closed.
        findings: what is wrong, for people.
    """

    kept: int = 0
    groups: int = 0
    lost: int = 0
    duplicated: int = 0
    torn: int = 0
    findings: list[str] = field(default_factory=list)

    @property
    def is_exact(self) -> bool:
        """True when each closed group was counted once, and right."""
        return not (self.lost or self.duplicated or self.torn)


def closed_groups(kept: Sequence[Kept]) -> dict[Group, int]:
    """The counts that the query publishes when it has read all messages."""
    if not kept:
        return {}
    watermark = max(each.arrived_us for each in kept) // 1_000 - DELAY_MS
    found: Counter[Group] = Counter()
    for each in kept:
        second = each.arrived_us // 1_000 // SECOND_MS * SECOND_MS
        if second + SECOND_MS <= watermark:
            found[second, each.body.decode().split(",")[CARRIER]] += 1
    return dict(found)


def judge_history(rows: Sequence[bytes], kept: Sequence[Kept], counts: Iterable[bytes]) -> HistoryVerdict:
    """Judge what the journal keeps of the rows, and what the query published.

    Args:
        rows: what was published, in order.
        kept: the journal of the rows.
        counts: bodies of the journal of the query's output, in order.
    """
    verdict = HistoryVerdict(kept=len(kept))
    _judge_journal(verdict, rows, kept)
    _judge_counts(verdict, closed_groups(kept), counts)
    return verdict


def _judge_journal(verdict: HistoryVerdict, rows: Sequence[bytes], kept: Sequence[Kept]) -> None:
    sent, found = Counter(rows), Counter(each.body for each in kept)
    missing, more = (sent - found).total(), (found - sent).total()
    verdict.lost += missing
    verdict.duplicated += more
    if missing:
        verdict.findings.append(f"{missing} flights are not in the journal")
    if more:
        verdict.findings.append(f"{more} messages are in the journal again, or are no flights")


def _judge_counts(verdict: HistoryVerdict, expected: dict[Group, int], counts: Iterable[bytes]) -> None:
    seen: set[Group] = set()
    wrong: list[str] = []
    for body in counts:
        try:
            found = json.loads(body)
            group, count = (int(found["second"]) * SECOND_MS, str(found["carrier"])), int(found["flights"])
        except (ValueError, KeyError, TypeError):
            verdict.torn += 1
            wrong.append(f"{body[:60]!r} is no count")
            continue
        if group in seen:
            verdict.duplicated += 1
            wrong.append(f"{group[1]} was counted again in the second {group[0] // SECOND_MS}")
        elif expected.get(group) != count:
            verdict.torn += 1
            wrong.append(f"{count} flights of {group[1]}, not {expected.get(group, 0)}, in {group[0] // SECOND_MS}")
        seen.add(group)
    verdict.groups = len(seen)
    missing = expected.keys() - seen
    verdict.lost += len(missing)
    wrong += [f"{carrier} has no count in the second {second // SECOND_MS}" for second, carrier in sorted(missing)]
    verdict.findings += wrong[:FINDINGS_SHOWN]
