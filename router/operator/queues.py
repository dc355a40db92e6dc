"""Finds what reads work queues for the inspector: an entry point, for the router knows no queues."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import TypeAlias

from oncewire.cli.errors import CliError
from topology.inspector.queues import QueueReader

GROUP = "oncewire.inspector"
NAME = "queues"

Opener: TypeAlias = Callable[[str], QueueReader]


def queue_reader(url: str) -> QueueReader | None:
    """Return the reader of the store at an address, None where the settings name none. Nothing is opened yet.

    Raises:
        CliError: nothing that is installed reads queues, or the address means no store.
    """
    if not url:
        return None
    found = entry_points(group=GROUP, name=NAME)
    if not found:
        raise CliError(
            "the setting queue_store cannot be used",
            f"no installed package has the entry point {NAME!r} of the group {GROUP!r}",
            "install Oncewire again, as a whole, or leave the setting out",
        )
    opener: Opener = next(iter(found)).load()
    return opener(url)
