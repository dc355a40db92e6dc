"""`docs/evidence/simulation.md`, written from the summary, the table of mutants and the corpus alone."""

from __future__ import annotations

from collections.abc import Sequence

from chaos.campaign.corpus import Found
from chaos.campaign.goals import goals
from chaos.campaign.kills import SCENARIOS
from chaos.campaign.ledger import Block, total_of
from chaos.campaign.mutants_table import MutantsTable
from chaos.campaign.report import WORDS
from chaos.campaign.summary import codes_of, recorded_code
from chaos.campaign.tally import FINDINGS, Tally
from chaos.evidence.commits import Commits, in_words
from chaos.evidence.markdown import cell, markdown_table
from chaos.mutants.catalogue import LATER, WITHOUT
from chaos.simulator.schedule import HEALING_S

MAX_FAILING_SHOWN = 50

_HEAD = """\
# The simulator's campaign

{goals}

`oncewire chaos campaign` writes this page from its summary (`simulation.json`) and the table of mutants
(`mutants.json`), both beside it, and from the corpus (`chaos/simulator/corpus.toml`). A test fails when it says
anything else. The summary is what the campaign's ledger comes to, which has a line for each block of 1,000 seeds and is
not part of the repository.

The page is about the code that it names. `oncewire chaos evidence` lists what has changed in that code since. The code
as it is runs through some hundred seeds in each test run.

Each seed draws a world of its own kind: how many routers, publishers and subscribers, how they behave, which faults
happen and how often. The shipped cores of routers and clients run in it under virtual time. Every delivery is checked
when it is processed. Then the faults stop, and everything must come to rest within {rest} virtual seconds with
nothing owed and nothing kept. A run ends at its first violation, so *lost* and its neighbours count runs.

To repeat it:

```sh
make campaign                                            # goes on where this one ended, then the demo twenty times
oncewire chaos simulate --first-seed 0 --seeds 1000      # the same seeds on your machine give the same numbers
oncewire chaos mutants                                   # every rule taken out, one at a time
```
"""


def write_page(blocks: Sequence[Block], table: MutantsTable, corpus: Sequence[Found], commits: Commits) -> str:
    """The page as text, about `recorded_code`; other code's numbers are never added to it."""
    code = recorded_code(blocks)
    tally = total_of(blocks, code)
    parts = [_HEAD.format(goals=goals(tally, table), rest=f"{3 * HEALING_S:.0f}")]
    if blocks:
        parts += _totals([block for block in blocks if block.code == code], tally, in_words(code, commits))
    else:
        parts.append("No seed has been run yet.\n")
    parts += _mutants(table, in_words(table.catalogue, commits))
    parts += _directed(table)
    parts += _without()
    parts += _corpus(corpus)
    parts += _others(blocks, code)
    return "\n".join(parts)


def _totals(blocks: Sequence[Block], tally: Tally, code: str) -> list[str]:
    machines = "; ".join(sorted({f"Python {block.python} on {block.machine}" for block in blocks}))
    rows = [
        ("seeds", f"{tally.seeds:,}"),
        ("simulated hours", f"{tally.simulated_hours:,.0f}"),
        ("messages attempted", f"{tally.attempted:,}"),
        ("messages acknowledged", f"{tally.acknowledged:,}"),
        ("deliveries checked", f"{tally.deliveries:,}"),
        *((WORDS.get(word, word), f"**{tally.found[word]:,}**") for word in FINDINGS),
        ("faults", f"{tally.faults.total():,}"),
        ("steps", f"{tally.steps:,}"),
        ("CPU hours", f"{tally.cpu_s / 3600:,.2f}"),
        ("checked deliveries per CPU second", f"{tally.deliveries_per_cpu_s:,.0f}"),
        ("largest process", f"{tally.memory_mb:,} MiB"),
    ]
    parts = [
        "## Totals\n",
        f"{code}.",
        "The version is a hash of the source files that a simulated run executes, cores and simulator alike: only",
        "seeds run with exactly this code are in these sums. `oncewire chaos simulate --json` names the version of the",
        f"code as it is. {machines}.\n",
        markdown_table(("", "number"), rows),
        "## Faults by kind\n",
        markdown_table(
            ("fault", "times"), [(f"`{name}`", f"{count:,}") for name, count in sorted(tally.faults.items())]
        ),
    ]
    met = [(cell(name), f"{n:,}" if n else "**never**") for name, n in sorted(tally.coverage.items())]
    parts += [
        "## Situations met\n",
        "A campaign must meet each of these.\n",
        markdown_table(("situation", "times"), met),
    ]
    if tally.failing:
        failing = [(f"{each.seed}", each.found_as, cell(each.violation)) for each in tally.failing[:MAX_FAILING_SHOWN]]
        parts += ["## Failing seeds\n", markdown_table(("seed", "found", "violation"), failing)]
    return parts


def _mutants(table: MutantsTable, code: str) -> list[str]:
    parts = ["## Mutants\n"]
    if not table.names:
        return [*parts, "None has been tried yet.\n"]
    parts.append(
        f"**{table.killed} of {len(table.names)} killed.** Each takes one rule out of the cores; *seeds* is how many "
        f"worlds it took to find out, of at most {table.seeds_each:,}; the shipped cores keep every guarantee there. "
        "*Judge* is the first word of what was broken; an edit whose code just crashes counts as a survivor."
    )
    parts += [f"**{failure}**\n" for failure in table.shipped_failures]
    parts.append(f"{code}. That is a hash of the same files and of the catalogue of mutants.\n")
    if untried := [name for name in table.names if name not in table.rows]:
        parts.append(f"Not tried to the end yet: {', '.join(f'`{name}`' for name in untried)}.\n")
    rows = [
        (f"`{row.name}`", row.rule, row.found_as or "**survives**", row.first_word, f"{row.tried:,}", cell(row.why))
        for row in table.ordered()
        if not row.is_directed
    ]
    return [*parts, markdown_table(("mutant", "rule", "found as", "judge", "seeds", "what the rule is for"), rows)]


def _directed(table: MutantsTable) -> list[str]:
    rows = [
        (
            f"`{row.name}`",
            row.rule,
            row.found_as or "**survives**",
            row.first_word,
            f"[schedule](../../{SCENARIOS}/{row.name}.txt)",
            cell(row.why),
        )
        for row in table.ordered()
        if row.is_directed
    ]
    return [
        "### Shown by a written schedule\n",
        "These need several things in one order that no seed hits; the schedule is replayed, with and without rule.\n",
        markdown_table(("mutant", "rule", "found as", "judge", "schedule", "what the rule is for"), rows),
    ]


def _without() -> list[str]:
    rows = [(rule, cell(elsewhere.reason), f"`tests/{elsewhere.test}`") for rule, elsewhere in sorted(WITHOUT.items())]
    not_built = f" {', '.join(sorted(LATER))} are not built." if LATER else ""
    return [
        "### Rules without a mutant\n",
        f"No edit takes these out, or no guarantee shows their absence.{not_built}\n",
        markdown_table(("rule", "why", "test"), rows),
    ]


def _corpus(corpus: Sequence[Found]) -> list[str]:
    rows = [
        (
            f"[{each.finding}](../counterexamples.md)" if each.finding else "",
            "" if each.seed is None else f"{each.seed} (code `{each.code}`)",
            cell(each.violation),
            cell(each.what),
            cell(each.fixed_by),
            f"`{each.scenario}`" if each.scenario else "",
        )
        for each in corpus
    ]
    return [
        "## What it found in our own code\n",
        "Every fault that the simulator found on the way to what is shipped. Each seed runs clean today, as a test",
        "checks. Where no seed stands nobody kept it; a scenario that is named holds the schedule itself.\n",
        markdown_table(("finding", "seed", "violation", "what was wrong", "fixed by", "scenario"), rows),
    ]


def _others(blocks: Sequence[Block], recorded: str) -> list[str]:
    codes = [code for code in codes_of(blocks) if code != recorded]
    if not codes:
        return []
    rows = []
    for code in codes:
        tally = total_of(blocks, code)
        found = ", ".join(f"{tally.found[word]} {word}" for word in FINDINGS if tally.found[word]) or "nothing"
        rows.append((f"`{code}`", f"{tally.seeds:,}", f"{tally.simulated_hours:,.0f}", f"{tally.deliveries:,}", found))
    return [
        "## Other versions of the code\n",
        "Not in the sums above; the one that was run last stands at the end.\n",
        markdown_table(("code", "seeds", "simulated hours", "deliveries checked", "found"), rows),
    ]
