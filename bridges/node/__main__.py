"""`python -m bridges.node`: one bridge node, as `oncewire bridge node` starts it."""

from __future__ import annotations

import sys

import click

from bridges.cli import bridge
from oncewire.cli.run import run

if __name__ == "__main__":
    sys.exit(run(["bridge", "node", *sys.argv[1:]], click.Group(commands={"bridge": bridge})))
