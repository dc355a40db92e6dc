"""``python -m oncewire.testing.resume``: run the scenarios against the programs of a client."""

from __future__ import annotations

import asyncio
import sys

import click

from oncewire.testing.resume.playing import PATIENCE_S, play


@click.command()
@click.option("--publisher", help="Command of the program that publishes; URLS TOPIC COUNT FOLDER is added to it.")
@click.option("--subscriber", help="Command of the program that subscribes; the same is added.")
@click.option("--only", multiple=True, help="Scenarios with this text in their claim; may be repeated.")
@click.option("--patience", default=PATIENCE_S, show_default=True, help="Seconds a program may take for its next step.")
def main(publisher: str | None, subscriber: str | None, only: tuple[str, ...], patience: float) -> None:
    """Judge whether a client resumes as the resume profile asks. Exit code 1: a claim is broken."""
    commands = {"publisher": publisher, "subscriber": subscriber}
    if not any(commands.values()):
        raise click.UsageError("name a program: --publisher, --subscriber, or both")
    sys.exit(asyncio.run(_play(commands, only, patience)))


async def _play(commands: dict[str, str | None], only: tuple[str, ...], patience_s: float) -> int:
    broken = played = 0
    for role, command in commands.items():
        if command is None:
            continue
        async for verdict in play(role, command, only, patience_s):
            click.echo(str(verdict))
            played += 1
            broken += bool(verdict.broken)
    click.echo(f"{played - broken} of {played} claims hold")
    return 1 if broken or not played else 0
