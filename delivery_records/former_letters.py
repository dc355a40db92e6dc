"""Letters at an egress whose topic has no dead-letter topic any more, where no ingress says so (rule I-3e).

An ingress tells each dead-letter subscription with a SYNC of an empty U. One that starts behind the change knows of
none.
"""

from __future__ import annotations

from collections.abc import Iterable

from delivery_records.diagnostics.trace import Rule
from delivery_records.egress import Egress
from delivery_records.entries import Entry, is_live
from delivery_records.tags import OWN_TAG_AT, SESSION_AT, is_letter_tag
from delivery_records.turn import Turn


def on_policies(turn: Turn, egresses: Iterable[Egress]) -> None:
    """The operator's rules have changed: settle what no stream can settle; the others may end with their stream."""
    for egress in egresses:
        ended: list[Entry] = []
        for entries in egress.sessions.values():
            entry = next(iter(entries.values()), None)
            if entry is None or not is_letter_tag(entry.tag) or _is_live(turn, egress, entry):
                continue
            sync = entry.sync  # of a session all entries have the same
            if sync is None or sync.epoch not in turn.view.publisher_epochs:
                ended += entries.values()
            else:
                sync.is_ending = True
        _settle(egress, ended)


def on_publisher_moved(turn: Turn, egresses: Iterable[Egress], epoch: int) -> None:
    """A publisher has a new epoch; its next ingress may follow rules without a dead-letter topic."""
    for egress in egresses:
        sync = egress.syncs[epoch]
        entries = list(sync.entries.values())
        if sync.is_ending and entries and not _is_live(turn, egress, entries[0]):
            _settle(egress, entries)


def _is_live(turn: Turn, egress: Egress, entry: Entry) -> bool:
    return is_live(turn, entry.tag, turn.view.subscriptions[egress.key].record.topic)


def _settle(egress: Egress, ended: list[Entry]) -> None:
    for entry in ended:
        if entry.sync is not None:
            entry.sync.numbers.pop(entry.number, None)
        egress.outgoing.trace(entry, Rule.NOT_IN_U)
        egress.outgoing.settle(entry)
        del egress.sessions[entry.tag[SESSION_AT:OWN_TAG_AT]][entry.tag]
    if ended:
        egress.outgoing.pump()
