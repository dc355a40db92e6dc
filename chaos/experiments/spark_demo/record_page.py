"""`docs/evidence/spark-kills.md`, written from the ledger alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from chaos.evidence.commits import Commits, in_words
from chaos.evidence.markdown import cell, markdown_table
from chaos.experiments.spark_demo.record_rows import Run

_HEAD = """\
# Kills of Spark jobs

{verdict}

`oncewire chaos spark` writes this page from its ledger (`spark-kills.jsonl`), which has one line for each run of
[the demo](demo-spark.md), with another seed each: what is killed, when, and what is counted stands there. Drivers,
workers with their executors, bridge nodes, edges and routers get a SIGKILL while they are at work. A test fails when
the page says anything else. The page is about the code that it names; `oncewire chaos evidence` lists what has changed
in that code since.

```sh
oncewire chaos spark --kills 200    # goes on where this ledger ends, until it has so many of today's code
```
"""


def write_page(runs: Sequence[Run], code: str, commits: Commits) -> str:
    """The page as text, about one version of the code; other code's numbers are never added to it."""
    ours = [run for run in runs if run.code == code]
    head = _HEAD.format(verdict=_verdict(ours))
    if not ours:
        return head
    machines = "; ".join(sorted({f"Python {run.python} on {run.machine}" for run in ours}))
    parts = [
        head,
        f"{in_words(code, commits)}.\nOnly runs of exactly this code are in these sums. {machines}.\n",
        _table_of_kills(ours),
        _table_of_runs(ours),
    ]
    if failed := [(str(run.seed), cell("; ".join(run.reasons))) for run in ours if not run.passed]:
        parts += ["## Runs that failed\n", markdown_table(("seed", "why"), failed)]
    return "\n".join(parts)


def _verdict(runs: Sequence[Run]) -> str:
    if not runs:
        return "Nothing has been run yet."
    kills = sum(len(run.strikes) for run in runs)
    counts = ", ".join(f"{sum(getattr(run, word) for run in runs):,} {word}" for word in ("lost", "duplicated", "torn"))
    seconds = sum(run.seconds for run in runs)
    return (
        f"**{kills:,} kills: {counts}.** {sum(run.passed for run in runs):,} of {len(runs):,} runs passed. "
        f"A kill took {seconds / max(1, kills):.0f} s, start and end of its run included."
    )


def _table_of_kills(runs: Sequence[Run]) -> str:
    found = Counter((each.what, _during(each.during)) for run in runs for each in run.strikes)
    rows = [(what, during, f"{count:,}") for (what, during), count in sorted(found.items())]
    return markdown_table(("SIGKILL to", "during", "times"), rows, numbers_from=2)


def _during(text: str) -> str:
    """Without the name of a router."""
    return re.sub(r" through (router \S+|it)$", "", text)


def _table_of_runs(runs: Sequence[Run]) -> str:
    headings = ("seed", "kills", "flights", "batches", "lives of the job", "lost", "duplicated", "torn", "seconds")
    rows = [
        (
            f"{run.seed}",
            f"{len(run.strikes)}",
            f"{run.published:,}",
            f"{run.batches}",
            f"{run.driver_starts}",
            f"{run.lost}",
            f"{run.duplicated}",
            f"{run.torn}",
            f"{run.seconds:.0f}",
        )
        for run in runs
    ]
    return markdown_table(headings, rows, numbers_from=0)
