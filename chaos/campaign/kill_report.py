"""What `oncewire chaos mutants` says at its end: a row for each mutant."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from chaos.campaign.kills import Kill, Kills
from chaos.campaign.report import say, table_of


def print_kills(console: Console, kills: Kills) -> None:
    """Print the table, then the survivors, then the verdict in one sentence."""
    rows = [
        [
            escape(row.name),
            row.rule,
            "[bold red]nothing[/bold red]" if row.found_as is None else row.found_as,
            escape(row.first_word),
            f"{row.tried:,}" if row.tried or not row.is_directed else "schedule",
            escape(row.why),
        ]
        for row in kills.rows
    ]
    table = table_of(["mutant", "rule", "found", "judge", "seeds", "what the rule is for"], rows, left=4)
    table.columns[5].justify = "left"
    console.print(table)
    for row in kills.rows:
        if not row.is_killed:
            say(console, why_it_lives(row), style="red")
    for failure in kills.shipped_failures:
        say(console, f"FAILED: {failure}", style="bold red")
    if kills.is_interrupted:
        say(console, f"interrupted: {len(kills.rows)} of {kills.total} mutants were tried", style="bold yellow")
    style = "green" if kills.killed == kills.total else "bold red"
    say(console, f"{kills.killed} of {kills.total} mutants killed", style="" if kills.is_interrupted else style)


def why_it_lives(row: Kill) -> str:
    """A survivor in one sentence."""
    where = f"in {row.tried:,} seeds" if not row.is_directed else "in its written schedule"
    if row.crash is not None:
        return f"{row.name} survives: the edited code crashes, which shows nothing of the rule: {row.crash}"
    if row.shipped_violation is not None:
        return f"{row.name} survives {where}: only where the shipped cores fail too"
    return f"{row.name} survives: no guarantee was broken {where}"
