"""Makes runs of targets: some by hand, or block after block into the ledger until the goals are reached."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from chaos.campaign.campaign import machine
from chaos.campaign.version import packages_version
from chaos.evidence.commits import note_commit, read_commits
from chaos.evidence.ledger import read_ledger, replace_file
from chaos.fuzz.guided import run_guided
from chaos.fuzz.ledger import BLOCKS, Block, Found, fuzz_ledger, next_run, sum_of
from chaos.fuzz.page import write_page
from chaos.fuzz.target import Counts, Target, what
from chaos.fuzz.targets import Goal

SHARED = ("chaos.fuzz.mutations", "chaos.fuzz.target")
"""What every target is made of."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a record is to come to."""

    ledger: Path
    goals: Mapping[str, Goal]
    seconds: float | None = None
    """Start no new block after this time."""

    @property
    def page(self) -> Path:
        """Beside the ledger."""
        return self.ledger.with_suffix(".md")


def modules_of(goal: Goal) -> tuple[str, ...]:
    """Packages and modules that a run of this target executes."""
    return (goal.place.partition(":")[0], *SHARED, *goal.target.code)


def code_of(goal: Goal, root: Path | None = None) -> str:
    """Which code a run of this target executes, as one short word."""
    return packages_version(*modules_of(goal), root=root)


def make_runs(target: Target, numbers: Iterable[int]) -> tuple[Counts, list[Found]]:
    """Make these runs; what any of them raises is a finding, and the next one is made."""
    counts, found = Counts(), []
    for number in numbers:
        try:
            counts.add(target.run(number))
        except Exception as error:  # noqa: BLE001  (whatever it is, it is what is looked for)
            counts.inputs += 1
            found.append(Found(number, what(error)))
    return counts, found


def make_block(goal: Goal, first: int, runs: int, code: str) -> Block:
    """Make a block of runs and measure it."""
    began = time.process_time()
    counts, found = make_runs(goal.target, range(first, first + runs))
    return Block(
        goal.target.name,
        first,
        runs,
        code,
        platform.python_version(),
        machine(),
        counts,
        time.process_time() - began,
        tuple(found),
    )


def make_guided(goal: Goal, inputs: int, corpus: Path) -> tuple[Block, Path | None]:
    """Make coverage-guided inputs; the second value is the input that was found, with which it ended.

    Raises:
        GuidedNotPossible: atheris is not installed.
    """
    name = goal.target.name
    outcome = run_guided(name, inputs, corpus)
    found = () if outcome.crash is None else (Found(0, f"the input {outcome.crash.name}"),)
    counts = Counts(inputs if outcome.crash is None else 0)
    block = Block(
        name, 0, 0, code_of(goal), platform.python_version(), machine(), counts, outcome.cpu_s, found, is_guided=True
    )
    return block, outcome.crash


def make_record(plan: Plan, on_block: Callable[[Block], None] = lambda _block: None) -> bool:
    """Go on with the ledger and write its page; whether the goals are reached, and nothing was found.

    Targets take turns, one block each, so that a record that was ended early has something of all.

    Raises:
        LedgerError: ledger or page cannot be read or written.
    """
    ends_at = None if plan.seconds is None else time.monotonic() + plan.seconds
    codes = {name: code_of(goal) for name, goal in plan.goals.items()}
    for name, goal in plan.goals.items():
        note_commit(plan.ledger.parent, codes[name], partial(code_of, goal))
    with fuzz_ledger(plan.ledger) as ledger:
        try:
            left = dict(plan.goals)
            while left:
                for name, goal in list(left.items()):
                    code = codes[name]
                    if sum_of(ledger.rows, name, code).counts.inputs >= goal.inputs:
                        del left[name]
                        continue
                    if ends_at is not None and time.monotonic() >= ends_at:
                        return False
                    block = make_block(goal, next_run(ledger.rows, name, code), goal.block, code)
                    ledger.append(block)
                    on_block(block)
        finally:
            _write(plan, ledger.rows)
        return not any(sum_of(ledger.rows, name, code).found for name, code in codes.items())


def rewrite_page(plan: Plan) -> None:
    """Write the page again from the ledger.

    Raises:
        LedgerError: ledger or page cannot be read or written.
    """
    _write(plan, read_ledger(plan.ledger, BLOCKS))


def _write(plan: Plan, blocks: Sequence[Block]) -> None:
    replace_file(plan.page, write_page(blocks, plan.goals, read_commits(plan.ledger.parent)))
