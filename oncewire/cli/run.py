"""Runs one sub-command and turns every expected failure into three lines and an exit code."""

from __future__ import annotations

from collections.abc import Sequence

import click

from oncewire.cli.commands import CommandGroup
from oncewire.cli.errors import EXIT_MISUSE, CliError, from_usage_error

# What shells report for a program ended by SIGINT: 128 + 2.
EXIT_INTERRUPTED = 130

root_command = CommandGroup(
    name="oncewire",
    help="Exactly-once publish-subscribe over a network of AMQP 1.0 routers.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    no_args_is_help=False,
    invoke_without_command=True,
    callback=lambda: None,
)


def run(arguments: Sequence[str], group: click.Group = root_command) -> int:
    """Runs the command line and returns the exit code; prints errors, raises none that a user can cause.

    Returns:
        0 for success, 2 for misuse or a missing part, 130 after Ctrl-C, and otherwise what the command said.
    """
    try:
        # Without standalone mode click returns what the command returned, or the code given to `ctx.exit`.
        result = group.main(args=list(arguments) or ["--help"], prog_name="oncewire", standalone_mode=False)
    except CliError as error:
        error.show()
        return error.exit_code
    except click.UsageError as error:
        from_usage_error(error).show()
        return EXIT_MISUSE
    except click.ClickException as error:
        CliError("the command failed", error.format_message(), "see `oncewire --help`").show()
        return EXIT_MISUSE
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    return result if isinstance(result, int) else 0
