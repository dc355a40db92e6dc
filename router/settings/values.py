"""Values of settings that only the router has, such as roles of users and connectors to other routers."""

from __future__ import annotations

import re
from dataclasses import dataclass

PREFIX = re.compile(r"[a-z][a-z0-9+.-]*://[!-~]{0,64}")
"""A beginning of addresses of services: a topic's name does not look so."""
ORIGIN = re.compile(r"https?://[^\s/,]+")
"""Of a page, as browsers say it (RFC 6454)."""
ROLES = ("viewer", "operator", "admin")
"""What a user may be, the weakest first."""


@dataclass(frozen=True, slots=True)
class ConnectorSettings:
    """Another router to connect to: by node id (its address is read from its router key) or by host:port."""

    to: str
    cost: int

    @property
    def is_address(self) -> bool:
        """True for host:port; node ids hold no colon."""
        return ":" in self.to


def prefixes(value: object) -> tuple[str, ...]:
    """A list of beginnings of addresses; in a text they are separated by commas."""
    return _texts(value, PREFIX)


def origins(value: object) -> tuple[str, ...]:
    """A list of origins of pages, in small letters; in a text they are separated by commas."""
    return tuple(item.lower() for item in _texts(value, ORIGIN))


def _texts(value: object, shape: re.Pattern[str]) -> tuple[str, ...]:
    items = [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value
    if not isinstance(items, list):
        raise TypeError
    if not all(isinstance(item, str) and shape.fullmatch(item) for item in items):
        raise ValueError
    return tuple(items)


def connectors(value: object) -> tuple[ConnectorSettings, ...]:
    """A list of tables {to, cost}; in a text `to=cost,to=cost` with cost 1 when left out."""
    if isinstance(value, str):
        value = [
            {"to": to.strip(), "cost": int(cost or 1)}
            for to, _, cost in (part.partition("=") for part in value.split(",") if part.strip())
        ]
    if not isinstance(value, list):
        raise TypeError
    found: list[ConnectorSettings] = []
    for item in value:
        if not isinstance(item, dict) or not set(item) <= {"to", "cost"}:
            raise ValueError
        to, cost = item.get("to"), item.get("cost", 1)
        if not isinstance(to, str) or not re.fullmatch(r"[A-Za-z0-9_.-]+(:\d{1,5})?|\[[0-9a-fA-F:]+\]:\d{1,5}", to):
            raise ValueError
        if isinstance(cost, bool) or not isinstance(cost, int) or not 1 <= cost <= 65_535:
            raise ValueError
        found.append(ConnectorSettings(to, cost))
    return tuple(found)
