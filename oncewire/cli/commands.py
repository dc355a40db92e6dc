"""Finds sub-commands by entry point and imports only the one that runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import EntryPoint, entry_points, version

import click
from click.exceptions import NoSuchCommand

from oncewire.cli.errors import CliError

COMMAND_GROUP = "oncewire.commands"
SERVER = "oncewire-server"
"""The package that brings what a client does not need; see docs/reference/dependencies.md."""
ELSEWHERE = {
    **dict.fromkeys(("cluster", "doctor", "drain", "inspect", "local", "logs", "manage", "router", "users"), "router"),
    **dict.fromkeys(("bridge", "edge", "journal", "queue"), "edge"),
    **dict.fromkeys(("chaos", "demo", "demo-journal", "demo-queue", "demo-spark"), "chaos"),
}
"""Its commands, and the extra that brings each."""
_ALL_PARTS = "install the missing package or the extra of Oncewire that includes it; if none is missing, report it"


def installed_commands() -> dict[str, EntryPoint]:
    """Returns the entry points of all installed sub-commands by name; imports none of them.

    Raises:
        CliError: Two installed packages bring different commands of the same name.
    """
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=COMMAND_GROUP):
        known = found.setdefault(entry.name, entry)
        if known.value != entry.value:
            raise CliError(
                what=f"there are two commands named `{entry.name}`",
                why=f"both {known.value} and {entry.value} are installed under that name",
                fix="uninstall the package that you do not need",
            )
    return found


class CommandGroup(click.Group):
    """A click group whose commands come from entry points.

    A command that runs is imported alone: `oncewire version` must not pay for importing a router. Only `--help`
    imports them all, for their help texts.

    Args:
        sources: Returns the entry points by command name; called once, when the first name is looked up.
    """

    def __init__(
        self,
        name: str,
        *,
        help: str,  # noqa: A002  # click's own word
        sources: Callable[[], Mapping[str, EntryPoint]] = installed_commands,
    ) -> None:
        super().__init__(
            name=name, help=help, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110}
        )
        self._find_sources = sources
        self._sources: Mapping[str, EntryPoint] | None = None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command to run.

        Raises:
            CliError: another package has it, and only the client is installed.
            NoSuchCommand: there is none of that name; it names those that are spelled alike.
        """
        try:
            return super().resolve_command(ctx, args)
        except NoSuchCommand as error:  # click has looked at commands that are imported already: none
            if error.command_name in ELSEWHERE:
                raise CliError(
                    f"there is no command `{error.command_name}` here",
                    f"the client of Oncewire is installed; this command is in the package {SERVER}",
                    f'pip install "oncewire[{ELSEWHERE[error.command_name]}]"',
                ) from None
            raise NoSuchCommand(error.command_name, possibilities=self.list_commands(ctx), ctx=ctx) from None

    def _entry_points(self) -> Mapping[str, EntryPoint]:
        if self._sources is None:
            self._sources = self._find_sources()
        return self._sources

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns all names in alphabetical order, importing nothing."""
        return sorted(self._entry_points())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports and returns one command, or None where no command has that name.

        A command that cannot be imported is answered by one that says why when it runs, so that it spoils
        neither the help text nor the other commands.
        """
        entry = self._entry_points().get(cmd_name)
        if entry is None:
            return None
        if entry.dist is not None and entry.dist.name == SERVER and entry.dist.version != version("oncewire"):
            why = f"{SERVER} {entry.dist.version} and oncewire {version('oncewire')} are installed"
            return _unusable_command(cmd_name, why, 'pip install --upgrade "oncewire[router]"')
        try:
            command = entry.load()
        except (ImportError, AttributeError) as error:
            return _unusable_command(cmd_name, f"loading {entry.value} failed: {error}")
        if not isinstance(command, click.Command):
            return _unusable_command(cmd_name, f"{entry.value} is not a click command")
        return command


def _unusable_command(name: str, why: str, fix: str = _ALL_PARTS) -> click.Command:
    """Returns a command that takes any arguments and fails with the reason."""

    def fail(arguments: tuple[str, ...]) -> None:
        raise CliError(f"the command `{name}` cannot be loaded", why, fix)

    return click.Command(
        name,
        callback=fail,
        short_help=f"(cannot be loaded: {why})",
        params=[click.Argument(["arguments"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        add_help_option=False,
    )
