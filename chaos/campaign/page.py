"""`docs/evidence/simulation.md`, written from the ledger, the table of mutants and the corpus alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chaos.campaign.corpus import Found
from chaos.campaign.ledger import Block, total_of
from chaos.campaign.mutants_table import MutantsTable
from chaos.campaign.report import WORDS
from chaos.campaign.tally import FINDINGS, Tally
from chaos.simulator.coverage import expected
from chaos.simulator.schedule import HEALING_S

MAX_FAILING_SHOWN = 50

_HEAD = """\
# The simulator's campaign

`oncewire chaos campaign` writes this page from its ledger (`simulation.jsonl`) and the table of mutants
(`mutants.json`), both beside it, and from the corpus (`chaos/simulator/corpus.toml`). A test fails when it says
anything else.

Each seed draws a world of its own kind: how many routers, publishers and subscribers, how they behave, which faults
happen and how often. The shipped cores of routers and clients run in it under virtual time. Every delivery is checked
when it is processed. Then the faults stop, and everything must come to rest within {rest} virtual seconds with
nothing owed and nothing kept. A run ends at its first violation, so *lost* and its neighbours count runs.

To repeat it:

```
make campaign                                            # goes on where this ledger ends, then the demo twenty times
oncewire chaos simulate --first-seed 0 --seeds 1000      # the same seeds on your machine give the same numbers
oncewire chaos mutants                                   # every rule taken out, one at a time
```
"""


def write_page(blocks: Sequence[Block], table: MutantsTable, corpus: Sequence[Found]) -> str:
    """The page as text. The last block's code is today's; other code's numbers are never added to it."""
    parts = [_HEAD.format(rest=f"{3 * HEALING_S:.0f}")]
    if blocks:
        code = blocks[-1].code
        parts += _totals([block for block in blocks if block.code == code], total_of(blocks, code), code)
    else:
        parts.append("No seed has been run yet.\n")
    parts += _mutants(table, blocks[-1].code if blocks else "")
    parts += _corpus(corpus)
    parts += _earlier(blocks)
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
        f"Code version `{code}`, a hash of the {_SOURCES}: only seeds run with exactly this code are in these sums.",
        f"{machines}.\n",
        _table(("", "number"), rows),
        "## Faults by kind\n",
        _table(
            ("fault", "times"), [(f"`{name}`", f"{count:,}") for name, count in sorted(tally.faults.items())]
        ),
    ]
    names = sorted({*expected(), *tally.coverage})
    met = [(_cell(name), f"{n:,}" if (n := tally.coverage[name]) else "**never**") for name in names]
    parts += [
        "## Situations met\n",
        "A campaign must meet each of these.\n",
        _table(("situation", "times"), met),
    ]
    if tally.failing:
        failing = [
            (f"{each.seed}", each.found_as, _cell(each.violation))
            for each in tally.failing[:MAX_FAILING_SHOWN]
        ]
        parts += ["## Failing seeds\n", _table(("seed", "found", "violation"), failing)]
    return parts


_SOURCES = "source files that a simulated run executes, cores and simulator alike"


def _mutants(table: MutantsTable, code: str) -> list[str]:
    parts = ["## Mutants\n"]
    if not table.names:
        return [*parts, "None has been tried yet.\n"]
    parts.append(
        f"**{table.killed} of {len(table.names)} killed.** Each takes one rule out of the cores; *seeds* is how many "
        f"worlds it took to find out, of at most {table.seeds_each:,}; the shipped cores keep every guarantee there."
    )
    parts.append(_of_version(table.code, code))
    if untried := [name for name in table.names if name not in table.rows]:
        parts.append(f"Not tried to the end yet: {', '.join(f'`{name}`' for name in untried)}.\n")
    rows = [
        (
            f"`{row.name}`", row.rule, (row.found_as or "nothing") if row.is_killed else "**survives**",
            f"{row.tried:,}", _cell(row.why),
        )
        for row in table.ordered()
    ]  # fmt: skip
    return [*parts, _table(("mutant", "rule", "found as", "seeds", "what the rule is for"), rows)]


def _of_version(code: str, todays: str) -> str:
    return f"Code version `{code}`{', as above' if code == todays else ''}.\n"


def _corpus(corpus: Sequence[Found]) -> list[str]:
    rows = [
        (
            f"[{each.finding}](../counterexamples.md)" if each.finding else "",
            "" if each.seed is None else f"{each.seed} (code `{each.code}`)", _cell(each.violation), _cell(each.what),
            _cell(each.fixed_by), f"`{each.scenario}`" if each.scenario else "",
        )
        for each in corpus
    ]  # fmt: skip
    return [
        "## What it found in our own code\n",
        "Every fault that the simulator found on the way to what is shipped. Each seed runs clean today, as a test",
        "checks. Where no seed stands nobody kept it; a scenario that is named holds the schedule itself.\n",
        _table(("finding", "seed", "violation", "what was wrong", "fixed by", "scenario"), rows),
    ]


def _earlier(blocks: Sequence[Block]) -> list[str]:
    codes = [code for code in dict.fromkeys(block.code for block in blocks) if code != blocks[-1].code]
    if not codes:
        return []
    rows = []
    for code in codes:
        tally = total_of(blocks, code)
        found = (
            ", ".join(f"{tally.found[word]} {word}" for word in FINDINGS if tally.found[word]) or "nothing"
        )
        rows.append(
            (f"`{code}`", f"{tally.seeds:,}", f"{tally.simulated_hours:,.0f}", f"{tally.deliveries:,}", found)
        )
    return [
        "## Earlier versions of the code\n",
        "Not in the sums above.\n",
        _table(("code", "seeds", "simulated hours", "deliveries checked", "found"), rows),
    ]


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
