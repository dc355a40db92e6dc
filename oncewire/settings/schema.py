"""How one setting is described: the one schema behind file, flags, environment, printed settings and reference."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, Final

from oncewire.settings.parsers import Parser

_METADATA_KEY = "setting"
REQUIRED: Final = object()
"""In place of a default."""


class Applies(Enum):
    """When a setting that was changed in the file takes effect, for programs that reload their settings."""

    NOW = "now"
    """At once, for everything there is."""
    NEW = "new connections"
    """For client connections made from then on."""
    RESTART = "restart"
    """When the process starts again; until then the old value holds."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        key: dotted name in the TOML file, for example `listen.port`.
        parse: checks and converts what a source gave.
        default: its value where no source has it, or REQUIRED.
        allowed: for people: what may be set, with its unit.
        reason: for people: what it is for and why the default is what it is.
        secret: never printed.
        applies: when a changed value takes effect.
        is_table: a TOML table of names and texts; its value is a tuple of pairs.
        program: begins the names of its variables; empty = the router's.
    """

    key: str
    parse: Parser
    default: object
    allowed: str
    reason: str
    secret: bool = False
    applies: Applies = Applies.RESTART
    is_table: bool = False
    program: str = ""

    @property
    def table(self) -> str:
        """The TOML table it stands in; empty = in none."""
        return self.key.rpartition(".")[0]

    @property
    def name(self) -> str:
        """Its name in that table."""
        return self.key.rpartition(".")[2]

    @property
    def flag(self) -> str:
        """The command-line flag, for example `--listen-port`."""
        return "--" + self.key.replace(".", "-").replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable, for example `ONCEWIRE_LISTEN_PORT`, of an edge `ONCEWIRE_EDGE_HTTP_PORT`."""
        words = self.key.split(".")
        if self.program and words[0] != self.program:
            words = [self.program, *words]
        return "_".join(["ONCEWIRE", *words]).upper()


def setting(
    key: str,
    parse: Parser,
    default: object,
    allowed: str,
    reason: str,
    *,
    secret: bool = False,
    applies: Applies = Applies.RESTART,
    is_table: bool = False,
) -> Any:
    """A field of a dataclass that is a setting; its name in code is the field's. Mutable defaults must be tuples."""
    described = Setting(key, parse, default, allowed, reason, secret, applies, is_table)
    return field(default=default, repr=not secret, metadata={_METADATA_KEY: described})


def settings_of(config_class: type) -> dict[str, Setting]:
    """The settings of a dataclass by the names of its fields, in the order they are written."""
    return {each.name: each.metadata[_METADATA_KEY] for each in fields(config_class) if _METADATA_KEY in each.metadata}


def by_key(settings: Iterable[Setting]) -> dict[str, Setting]:
    """Settings that no dataclass holds, by their keys."""
    return {each.key: each for each in settings}
