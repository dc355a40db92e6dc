"""Which options were given: names as Spark hands them on, those of a table in its catalog among them.

Spark writes names in lower case before anybody sees them. An error spells one as its user probably did: as the option
that it is like.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from bridges.node.errors import BadRequest
from bridges.spark.kafka_options import translated
from bridges.spark.option_kinds import Reads, Side
from bridges.spark.option_table import OPTIONS, options_of
from oncewire.settings.parsers import nearest

BY_NAME = {option.key.lower(): option for option in OPTIONS}
_SPARKS_OWN = frozenset({"checkpointlocation", "queryname", "path"})
"""Spark hands these on to the sink; `path` only where the user gave one, which is refused below."""
OF_TABLE = "option."
"""Before each name of `CREATE TABLE ... OPTIONS`, which also comes without it, beside other properties of a table."""


def reads_journal(given: Mapping[str, str]) -> bool:
    """Whether these are options of a source that reads journals."""
    return any(name.lower().removeprefix(OF_TABLE) in {"journal", "journalpattern", "assign"} for name in given)


def given_options(given: Mapping[str, str], side: Side, reads: Reads) -> dict[str, str]:
    """The options of a side by their names in lower case.

    Of a table in the catalog both sides are given all, so that one can be read and written.

    Args:
        given: from Spark.
        side: of it.
        reads: what a source reads.

    Raises:
        BadRequest: there is no such option, or it is of the other side, or of another kind of source.
    """
    texts = {name.lower(): value for name, value in given.items()}
    table = {name.removeprefix(OF_TABLE): value for name, value in texts.items() if name.startswith(OF_TABLE)}
    if table:
        known = {option.key.lower() for option in options_of(side) if option.reads in {reads, Reads.EITHER}}
        for name in table:
            if name not in BY_NAME:
                raise _unknown(name, side)
        # A reader of the table may give more; other names are the table's properties.
        return {name: value for name, value in (*table.items(), *texts.items()) if name in known}
    if texts.get("path"):
        raise BadRequest(
            "the option path cannot be used",
            "messages are not in files",
            "leave it out; `subscribe` and `topic` name topics",
        )
    found = translated({name: value for name, value in texts.items() if name not in _SPARKS_OWN})
    for name in found:
        _check(name, side)
        if side is Side.SOURCE and BY_NAME[name].reads not in {reads, Reads.EITHER}:
            raise _of_another(BY_NAME[name].key, reads)
    return found


def _of_another(name: str, reads: Reads) -> BadRequest:
    what = f"the option {name} cannot be used"
    if reads is Reads.JOURNAL:
        return BadRequest(what, "it is of subscriptions, and journals are read", "leave one of the two out")
    return BadRequest(what, "it is of journals, and none is named", "name one with `journal`, or leave it out")


def _check(name: str, side: Side) -> None:
    option = BY_NAME.get(name)
    if option is None:
        raise _unknown(name, side)
    if option.side not in {side, Side.BOTH}:
        raise BadRequest(
            f"the option {option.key} cannot be used",
            f"it is an option of the {option.side.value}, not of the {side.value}",
            "leave it out",
        )


def _unknown(name: str, side: Side) -> BadRequest:
    names = [option.key for option in options_of(side)]
    near = nearest(name, (known.lower() for known in names))
    if near is None:
        hint = f"leave it out; docs/spark-reference.md has all, such as {', '.join(names[:3])}"
        return BadRequest(f"the option {name!r} cannot be used", f"the {side.value} has no such option", hint)
    like = BY_NAME[near].key
    return BadRequest(
        f"the option {_as_typed(name, like)!r} cannot be used",
        f"the {side.value} has no such option",
        f"did you mean {like}?",
    )


def _as_typed(name: str, like: str) -> str:
    """A name in lower case with the capitals of one that it is like."""
    letters = list(name)
    for here, there, size in difflib.SequenceMatcher(None, name, like.lower(), autojunk=False).get_matching_blocks():
        letters[here : here + size] = like[there : there + size]
    return "".join(letters)
