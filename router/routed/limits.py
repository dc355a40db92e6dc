"""The settings of routed links."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RoutedLimits:
    """The settings of routed links.

    Attributes:
        prefixes: beginnings of addresses that are of services (R-1).
        held_bytes: bodies of one link that may wait at a router (R-8).
        max_message_size: of one that a router stores whole.
    """

    prefixes: tuple[str, ...]
    held_bytes: int
    max_message_size: int
