"""What a processor reads together: its journals, where an attempt begins and ends, and how tasks share it.

A *step* is one call of the processor's function. With one journal a step is one message; with several ("zip") it is
the n-th message of each. Inputs of which any may be next ("alts") share one journal: which of them was read is decided
when a message arrives there, durably and before it is accepted, so no later attempt can choose another.

Positions are those of journals: an attempt takes what lies behind `start` up to `stop`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Any

from bridges.node.errors import BadRequest, JournalReplaced

MAX_INPUTS = 32
"""Of one processor. Each zipped input has a connection and a file of its own."""


class Join(StrEnum):
    """How several inputs are read."""

    ZIP = "zip"
    ALTS = "alts"


@dataclass(frozen=True, slots=True)
class InputJournal:
    """A journal that a processor reads.

    Attributes:
        subscription: its name at the bridge node.
        topics: what it receives.
    """

    subscription: str
    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Place:
    """A position, and the journal that it belongs to: in another journal it means another message."""

    journal: str
    position: int


Places = tuple[Place, ...]
"""One place for each journal, in the order of `input_journals`."""


def input_journals(processor: str, inputs: Sequence[str], join: Join | None) -> tuple[InputJournal, ...]:
    """The journals of a processor.

    Args:
        processor: its name.
        inputs: topics.
        join: None = there is one input.

    Raises:
        BadRequest: the inputs are ambiguous.
    """
    if not 1 <= len(inputs) <= MAX_INPUTS or len(set(inputs)) != len(inputs) or not all(inputs):
        raise BadRequest(
            f"processor {processor!r} cannot read {', '.join(inputs) or 'nothing'}",
            f"it has 1 to {MAX_INPUTS} inputs, each another topic",
            "name each input once",
        )
    if join is None and len(inputs) > 1:
        raise BadRequest(
            f"processor {processor!r} has {len(inputs)} inputs",
            "it is not said how they are read",
            "give join='zip' (the n-th message of each together) or join='alts' (a message of any)",
        )
    if join is Join.ZIP and len(inputs) > 1:
        return tuple(InputJournal(f"{processor}.{n}", (topic,)) for n, topic in enumerate(inputs))
    return (InputJournal(processor, tuple(inputs)),)


# --- offsets ----------------------------------------------------------------------------------------------------------


def offset_of(journals: Sequence[InputJournal], places: Places) -> dict[str, Any]:
    """Places as Spark's offset log keeps them. Keys have always the same order: Spark compares offsets as text."""
    return {
        journal.subscription: {"journal": place.journal, "seq": place.position}
        for journal, place in zip(journals, places, strict=True)
    }


def places_of(journals: Sequence[InputJournal], offset: Mapping[str, Any]) -> Places:
    """The reverse of `offset_of`.

    Raises:
        BadRequest: it is the offset of other inputs.
    """
    wanted = [journal.subscription for journal in journals]
    if sorted(offset) != sorted(wanted):
        raise BadRequest(
            f"the offsets of {', '.join(sorted(offset)) or 'nothing'} cannot be used",
            f"the processor reads {', '.join(wanted)}",
            "keep inputs and join as they are in the checkpoint, or give the processor another name and checkpoint",
        )
    return tuple(Place(str(offset[name]["journal"]), int(offset[name]["seq"])) for name in wanted)


def text_of(offset: Mapping[str, Any]) -> str:
    """An offset as the node keeps it: the same text for the same places, always."""
    return json.dumps(offset, separators=(",", ":"), sort_keys=True)


def check_journals(journals: Sequence[InputJournal], start: Places, found: Sequence[str]) -> None:
    """Refuse to continue in another journal.

    Args:
        journals: of the processor.
        start: where it is to continue.
        found: uuid of each journal that is there now.

    Raises:
        JournalReplaced: one is another.
    """
    for journal, place, uuid in zip(journals, start, found, strict=True):
        if place.journal != uuid:
            raise JournalReplaced(
                f"subscription {journal.subscription} cannot be read from position {place.position} on",
                f"its journal is {uuid}, the checkpoint was made with {place.journal}",
                "restore the journal, or give the processor another name and checkpoint",
            )


# --- attempts ---------------------------------------------------------------------------------------------------------


def steps_between(start: Places, stop: Places) -> int:
    """How many steps an attempt has.

    Raises:
        BadRequest: the journals do not advance together.
    """
    counts = {after.position - before.position for before, after in zip(start, stop, strict=True)}
    if len(counts) != 1 or min(counts) < 0:
        raise BadRequest(
            f"the attempt from {start} to {stop} cannot be made",
            "each journal must advance by the same number of messages",
            "restore the checkpoint: its offsets are not this processor's",
        )
    return counts.pop()


def attempt_end(start: Places, newest: Sequence[int], max_steps: int | None) -> Places:
    """Where the attempt ends that begins now: as many steps as every journal has messages for.

    Args:
        start: where it begins.
        newest: the newest position of each journal.
        max_steps: None = any number.
    """
    steps = min(last - place.position for last, place in zip(newest, start, strict=True))
    if max_steps is not None:
        steps = min(steps, max_steps)
    return tuple(Place(place.journal, place.position + max(0, steps)) for place in start)


def shares(steps: int, tasks: int) -> list[tuple[int, int]]:
    """Split the steps of an attempt: (first, stop) of each task, in order, none empty, as equal as can be."""
    tasks = max(1, min(tasks, steps))
    bounds = [steps * task // tasks for task in range(tasks + 1)]
    return [(first, stop) for first, stop in pairwise(bounds) if first < stop]
