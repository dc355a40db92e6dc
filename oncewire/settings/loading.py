"""Reads settings from flags, environment and file, in this order of precedence; says clearly what is wrong."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oncewire.cli import variables
from oncewire.cli.errors import CliError
from oncewire.settings.parsers import nearest, without_login
from oncewire.settings.printing import toml
from oncewire.settings.schema import REQUIRED, Setting

DEFAULT = "default"
"""Where a value is from that no source has."""
LONGEST_SHOWN = 200
"""Characters of a key or value in an error: enough to find it, and still a line."""


@dataclass(frozen=True, slots=True)
class Given:
    """The settings in force by name: values, and where each is from (`default`, a file's name, a variable, a flag)."""

    values: Mapping[str, Any]
    sources: Mapping[str, str]


class Schema:
    """The settings of one program, by their names in its code."""

    def __init__(self, settings: Mapping[str, Setting], command: str, *, is_file_only: bool = False) -> None:
        """Describe the settings of a program.

        Args:
            settings: by name.
            command: prints all settings with what is allowed; quoted in errors.
            is_file_only: there are no flags and no variables.
        """
        self.settings = settings
        self._names = {each.key: name for name, each in settings.items()}
        self._tables = {each.table for each in settings.values()} - {""}
        self._depth = max((key.count(".") for key in self._names), default=0)
        self._command = command
        self._is_file_only = is_file_only

    def read(
        self,
        content: Mapping[str, Any],
        file: str,
        flags: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> Given:
        """Merge all sources.

        Args:
            content: of the TOML file.
            file: its name, for errors.
            flags: values of command-line flags by name; None = not given.
            environment: the process' environment.

        Raises:
            CliError: something in a source cannot be used, or a setting is missing.
        """
        flags, environment = flags or {}, environment or {}
        found = {self._name_of(key, file): (value, file) for key, value in self._flat(content)}
        self._check_variables(environment)
        for name, each in self.settings.items():
            if environment.get(each.variable):
                found[name] = (environment[each.variable], each.variable)
            if flags.get(name) is not None:
                found[name] = (flags[name], each.flag)
        values: dict[str, Any] = {}
        for name, each in self.settings.items():
            values[name] = self._parse(each, *found[name]) if name in found else _default(each, file)
        return Given(values, {name: found[name][1] if name in found else DEFAULT for name in self.settings})

    def refusal(self, name: str, value: object, source: str, why: str, fix: str) -> CliError:
        """The error of a value that is right alone and wrong together with others."""
        found = self.settings[name]
        shown = "***" if found.secret else without_login(toml(value))
        return CliError(f"{found.key} = {shown} (from {source}) cannot be used", why, fix)

    def _flat(self, table: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, object]]:
        for name, value in table.items():
            key = prefix + name
            if isinstance(value, dict) and key not in self._names and key.count(".") <= self._depth:
                yield from self._flat(value, key + ".")
            else:
                yield key, value

    def _name_of(self, key: str, file: str) -> str:
        name = self._names.get(key)
        if name is not None:
            return name
        what = f"unknown setting {_shown(key)} in {file}"
        if key in self._tables:
            inside = ", ".join(each for each in self._names if each.startswith(f"{key}."))
            raise CliError(what, f"{key} is a table, its settings stand below [{key}]", f"set one of {inside}")
        raise CliError(what, "there is no such setting", self._suggestion(key, self._names))

    def _check_variables(self, environment: Mapping[str, str]) -> None:
        """A misspelt variable would be ignored silently; those that begin like one of ours are refused.

        `ONCEWIRE_HTTP_URL` begins like the table `http` and belongs to the command line.
        """
        settings = self.settings.values()
        known = {each.variable for each in settings}
        allowed = known | set(variables.PURPOSE)
        beginnings = tuple(each.variable.removesuffix(each.name.upper()) for each in settings if each.table)
        for variable in environment:
            if variable.startswith(beginnings) and variable not in allowed:
                raise CliError(
                    f"unknown environment variable {variable}",
                    "there is no such setting",
                    self._suggestion(variable, known),
                )

    def _suggestion(self, word: str, known: Iterable[str]) -> str:
        close = nearest(word, known)
        hint = f"{self._command} prints every setting with what is allowed"
        return f"did you mean {close}? {hint}" if close else hint

    def _parse(self, found: Setting, value: object, source: str) -> object:
        try:
            return found.parse(value)
        except (ValueError, TypeError, OverflowError, RecursionError):
            shown = "***" if found.secret else _shown(without_login(repr(value)))
            ways = "" if self._is_file_only else f" in the file, {found.flag} or {found.variable}"
            raise CliError(
                f"{found.key} = {shown} (from {source}) cannot be used",
                f"allowed: {found.allowed}",
                f"set {found.key}{ways} to what is allowed",
            ) from None


def read_toml(file: str) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
        CliError: it cannot be read, or is not TOML.
    """
    try:
        with Path(file).open("rb") as stream:
            return tomllib.load(stream)
    except OSError as error:
        raise CliError(
            f"the configuration file {file} cannot be read",
            error.strerror or str(error),
            "give the path of a TOML file",
        ) from None
    except UnicodeDecodeError as error:
        raise CliError(
            f"the configuration file {file} is not TOML",
            f"octet {error.start + 1} is not UTF-8 text",
            "give the path of a TOML file; save it as UTF-8",
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise CliError(f"the configuration file {file} is not TOML", str(error), "fix that line") from None
    except (ValueError, RecursionError):  # of Python itself
        raise CliError(
            f"the configuration file {file} cannot be read",
            "it has a number of thousands of digits, or lists or tables hundreds of levels deep",
            "no setting needs such a value: leave it out",
        ) from None


def _shown(text: str) -> str:
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _default(found: Setting, file: str) -> object:
    if found.default is REQUIRED:
        raise CliError(
            f"{found.key} is missing in {file}",
            f"it is needed: {found.reason[0].lower()}{found.reason[1:]}",
            f"set it to {found.allowed}",
        )
    return found.default
