"""Names of links: which ones a program may choose, and what a random one looks like."""

from __future__ import annotations

import inspect
import os
import warnings

from oncewire.client.errors import UsageError

MAX_NAME_BYTES = 255
"""Of a link: it is kept in every router's memory."""


class RandomContainerWarning(UserWarning):
    """A link has its own name but the container-id is random: no later process can open the same link."""


def choose_name(kind: str, name: str | None, container_id: str, *, is_random: bool, has_journal: bool) -> str:
    """The name to attach with; a random one begins with `kind`. `is_random`: so is the container-id.

    Raises:
        UsageError: no link can have this name, or no later process could use the journal.
    """
    if name is None:
        if has_journal:
            raise UsageError(
                "a journal without a name is of no use",
                "the next process could not open the same link",
                "give the link a name, and the client a container_id",
            )
        return f"{kind}-{os.urandom(8).hex()}"
    if not name or len(name.encode()) > MAX_NAME_BYTES or "|" in name:
        raise UsageError(
            f"{name!r} is no name for a link", f"a name has 1 to {MAX_NAME_BYTES} bytes and no '|'", "choose another"
        )
    if is_random:
        if has_journal:
            raise UsageError(
                f"the link {name!r} cannot have a journal",
                "the container-id is random, so the next process could not open the same link",
                "connect(journal=PATH) keeps one in the journal; or give a container_id of its own to each process",
            )
        warnings.warn(
            f"the link {name!r} has a name but the container-id {container_id!r} is random: after this"
            " process nobody can resume it, and the network keeps it until it expires; pass container_id=..., or"
            " journal=PATH, which keeps one, to connect()",
            RandomContainerWarning,
            stacklevel=_level_of_caller(),
        )
    return name


def _level_of_caller() -> int:
    """How far up the first line is that is not ours, as `skip_file_prefixes` of Python 3.12 finds it."""
    frame = inspect.currentframe()
    level = 0
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "oncewire":
        frame, level = frame.f_back, level + 1
    return level
