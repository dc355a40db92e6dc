"""What a campaign is to reach, and how far one is."""

from __future__ import annotations

from chaos.campaign.mutants_table import MutantsTable
from chaos.campaign.tally import Tally

SEEDS = 100_000
SIMULATED_HOURS = 10_000
DELIVERIES = 10_000_000


def is_large_enough(tally: Tally) -> bool:
    """Whether as much was run as a campaign is to run."""
    return not _too_few(tally)


def _too_few(tally: Tally) -> list[str]:
    return [
        f"{done:,.0f} of {wanted:,} {what}"
        for done, wanted, what in (
            (tally.seeds, SEEDS, "seeds"),
            (int(tally.simulated_hours), SIMULATED_HOURS, "simulated hours"),
            (tally.deliveries, DELIVERIES, "checked deliveries"),
        )
        if done < wanted
    ]


def lacking(tally: Tally, table: MutantsTable) -> list[str]:
    """What is not reached yet, in words; empty when the campaign is done.

    Args:
        tally: all blocks of one version of the code.
        table: what came of the mutants.
    """
    left = _too_few(tally)
    if not tally.is_clean:
        left.append(f"{tally.found.total():,} seeds broke a guarantee")
    if tally.never_met:
        left.append(f"{len(tally.never_met)} situations never met")
    if table.killed < len(table.names) or not table.names:
        left.append(f"{table.killed} of {len(table.names)} mutants killed")
    if table.shipped_failures:
        left.append(f"the shipped cores broke a guarantee at {len(table.shipped_failures)} mutants")
    return left


def goals(tally: Tally, table: MutantsTable) -> str:
    """One sentence: reached, or how far it is."""
    left = lacking(tally, table)
    if left:
        return f"The goals are not reached yet: {'; '.join(left)}."
    return (
        f"The goals are reached: at least {SEEDS:,} seeds, {SIMULATED_HOURS:,} simulated hours and {DELIVERIES:,} "
        "checked deliveries, nothing found, every situation met, every mutant killed."
    )
