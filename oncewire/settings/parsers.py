"""Parsers of settings: each takes a TOML value or a text, and raises ValueError or TypeError when it cannot be used."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

Parser: TypeAlias = Callable[[Any], Any]
"""Turns what a source gave (text from flags and environment, a TOML value from the file) into the setting's value.

Raises ValueError or TypeError when it cannot, NotAllowed where it can say why.
"""

KIB = 1024
MIB = KIB**2
GIB = KIB**3
TIB = KIB**4
_TIME_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86_400.0}
_SIZE_UNITS = {"": 1, "k": KIB, "m": MIB, "g": GIB, "t": TIB}
_HOST_NAME = re.compile(r"[A-Za-z0-9_.-]{1,255}")


class NotAllowed(ValueError):
    """A value cannot be used; the message is the reason."""


def text(pattern: str = r".*") -> Parser:
    """Text that matches the whole pattern."""
    compiled = re.compile(pattern)

    def parse(value: object) -> str:
        if not isinstance(value, str) or not compiled.fullmatch(value):
            raise NotAllowed("it has another form")
        return value

    return parse


def whole_number(low: int, high: int) -> Parser:
    """An integer from low to high."""

    def parse(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise TypeError
        found = int(value)
        if not low <= found <= high:
            raise NotAllowed(f"it must be {low} to {high}")
        return found

    return parse


def number(low: float, high: float) -> Parser:
    """A number, for example of seconds, from low to high."""

    def parse(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            raise TypeError
        found = float(value)
        if not low <= found <= high:
            raise NotAllowed(f"it must be {low:g} to {high:g}")
        return found

    return parse


def size(low: int, high: int) -> Parser:
    """A number of bytes, also as a text with a unit: `64k`, `64 KiB`, `8g`."""

    def parse(value: object) -> int:
        if isinstance(value, str):
            match = re.fullmatch(r"(\d+)\s*([kmgt]?)(?:ib|b)?", value.strip(), re.IGNORECASE)
            if match is None:
                raise NotAllowed("it is no size")
            value = int(match[1]) * _SIZE_UNITS[match[2].lower()]
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError
        if not low <= value <= high:
            raise NotAllowed(f"it must be {low} to {high} bytes")
        return value

    return parse


def time_span(value: str) -> float:
    """A time such as 500ms, 30s, 15m, 2h or 1d, in seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", value.strip().lower())
    if match is None or match[2] not in _TIME_UNITS_S:
        raise NotAllowed("it has no unit: ms, s, m, h or d")
    return float(match[1]) * _TIME_UNITS_S[match[2]]


def duration(low: float, high: float) -> Parser:
    """A time from low to high, in seconds: a number of them, or a text with a unit."""
    within = number(low, high)

    def parse(value: object) -> float:
        return float(within(time_span(value) if isinstance(value, str) and value[-1:].isalpha() else value))

    return parse


def yes_or_no(value: object) -> bool:
    """A TOML boolean, or the words true/false, yes/no, on/off, 1/0."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "yes", "on", "1"):
        return True
    if isinstance(value, str) and value.lower() in ("false", "no", "off", "0"):
        return False
    raise NotAllowed("it is neither true nor false")


def one_of(*choices: str) -> Parser:
    """One of some words."""

    def parse(value: object) -> str:
        if value not in choices:
            raise ValueError
        return str(value)

    return parse


def path(value: object) -> Path:
    """A path; `~` is the user's home."""
    if not isinstance(value, str) or not value:
        raise ValueError
    return Path(value).expanduser()


def optional_path(value: object) -> Path | None:
    """A path, or an empty text = None."""
    return None if value == "" else path(value)


def urls(value: object) -> tuple[str, ...]:
    """A list of http or https URLs without users; in a text they are separated by commas."""
    items = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(items, list) or not items:
        raise ValueError
    for item in items:
        # A user and password there would be shown wherever the address is; etcd has settings of their own for them.
        if not isinstance(item, str) or not re.fullmatch(r"https?://[^\s/@]+/?", item):
            raise ValueError
    return tuple(item.rstrip("/") for item in items)


def without_login(url: str) -> str:
    """A text as it may be shown: without what stands before the last @ of a URL, be it spelled rightly or not."""
    return re.sub(r"(\w://).*@", r"\1", url, flags=re.DOTALL)


def host_names(value: object) -> tuple[str, ...]:
    """A list of host names; in a text they are separated by commas."""
    items = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(items, list) or not all(isinstance(item, str) and _HOST_NAME.fullmatch(item) for item in items):
        raise ValueError
    return tuple(items)


def pairs(separator: str, values: tuple[str, ...] = ()) -> Parser:
    """A table of names and texts, neither of them empty; in a text `name:text,...` with this separator.

    Args:
        separator: between a name and its text.
        values: the texts there are; empty = any.
    """

    def parse(value: object) -> tuple[tuple[str, str], ...]:
        if isinstance(value, str):
            parts = [part.strip().partition(separator) for part in value.split(",") if part.strip()]
            value = {name: found for name, _, found in parts}
        if not isinstance(value, dict):
            raise TypeError
        for name, found in value.items():
            if not isinstance(name, str) or not isinstance(found, str) or not name or not found:
                raise ValueError
            if values and found not in values:
                raise ValueError
        return tuple(value.items())

    return parse


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that was probably meant; None = none is near."""
    return next(iter(difflib.get_close_matches(word, list(known), n=1, cutoff=0.5)), None)
