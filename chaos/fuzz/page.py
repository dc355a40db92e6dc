"""`docs/evidence/fuzz.md`, written from the ledger alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from chaos.evidence.commits import Commits
from chaos.evidence.ledger import recorded
from chaos.evidence.markdown import cell, markdown_table
from chaos.fuzz.ledger import Block, Sum, sum_of
from chaos.fuzz.target import COUNTED, STEPS, STEPS_PER_BYTE
from chaos.fuzz.targets import Goal

_HEAD = """\
# Fuzzing

{verdict}

`oncewire chaos fuzz --record` writes this page from its ledger (`fuzz.jsonl`), which has one line for each block of
runs. A test fails when the page says anything else. The page is about the code that it names; `oncewire chaos evidence`
lists what has changed in that code since. Each test run makes some inputs for each target, with the code as it is.

A target is something that reads what others wrote. Each run comes from the name of its target and its number alone,
makes one or more inputs, and is repeated by that number. An input is *taken* or *refused* with the typed error of its
target; anything else that is raised, and any claim below that does not hold, is a finding. In one run of {counted} each
input's calls are counted: more than {steps} plus {per_byte} for each byte is a finding, too. No time is measured for
that.

To repeat it:

```sh
oncewire chaos fuzz                             # some runs of each target, in seconds
oncewire chaos fuzz frames --first 7 --runs 1   # one run of one target
oncewire chaos fuzz --record                    # goes on where this ledger ends
```
"""


def recorded_codes(blocks: Sequence[Block], goals: Mapping[str, Goal]) -> dict[str, str]:
    """Of each target the code version that the page is about: `recorded`, of those with enough inputs."""
    found = {block.target: block.code for block in blocks}
    for name in found.keys() & goals.keys():
        codes = list(dict.fromkeys(block.code for block in reversed(blocks) if block.target == name))[::-1]
        sums = {code: sum_of(blocks, name, code) for code in codes}
        found[name] = recorded(
            {code: (each.counts.inputs >= goals[name].inputs, not each.found) for code, each in sums.items()}
        )
    return found


def write_page(blocks: Sequence[Block], goals: Mapping[str, Goal], commits: Commits) -> str:
    """The page as text, about `recorded_codes`; other code's numbers are not added to it."""
    codes = recorded_codes(blocks, goals)
    sums = {name: sum_of(blocks, name, codes[name]) for name in goals if name in codes}
    head = _HEAD.format(verdict=_verdict(sums), counted=COUNTED, steps=f"{STEPS:,}", per_byte=STEPS_PER_BYTE)
    return "\n".join(
        (head, *_totals(sums, codes, commits), *_abouts(goals, sums), *_findings(sums), *_others(blocks, codes))
    )


def _verdict(sums: Mapping[str, Sum]) -> str:
    if not sums:
        return "Nothing has been fuzzed yet."
    inputs = sum(each.counts.inputs + each.guided for each in sums.values())
    found = sum(len(each.found) for each in sums.values())
    linked = sums["linked-routers"].counts.inputs if "linked-routers" in sums else 0
    return f"**{inputs:,} inputs, {linked:,} of them through two linked routers; findings: {found}.**"


def _totals(sums: Mapping[str, Sum], codes: Mapping[str, str], commits: Commits) -> Iterator[str]:
    if not sums:
        return
    yield "## Inputs\n"
    rows = [
        (
            f"`{name}`",
            f"`{codes[name]}`",
            f"{each.runs:,}",
            f"{each.counts.inputs:,}",
            _share(each),
            f"{each.guided:,}",
            f"{each.cpu_s:,.0f}",
            f"{len(each.found)}",
        )
        for name, each in sums.items()
    ]
    headings = ("target", "code", "runs", "inputs", "refused", "coverage-guided inputs", "CPU s", "findings")
    yield markdown_table(headings, rows, numbers_from=2)
    known = sorted({str(commits[codes[name]]) for name in sums if codes[name] in commits})
    if known:
        yield f"*Code* is a hash of what the target executes. It is the code of {' and of '.join(known)}.\n"
    honest = sum(each.counts.honest for each in sums.values())
    if honest:
        yield f"Beside the hostile clients honest ones sent {honest:,} messages: each arrived exactly once.\n"


def _share(found: Sum) -> str:
    inputs = found.counts.inputs
    return f"{100 * found.counts.refused / inputs:.0f} %" if inputs and found.counts.refused else "-"


def _abouts(goals: Mapping[str, Goal], sums: Mapping[str, Sum]) -> Iterator[str]:
    yield "## What goes in, and what must come out\n"
    yield markdown_table(
        ("target", "what"), [(f"`{name}`", cell(goal.target.about)) for name, goal in goals.items() if name in sums]
    )


def _findings(sums: Mapping[str, Sum]) -> Iterator[str]:
    rows = [(f"`{name}`", f"{found.run}", cell(found.what)) for name, each in sums.items() for found in each.found]
    if rows:
        yield "## Findings\n"
        yield markdown_table(("target", "run", "what"), rows)


def _others(blocks: Sequence[Block], codes: Mapping[str, str]) -> Iterator[str]:
    others = {(block.target, block.code): None for block in blocks if block.code != codes[block.target]}
    if not others:
        return
    yield "## Other versions of the code\n"
    rows = []
    for target, code in others:
        found = sum_of(blocks, target, code)
        rows.append((f"`{target}`", f"`{code}`", f"{found.counts.inputs + found.guided:,}", f"{len(found.found)}"))
    yield markdown_table(("target", "code", "inputs", "findings"), rows, numbers_from=2)
