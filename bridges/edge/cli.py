"""`oncewire edge`: one process with queues, feeds, the outbox and journals."""

from __future__ import annotations

import json
import os

import click

from bridges.edge.settings import FLAGS
from bridges.edge.settings_loading import explain, load, shown
from oncewire.cli.errors import CliError
from oncewire.settings.options_cli import setting_options


@click.group("edge", short_help="Run an edge: queues, feeds and outbox over one store.")
def edge() -> None:
    """Edges remember for those who cannot: they store what they accept (docs/edges.md)."""


@edge.command("serve", short_help="Run one edge.")
@click.option("--config", "-c", "file", metavar="FILE", help="Settings as TOML, with the tables of its parts.")
@click.option("--check", is_flag=True, help="Read the settings, print what would run, and stop.")
@click.option("--print-config", is_flag=True, help="Print every setting with what is allowed, and stop.")
@click.option("--announce", is_flag=True, help="Print one line of JSON on stdout when it is ready.")
@setting_options(FLAGS)
def serve(file: str | None, check: bool, print_config: bool, announce: bool, **flags: object) -> None:
    """Run the parts of FILE until SIGTERM or Ctrl-C, which drains: what the edge owns, another one takes over at once.

    SIGHUP reads FILE again: parts are added, removed and changed, and the others go on.
    """
    if print_config:
        click.echo(explain())
        return
    if file is None:
        raise CliError(
            "no edge can be run",
            "it has no settings",
            "give --config FILE; `oncewire edge serve --print-config` explains what may be in it",
        )
    path = file
    settings = load(path, flags, os.environ)
    if check:
        click.echo(json.dumps(shown(settings), indent=2))
        return
    from bridges.edge.running import run_edge

    run_edge(settings, lambda: load(path, flags, os.environ), announce=announce)
