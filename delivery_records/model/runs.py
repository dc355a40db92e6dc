"""Runs of consecutive numbers, as messages between routers carry them: first and count."""

from __future__ import annotations

from delivery_records.model.messages import Run


def add_run(runs: list[list[int]], number: int) -> None:
    """Add one number to a list of [first, count] runs, extending the last run when it follows it."""
    if runs and runs[-1][0] + runs[-1][1] == number:
        runs[-1][1] += 1
    else:
        runs.append([number, 1])


def frozen_runs(runs: list[list[int]]) -> tuple[Run, ...]:
    """The runs as they travel in a message."""
    return tuple((first, count) for first, count in runs)
