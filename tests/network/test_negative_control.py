"""The verdict on a real run turns red when one record of a journal is removed or doubled."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.network.harness import Experiment, Load, assert_nothing_wrong, network_under_load


def remove(lines: list[str], at: int) -> list[str]:
    return lines[:at] + lines[at + 1 :]


def double(lines: list[str], at: int) -> list[str]:
    return lines[: at + 1] + lines[at:]


def swap(lines: list[str], at: int) -> list[str]:
    return [*lines[:at], lines[at + 1], lines[at], *lines[at + 2 :]]


def damaged(experiment: Experiment, damage: Callable[[list[str], int], list[str]]) -> dict[str, int]:
    """Counts of the verdict with this damage to the fifth processed message of s1; the journal is repaired again."""
    path = experiment.folder / "s1.jsonl"
    whole = path.read_text()
    lines = whole.splitlines(keepends=True)
    at = [number for number, line in enumerate(lines) if '"processed"' in line][4]
    path.write_text("".join(damage(lines, at)))
    verdict = experiment.trial.verdict()
    path.write_text(whole)
    assert not verdict.passed
    return {word: verdict.total(word) for word in ("lost", "duplicated", "reordered")}


async def test_a_record_removed_doubled_or_swapped_in_a_journal_turns_the_verdict_red(tmp_path: Path) -> None:
    load = Load(publishers={"p1": "r1"}, subscribers={"s1": "r2"}, messages=1_000, seconds=1.0)
    async with network_under_load(tmp_path, load) as experiment:
        assert_nothing_wrong(experiment, await experiment.verdict())
        assert damaged(experiment, remove) == {"lost": 1, "duplicated": 0, "reordered": 0}
        assert damaged(experiment, double) == {"lost": 0, "duplicated": 1, "reordered": 0}
        assert damaged(experiment, swap) == {"lost": 0, "duplicated": 0, "reordered": 1}
        assert_nothing_wrong(experiment, experiment.trial.verdict())
