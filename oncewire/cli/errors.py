"""The one shape of every error a user of the command line sees: what, why, what to do."""

from __future__ import annotations

from typing import IO, Any

import click

# Misuse, bad settings and missing parts. 1 is left for "the command ran, and its verdict is no".
EXIT_MISUSE = 2


class CliError(click.ClickException):
    """Ends a command with three plain lines on stderr and exit code 2, without a traceback.

    Args:
        what: What could not be done, naming the thing ("cannot listen on 127.0.0.1:5672").
        why: The cause as far as it is known ("the port is in use").
        fix: What to do about it ("stop the other program, or give --listen another port").
    """

    exit_code = EXIT_MISUSE

    def __init__(self, what: str, why: str, fix: str) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.fix = fix

    def lines(self) -> tuple[str, str, str]:
        """Returns the three lines as they are printed."""
        return (f"error: {self.what}", f"why: {self.why}", f"what to do: {self.fix}")

    def show(self, file: IO[Any] | None = None) -> None:
        """Prints the three lines to stderr, or to `file` where one is given."""
        for line in self.lines():
            click.echo(line, file=file, err=True)


def from_usage_error(error: click.UsageError, called: str = "oncewire") -> CliError:
    """Turns click's complaint about options or arguments into the shape of all our errors.

    Args:
        error: The complaint.
        called: The command, for complaints that do not name it.
    """
    command = error.ctx.command_path if error.ctx is not None else called
    return CliError(
        what=f"`{command}` cannot be run as it was typed",
        why=error.format_message(),
        fix=f"see `{command} --help` for what it accepts",
    )
