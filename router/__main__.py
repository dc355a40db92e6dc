"""`python -m router`: one router process, as `oncewire local` starts it."""

from __future__ import annotations

import sys

import click

from oncewire.cli.run import run
from router.commands.cli import router

if __name__ == "__main__":
    sys.exit(run(["router", *sys.argv[1:]], click.Group(commands={"router": router})))
