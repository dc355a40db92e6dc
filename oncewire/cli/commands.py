"""Finds sub-commands by entry point and imports only the one that runs."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points

import click

from oncewire.cli.errors import CliError

COMMAND_GROUP = "oncewire.commands"


def installed_commands() -> dict[str, EntryPoint]:
    """Returns the entry points of all installed sub-commands by name; imports none of them.

    Raises:
        CliError: Two installed packages bring a command of the same name.
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

    `--help` and name completion need every name, and help texts need every module, but a command that runs is
    loaded alone: `oncewire version` must not pay for importing a router.
    """

    def __init__(self, *, sources: Mapping[str, EntryPoint] | None = None, **attributes: object) -> None:
        super().__init__(**attributes)  # type: ignore[arg-type]  # click's own keyword arguments, passed on
        self._sources = sources

    @property
    def sources(self) -> Mapping[str, EntryPoint]:
        """The entry points by command name; looked up once."""
        if self._sources is None:
            self._sources = installed_commands()
        return self._sources

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns all names in alphabetical order, importing nothing."""
        return sorted(self.sources)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports and returns one command, or None where no command has that name.

        Raises:
            CliError: The command is installed but its module cannot be imported.
        """
        entry = self.sources.get(cmd_name)
        if entry is None:
            return None
        try:
            command = entry.load()
        except ImportError as error:
            raise CliError(
                what=f"the command `{cmd_name}` cannot be loaded",
                why=f"importing {entry.value} failed: {error}",
                fix=f"install Oncewire with the extra the command needs, or without it: pip install {_wanted(error)}",
            ) from error
        if not isinstance(command, click.Command):
            raise CliError(
                what=f"the command `{cmd_name}` cannot be loaded",
                why=f"{entry.value} is a {type(command).__name__}, not a click command",
                fix="report this to whoever made the package that brings the command",
            )
        return command


def _wanted(error: ImportError) -> str:
    return (error.name or "oncewire").partition(".")[0]
