"""Runs one sub-command and turns every expected failure into three lines and an exit code."""

from __future__ import annotations

from collections.abc import Sequence

import click

from oncewire.cli.commands import CommandGroup
from oncewire.cli.errors import EXIT_MISUSE, CliError, from_usage_error

# What shells report for a program ended by SIGINT: 128 + 2.
EXIT_INTERRUPTED = 130


def root_command() -> CommandGroup:
    """Returns the command `oncewire` with the sub-commands that are installed."""
    group = CommandGroup("oncewire", help="Exactly-once publish-subscribe over a network of AMQP 1.0 routers.")
    return click.version_option(package_name="oncewire", message="oncewire %(version)s")(group)


def run(arguments: Sequence[str], group: click.Group | None = None) -> int:
    """Runs the command line and returns the exit code; prints what a user did wrong, raises none of it.

    Returns:
        0 for success, 2 for misuse or a missing part, 130 after Ctrl-C, and otherwise the number that the
        command returned or gave to `ctx.exit`.
    """
    command = group if group is not None else root_command()
    try:
        result = command.main(args=list(arguments) or ["--help"], prog_name="oncewire", standalone_mode=False)
    except CliError as error:
        error.show()
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        # Like `oncewire` alone: what it offers is the answer.
        click.echo(error.format_message())
        return 0
    except click.UsageError as error:
        from_usage_error(error, _name_of(command, arguments)).show()
        return EXIT_MISUSE
    except click.ClickException as error:
        CliError("the command failed", error.format_message(), "see `oncewire --help`").show()
        return EXIT_MISUSE
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    return result if isinstance(result, int) else 0


def _name_of(group: click.Group, arguments: Sequence[str]) -> str:
    """The command the user called, if it is one: click does not include it in every error."""
    first = arguments[0] if arguments else ""
    return f"oncewire {first}" if first in group.list_commands(click.Context(group)) else "oncewire"
