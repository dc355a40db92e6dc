"""Commands that work on a store, run inside the test."""

from __future__ import annotations

import json
from typing import Any

import click
from click.testing import CliRunner

from oncewire.cli.run import run


class Shell:
    """Runs commands of a group on one store."""

    def __init__(self, group: click.Group, url: str) -> None:
        self.group = group
        self.url = url

    def run(self, *words: str, code: int = 0, stdin: bytes = b"") -> str:
        """What a command prints."""
        with CliRunner().isolation(input=stdin) as streams:
            got = run([*words, "--store", self.url], self.group)
            output = streams[-1].getvalue().decode()
        assert got == code, output
        return output

    def json(self, *words: str, code: int = 0, stdin: bytes = b"") -> Any:
        """Its lines as objects."""
        lines = self.run(*words, "--json", code=code, stdin=stdin).splitlines()
        return [json.loads(line) for line in lines]
