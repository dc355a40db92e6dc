"""How one setting is described, read and checked: the one schema behind file, flags, environment and `--print-config`.

A setting is a dataclass field made by `setting()`. Its metadata says how it is called, what it may hold and why it is
there; `config_loading.py` reads all sources through it, so no source can know a setting the others do not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any, TypeAlias

METADATA_KEY = "setting"
_SIZE_UNITS = {"": 1, "kib": 1024, "mib": 1024**2, "gib": 1024**3}

Parser: TypeAlias = Callable[[object], Any]
"""Turns what a source gave (text from flags and environment, a TOML value from the file) into the field's value.

Raises ValueError or TypeError when it cannot; the error of the caller then quotes what is allowed.
"""


class Applies(Enum):
    """When a setting that was changed in the file takes effect (`oncewire manage reload`, SIGHUP)."""

    NOW = "now"
    """At once, for everything there is."""
    NEW = "new connections"
    """For client connections made from then on."""
    RESTART = "restart"
    """When the process starts again; until then the old value holds."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What is known of one setting besides its value."""

    key: str
    """Dotted name in the TOML file, for example `listen.port`."""
    parse: Parser
    allowed: str
    """For people: what may be set, with its unit."""
    reason: str
    """For people: what it is for and why the default is what it is."""
    secret: bool = False
    """Never printed."""
    applies: Applies = Applies.RESTART

    @property
    def flag(self) -> str:
        """The command-line flag, for example `--listen-port`."""
        return "--" + self.key.replace(".", "-").replace("_", "-")

    @property
    def variable(self) -> str:
        """The environment variable, for example `ONCEWIRE_LISTEN_PORT`."""
        return "ONCEWIRE_" + self.key.replace(".", "_").upper()


def setting(
    key: str, parse: Parser, default: object, allowed: str, reason: str, *,
    secret: bool = False, applies: Applies = Applies.RESTART,
) -> Any:  # fmt: skip
    """A dataclass field that is a setting. Mutable defaults must be tuples."""
    return field(default=default, metadata={METADATA_KEY: Setting(key, parse, allowed, reason, secret, applies)})


def settings_of(config_class: type) -> dict[str, Setting]:
    """The settings of a config class by field name, in the order they are written."""
    return {f.name: f.metadata[METADATA_KEY] for f in fields(config_class) if METADATA_KEY in f.metadata}


# --- parsers: each takes a TOML value or a text, and raises ValueError or TypeError ----------


def text(pattern: str = r".*") -> Parser:
    """Text that matches the whole pattern."""
    compiled = re.compile(pattern)

    def parse(value: object) -> str:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            raise ValueError
        return value

    return parse


def whole_number(low: int, high: int) -> Parser:
    """An integer from low to high."""

    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise TypeError
        number = int(value)
        if not low <= number <= high:
            raise ValueError
        return number

    return parse


def seconds(low: float, high: float) -> Parser:
    """A number of seconds from low to high."""

    def parse(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise TypeError
        number = float(value)
        if not low <= number <= high:
            raise ValueError
        return number

    return parse


def share(value: object) -> float:
    """A number from 0 to 1."""
    return float(seconds(0, 1)(value))


def size(low: int, high: int) -> Parser:
    """A number of bytes, or a text such as `64 MiB`."""

    def parse(value: object) -> int:
        if isinstance(value, str):
            match = re.fullmatch(r"(\d+)\s*([KMG]iB)?", value.strip(), re.IGNORECASE)
            if match is None:
                raise ValueError
            value = int(match[1]) * _SIZE_UNITS[(match[2] or "").lower()]
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError
        return value

    return parse


def yes_or_no(value: object) -> bool:
    """A TOML boolean, or the words true/false, yes/no, on/off, 1/0."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "yes", "on", "1"):
        return True
    if isinstance(value, str) and value.lower() in ("false", "no", "off", "0"):
        return False
    raise ValueError


def one_of(*choices: str) -> Parser:
    """One of some words."""

    def parse(value: object) -> str:
        if value not in choices:
            raise ValueError
        return str(value)

    return parse


def urls(value: object) -> tuple[str, ...]:
    """A list of http or https URLs; in a text they are separated by commas."""
    items = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(items, list) or not items:
        raise ValueError
    for item in items:
        if not isinstance(item, str) or not re.fullmatch(r"https?://[^\s/]+/?", item):
            raise ValueError
    return tuple(item.rstrip("/") for item in items)


def without_login(url: str) -> str:
    """A URL as it may be shown: without the user and password it may hold."""
    return re.sub(r"^(\w+://)[^/@\s]*@", r"\1", url)


def users(value: object) -> tuple[tuple[str, str], ...]:
    """A table name = password; in a text `name:password,name:password`."""
    return _table(value, ":")


def roles(value: object) -> tuple[tuple[str, str], ...]:
    """A table user = role; in a text `user=role,user=role`."""
    found = _table(value, "=")
    if any(role not in ROLES for _, role in found):
        raise ValueError
    return found


ROLES = ("viewer", "operator", "admin")
"""What a user may be, the weakest first."""


def _table(value: object, separator: str) -> tuple[tuple[str, str], ...]:
    """A table of texts, neither names nor values empty."""
    if isinstance(value, str):
        pairs = [part.strip().partition(separator) for part in value.split(",") if part.strip()]
        value = {name: found for name, _, found in pairs}
    if not isinstance(value, dict):
        raise TypeError
    for name, found in value.items():
        if not isinstance(name, str) or not isinstance(found, str) or not name or not found:
            raise ValueError
    return tuple(value.items())


def host_names(value: object) -> tuple[str, ...]:
    """A list of host names; in a text they are separated by commas."""
    items = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) and _HOST_NAME.fullmatch(item) for item in items):
        raise ValueError
    return tuple(items)


_HOST_NAME = re.compile(r"[A-Za-z0-9_.-]{1,255}")


@dataclass(frozen=True, slots=True)
class Connector:
    """Another router to connect to: by node id (its address is read from its router key) or by host:port."""

    to: str
    cost: int

    @property
    def is_address(self) -> bool:
        """True for host:port; node ids hold no colon."""
        return ":" in self.to


def connectors(value: object) -> tuple[Connector, ...]:
    """A list of tables {to, cost}; in a text `to=cost,to=cost` with cost 1 when left out."""
    if isinstance(value, str):
        value = [
            {"to": to.strip(), "cost": int(cost or 1)}
            for to, _, cost in (part.partition("=") for part in value.split(",") if part.strip())
        ]
    if not isinstance(value, list):
        raise TypeError
    found: list[Connector] = []
    for item in value:
        if not isinstance(item, dict) or not set(item) <= {"to", "cost"}:
            raise ValueError
        to, cost = item.get("to"), item.get("cost", 1)
        if not isinstance(to, str) or not re.fullmatch(
            r"[A-Za-z0-9_.-]+(:\d{1,5})?|\[[0-9a-fA-F:]+\]:\d{1,5}", to
        ):
            raise ValueError
        if isinstance(cost, bool) or not isinstance(cost, int) or not 1 <= cost <= 65_535:
            raise ValueError
        found.append(Connector(to, cost))
    return tuple(found)
