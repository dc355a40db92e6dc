"""`oncewire users`: the file of the setting `users_file`. Passwords come from a prompt or the standard input."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from oncewire.cli import users_file
from oncewire.cli.errors import CliError


@click.group("users", short_help="Add, change, remove and list the users of a file.")
def users() -> None:
    """Change the file that the setting users_file names; a router reads it again at SIGHUP or `oncewire manage reload`.

    The file has keys of SCRAM and no passwords. A password is asked for, or read as one line from the standard input.
    """


_FILE = click.argument("file", type=click.Path(dir_okay=False))
_NAME = click.argument("name")


@users.command("add")
@_FILE
@_NAME
def add(file: str, name: str) -> None:
    """Add a user; FILE is made where there is none."""
    known = users_file.read(file) if Path(file).exists() else {}
    name = _checked(name)
    if name in known:
        raise CliError(f"user {name} cannot be added", f"{file} has it", f"oncewire users password {file} {name}")
    lines = users_file.read_lines(file) if Path(file).exists() else []
    users_file.write(file, [*lines, _line(name)])
    click.echo(f"added {name}")


@users.command("password")
@_FILE
@_NAME
def password(file: str, name: str) -> None:
    """Give a user another password; also where its line cannot be read."""
    lines, number = _find(file, name)
    lines[number] = _line(_checked(name))
    users_file.write(file, lines)
    click.echo(f"changed {name}")


@users.command("remove")
@_FILE
@_NAME
def remove(file: str, name: str) -> None:
    """Remove a user; the router closes its connections when it reads the file again."""
    lines, number = _find(file, name)
    del lines[number]
    users_file.write(file, lines)
    click.echo(f"removed {name}")


@users.command("list")
@_FILE
@click.option("--json", "as_json", is_flag=True, help="Print one line of JSON.")
def list_(file: str, as_json: bool) -> None:
    """Print the names of the users, one a line."""
    names = sorted(users_file.read(file))
    for line in [json.dumps({"users": names})] if as_json else names:
        click.echo(line)


def _find(file: str, name: str) -> tuple[list[str], int]:
    lines = users_file.read_lines(file)
    for number, line in enumerate(lines):
        if users_file.is_user(line) and line.split()[0] == name:
            return lines, number
    raise CliError(f"there is no user {name}", f"{file} has no line for it", f"oncewire users add {file} {name}")


def _checked(name: str) -> str:
    try:
        return users_file.check_name(name)
    except ValueError as error:
        raise CliError(f"{name!r} cannot be a user", str(error), "choose another name") from None


def _line(name: str) -> str:
    if sys.stdin.isatty():
        word = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        word = sys.stdin.readline().rstrip("\n")
    try:
        return users_file.line_of(name, word)
    except ValueError as error:
        raise CliError(f"{name} cannot have this password", str(error), "choose another one") from None
