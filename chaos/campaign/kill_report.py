"""What `oncewire chaos mutants` says at its end: a row for each mutant."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from chaos.campaign.kills import Kill, Kills
from chaos.campaign.report import say, table_of


def print_kills(console: Console, kills: Kills) -> None:
    """Print the table, then the survivors, then the verdict in one sentence."""
    rows = [
        [escape(row.name), row.rule, "[bold red]nothing[/bold red]" if row.found_as is None else row.found_as,
         f"{row.tried:,}", escape(row.why)]
        for row in kills.rows
    ]  # fmt: skip
    table = table_of(["mutant", "rule", "found", "seeds", "what the rule is for"], rows, left=3)
    table.columns[4].justify = "left"
    console.print(table)
    for row in kills.rows:
        if not row.is_killed:
            say(console, why_it_lives(row), style="red")
    if kills.is_interrupted:
        say(
            console,
            f"interrupted: {len(kills.rows)} of {kills.total} mutants were tried",
            style="bold yellow",
        )
    style = "green" if kills.killed == kills.total else "bold red"
    say(
        console,
        f"{kills.killed} of {kills.total} mutants killed",
        style="" if kills.is_interrupted else style,
    )


def why_it_lives(row: Kill) -> str:
    """A survivor in one sentence."""
    if row.found_as is None:
        return f"{row.name} survives: no guarantee was broken in {row.tried:,} seeds"
    return f"{row.name} is not shown: at seed {row.tried - 1} the shipped cores fail too: {row.shipped_violation}"
