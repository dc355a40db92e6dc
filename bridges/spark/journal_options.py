"""Reads the options of a source of journals: checks them and turns them into values. Spark is not needed here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridges.doors.tls import NO_FILES, TlsFiles, node_context
from bridges.node.errors import BadRequest
from bridges.spark.edge_client import EdgeAddress
from bridges.spark.option_kinds import Reads, Side
from bridges.spark.option_names import given_options
from bridges.spark.option_table import options_of
from bridges.spark.option_values import EARLIEST, LATEST, Place, TooLate
from bridges.spark.options import parsed

_ENDINGS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")


@dataclass(frozen=True, slots=True)
class AtTime:
    """In front of the first message that was stored at a time or later.

    Attributes:
        us: microseconds since 1970.
        too_late: what happens when there is none yet.
    """

    us: int
    too_late: TooLate = TooLate.LATEST


@dataclass(frozen=True, slots=True)
class Places:
    """Where journals start, or end: the usual place, and those of some."""

    usual: Place | AtTime
    named: Mapping[str, Place | AtTime] = field(default_factory=dict)

    def of(self, journal: str) -> Place | AtTime:
        """The place in a journal."""
        return self.named.get(journal, self.usual)


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """What a reader of journals works with; see option_table.py for the meanings. Times are in seconds.

    Attributes:
        journals: empty = those whose names match the pattern.
        starts, ends: of the journals that options name; others have the usual one.
    """

    edge: EdgeAddress
    journals: tuple[str, ...]
    pattern: str
    starts: Places
    ends: Places
    fail_on_data_loss: bool
    max_rows: int | None
    max_bytes: int | None
    min_rows: int | None
    max_trigger_delay_s: float
    min_partitions: int
    max_task_rows: int | None
    include_headers: bool
    include_metadata: bool


def journal_options(given: Mapping[str, str], *, is_stream: bool) -> JournalOptions:
    """Read the options of a source of journals.

    Args:
        given: from Spark.
        is_stream: False = of a batch read.

    Raises:
        BadRequest: an option is unknown, missing, cannot be used, or does not fit another.
    """
    texts = given_options(given, Side.SOURCE, Reads.JOURNAL)
    chosen = [option for option in options_of(Side.SOURCE) if option.reads is not Reads.SUBSCRIPTION]
    found = parsed(texts, chosen)
    journals, pattern = found["journal"] or (), found["journalPattern"] or ""
    if journals and pattern:
        raise _bad("journalPattern", "journal is given, too", "give one of the two")
    for name, what in (("journal", "there is nothing to read"), ("edge", "messages are read from it")):
        if not found[name] and not (pattern and name == "journal"):
            allowed = next(option.allowed for option in chosen if option.key == name)
            raise BadRequest(f"the option {name} is missing", what, f"set it: {allowed}")
    for name in _ENDINGS:
        if is_stream and name.lower() in texts:
            raise _bad(name, "a stream has no end", "leave it out, or read with spark.read")
    least, most = found["minOffsetsPerTrigger"], found["maxOffsetsPerTrigger"]
    if most and most < len(journals):
        raise _bad("maxOffsetsPerTrigger", f"there are {len(journals)} journals", "give so many at least: one of each")
    if least and most and least > most:
        raise _bad("minOffsetsPerTrigger", "it is more than maxOffsetsPerTrigger", "give a smaller number")
    return JournalOptions(
        edge=_edge(found),
        journals=journals,
        pattern=pattern,
        starts=_places(found, journals, "starting", LATEST if is_stream else EARLIEST),
        ends=_places(found, journals, "ending", LATEST),
        fail_on_data_loss=found["failOnDataLoss"],
        max_rows=most,
        max_bytes=found["maxBytesPerTrigger"],
        min_rows=least,
        max_trigger_delay_s=found["maxTriggerDelay"],
        min_partitions=found["minPartitions"] or 1,
        max_task_rows=found["maxRecordsPerPartition"],
        include_headers=found["includeHeaders"],
        include_metadata=found["includeMetadata"],
    )


def _edge(found: Mapping[str, Any]) -> EdgeAddress:
    def path(name: str) -> Path | None:
        return Path(found[name]) if found[name] else None

    files = TlsFiles(
        path("edge.tls.ca"), path("edge.tls.certificate"), path("edge.tls.key"), found["edge.tls.checkHostname"]
    )
    if files != NO_FILES:
        if not found["edge"][0].startswith("https"):
            raise _bad(
                "edge.tls.*", f"{found['edge'][0]} asks for no TLS", "write https://HOST:PORT, or leave them out"
            )
        node_context(files)  # says what is wrong with them before anything is started
    for name in ("edge.passwordFile", "edge.user"):
        if found[name] and (found["edge.tokenFile"] or not found["edge.user"]):
            raise _bad(name, "a user has a name and a password, or a token", "give edge.user, or edge.tokenFile")
    return EdgeAddress(found["edge"], found["edge.user"], path("edge.passwordFile"), path("edge.tokenFile"), files)


def _places(found: Mapping[str, Any], journals: tuple[str, ...], side: str, usual: str) -> Places:
    """Where each journal starts or ends: by time before by offset, as Kafka's connector has it."""
    strategy = found["startingOffsetsByTimestampStrategy"] if side == "starting" else TooLate.LATEST
    time, times, offsets = (found[f"{side}{name}"] for name in ("Timestamp", "OffsetsByTimestamp", "Offsets"))
    if time is not None:
        return Places(AtTime(time, strategy))
    if times is not None:
        _check_names(f"{side}OffsetsByTimestamp", times, journals)
        return Places(Place(usual), {name: AtTime(us, strategy) for name, us in times.items()})
    place = offsets or Place(usual)
    named = {each.subscription: each for each in (place, *place.others) if each.subscription is not None}
    if named:
        _check_names(f"{side}Offsets", named, journals)
    if side == "ending" and EARLIEST in {each.at for each in (place, *place.others)}:
        raise _bad("endingOffsets", "nothing ends where it begins", "give latest, or a position")
    return Places(Place(usual) if named else place, named)


def _check_names(option: str, given: Any, journals: tuple[str, ...]) -> None:
    if not journals:
        raise _bad(option, "it names journals, and journalPattern may find others", "name them with `journal`")
    if sorted(given) != sorted(journals):
        names = [", ".join(map(repr, sorted(some))) for some in (given, journals)]
        raise _bad(option, f"it names {names[0]}", f"name all journals that are read, {names[1]}, and no other")


def _bad(name: str, why: str, fix: str) -> BadRequest:
    return BadRequest(f"the option {name} cannot be used", why, fix)
