"""`docs/evidence/chaos.md`, written from the ledger alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from chaos.evidence.commits import Commits, in_words
from chaos.evidence.markdown import cell, markdown_table
from chaos.experiments.catalogue import MIXED, catalogue
from chaos.experiments.plans import HELD_S, STEADY, UNSETTLED_AT_FAULT
from chaos.experiments.results import COUNTS, percentiles
from chaos.network.recovery import BEHIND_S, CALM_S
from chaos.record.plots import BY_KIND, BY_PLACE
from chaos.record.runs import FiredRound, Run, recorded_code, runs_of

_HEAD = """\
# Faults on real processes

{verdict}

`oncewire chaos record` writes this page and its plots from its ledger (`chaos.jsonl`), which has one line for
each run of an experiment. A test fails when the page says anything else. The page is about the code that it names;
`oncewire chaos evidence` lists what has changed in that code since.

Three router processes, an etcd of one or three, three publishers that send {rate:.0f} messages a second each,
and four subscribers, one of them to all three topics; in `shared` and `shared-leave` they are four members of one
subscription to all three, whose order is promised, and judged, within groups alone. What members had processed that
never come back may be processed once more by another one, with the sign that it comes again; that is not
counted as *duplicated*. Every connection leads through a real Toxiproxy: those of
clients, those between routers, those with etcd. An experiment breaks this in rounds:

- A round begins when every client is attached and has caught up, and at least {unsettled} deliveries are
  unsettled through the target of each of its faults (*fewest unsettled* says how many there were at least). A
  fault that does not fire, or meets fewer, fails the run.
- In the end publishers stop, everything must come to rest, and the clients' journals are judged against what
  was sent: *lost*, *duplicated*, *reordered*, *stuck* are counted over the runs a kind of fault took part in.

**Recovery** is the time from a fault's beginning until every subscription gets what its publishers send at
their rate again, all that had piled up included: until no message that was sent more than {behind:.0f} ms ago
is still to arrive, and nothing new gets late within {calm:g} s after that and after the fault's end. 0 means
that no message was late. A fault lasts for a while by design (*whole again*: until connections pass everything
on and processes are ready again, median); where there is no other way, recovery cannot be shorter than that.
*Longest wait* is the longest time for which a subscription got nothing from a publisher whose messages were
outstanding. All times are in seconds; p50 and p95 are measured values (nearest rank).

What the names mean: a partition is *cut* (connections are closed, new ones refused), *silent* (what is sent is
swallowed, connections end when it ends) or *held* (nothing gets through for {held:g} s, then all of it comes);
*inward* and *outward* faults hit one direction, seen from the router that is hit, of a link between two from
the one that was dialed. *No other way*: the routers are a chain. *Beyond the lease*: for longer than etcd keeps
a router's key without hearing of it, so that it gives itself up. *full disk*: no file of a client may grow any
more (RLIMIT_FSIZE, so that the error is EFBIG where a disk that is full gives ENOSPC) until its journal has
failed and the client has ended; then it is started again with room. A router process that was killed or ended
is started again after two seconds or half a second, a client after one.

To repeat it:

```sh
make tools                                    # Toxiproxy, and what draws the plots
oncewire chaos run --list                     # the experiments: every fault with its values
oncewire chaos run all                        # each of them once
oncewire chaos run kill --seed 7 --keep DIR   # one of the runs below, with journals, logs and timeline
oncewire chaos record                         # goes on where this ledger ends
```
"""


def write_page(runs: Sequence[Run], commits: Commits) -> str:
    """The page as text, about `recorded_code`; other code's numbers are never added to it."""
    code = recorded_code(runs)
    ours = runs_of(runs, code)
    head = _HEAD.format(
        verdict=_verdict(ours),
        rate=STEADY.rate,
        unsettled=UNSETTLED_AT_FAULT,
        behind=BEHIND_S * 1000,
        calm=CALM_S,
        held=HELD_S,
    )
    if not runs:
        return head
    parts = [head, *_failed(ours), *_totals(ours, in_words(code, commits)), *_kinds(ours), *_plots(), *_drawn(ours)]
    parts += _others(runs, code)
    return "\n".join(parts)


def _verdict(runs: Sequence[Run]) -> str:
    if not runs:
        return "No experiment has been run yet."
    faults = sum(run.faults for run in runs)
    counts = ", ".join(f"{sum(getattr(run, word) for run in runs):,} {word}" for word in COUNTS)
    passed = sum(run.passed for run in runs)
    return f"**{faults:,} faults: {counts}.** {passed:,} of {len(runs):,} runs of experiments passed."


def _failed(runs: Sequence[Run]) -> list[str]:
    rows = [(run.experiment, str(run.seed), cell("; ".join(run.reasons))) for run in runs if not run.passed]
    return ["## Runs that failed\n", markdown_table(("experiment", "seed", "why"), rows)] if rows else []


def _totals(runs: Sequence[Run], code: str) -> list[str]:
    machines = "; ".join(sorted({f"Python {run.python} on {run.machine}, {run.software}" for run in runs}))
    rows = [
        ("runs of experiments", f"{len(runs):,}"),
        ("faults", f"{sum(run.faults for run in runs):,}"),
        ("messages accepted", f"{sum(run.accepted for run in runs):,}"),
        *((word, f"**{sum(getattr(run, word) for run in runs):,}**") for word in (*COUNTS, "unexpected")),
        ("links resumed", f"{sum(run.resumed_links for run in runs):,}"),
        ("deliveries handed over again, and recognised", f"{sum(run.redelivered for run in runs):,}"),
        ("processed by a second member, flagged, where one had left", f"{sum(run.repeated for run in runs):,}"),
        ("incarnations given up by living routers (K-3)", f"{sum(run.fenced for run in runs):,}"),
        ("hours", f"{sum(run.seconds for run in runs) / 3600:.1f}"),
    ]
    return [
        "## Totals\n",
        f"{code}.",
        "The version is a hash of all that routers, clients and experiments execute: only runs of exactly this code",
        f"are in these sums. {machines}.\n",
        markdown_table(("", "number"), rows, numbers_from=1),
    ]


def _kinds(runs: Sequence[Run]) -> list[str]:
    parts = ["## By kind of fault\n"]
    headings = (
        "fault",
        "faults",
        *COUNTS,
        "fewest unsettled",
        "whole again",
        "recovery p50",
        "p95",
        "max",
        "longest wait",
    )
    for name, experiment in catalogue(runs[0].seed).items():
        mine = [run for run in runs if run.experiment == name]
        if not mine:
            continue
        kinds = dict.fromkeys(each.kind for run in mine for each in run.rounds)
        rows = [_row(kind, mine) for kind in (sorted(kinds) if name == MIXED else kinds)]
        parts += [f"### {name}\n", f"{cell(experiment.summary)}.\n", markdown_table(headings, rows, numbers_from=1)]
    return parts


def _row(kind: str, runs: Sequence[Run]) -> tuple[str, ...]:
    rounds = [each for run in runs for each in run.rounds if each.kind == kind]
    took_part = [run for run in runs if any(each.kind == kind for each in run.rounds)]
    recovery = percentiles([each.recovery_ms / 1000 for each in rounds])
    faults = [fault for each in rounds for fault in each.faults]
    return (
        kind,
        str(len(faults)),
        *(str(sum(getattr(run, word) for run in took_part)) for word in COUNTS),
        str(min(fault.unsettled_then for fault in faults)),
        _seconds(percentiles([each.repaired_ms / 1000 for each in rounds])["p50"]),
        *(_seconds(recovery[part]) for part in ("p50", "p95", "max")),
        _seconds(max(each.longest_wait_ms for each in rounds)),
    )


def _plots() -> list[str]:
    return [
        "## Plots\n",
        f"![Recovery time of each fault, by kind]({BY_KIND})\n",
        f"![Share of faults after which all was well again within a time, by what they took hold of]({BY_PLACE})\n",
    ]


def _drawn(runs: Sequence[Run]) -> list[str]:
    """What `random` consisted of: its rounds are counted by their size above."""
    counted = Counter(fault.kind for each in _rounds(runs, MIXED) for fault in each.faults)
    if not counted:
        return []
    rows = [(kind, str(number)) for kind, number in sorted(counted.items())]
    return [f"## What `{MIXED}` drew\n", markdown_table(("fault", "times"), rows, numbers_from=1)]


def _rounds(runs: Iterable[Run], experiment: str) -> list[FiredRound]:
    return [each for run in runs if run.experiment == experiment for each in run.rounds]


def _others(runs: Sequence[Run], code: str) -> list[str]:
    codes = [each for each in dict.fromkeys(run.code for run in runs) if each != code]
    rows = []
    for each in codes:
        mine = runs_of(runs, each)
        found = ", ".join(f"{number} {word}" for word in COUNTS if (number := sum(getattr(run, word) for run in mine)))
        numbers = (len(mine), sum(run.faults for run in mine), sum(not run.passed for run in mine))
        rows.append((f"`{each}`", *map(str, numbers), found or "nothing"))
    if not rows:
        return []
    return [
        "## Other versions of the code\n",
        "Not in the numbers above.\n",
        markdown_table(("code", "runs", "faults", "failed runs", "found"), rows),
    ]


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.2f}" if milliseconds else "0"
