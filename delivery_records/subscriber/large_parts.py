"""Large messages as they come to an egress from other routers, in parts (rules L-2, L-4, L-5)."""

from __future__ import annotations

from delivery_records.model.messages import LargePart
from delivery_records.model.parts import HAS_IT, NOT_WANTED, Part
from delivery_records.subscriber.egress import Egress
from delivery_records.subscriber.entries import SENT, LargeBody


def take_part(egress: Egress, part: LargePart) -> None:
    """L-2: the first part is a MSG to this subscription; those that follow belong to the entry that took it up."""
    sync = egress.syncs.get(part.publisher_epoch)
    large = egress.outgoing.large
    if part.part is Part.FIRST:
        body = LargeBody()
        if sync is not None:
            large.on_first(sync.numbers.get(part.number))
        egress.on_msg(
            part.publisher_epoch,
            part.number,
            part.tag,
            part.data,
            part.redelivered,
            part.attempt,
            part.message_format,
            body,
        )
        if sync is not None and not body.is_taken_up:
            found = sync.numbers.get(part.number)
            large.decline(sync, part.number, HAS_IT if found is not None and found.state is SENT else NOT_WANTED)
    elif sync is not None:
        entry = sync.numbers.get(part.number)
        if entry is not None and entry.large is not None:
            large.on_part(entry, part)
            egress.after_settling()  # SH-2: the link may be free again; behind a RETURN of a first part it is not


def cut_off(egress: Egress, rid: int) -> None:
    """L-5: what came from that router in parts does not go on."""
    egress.outgoing.large.cut_off(rid)
    egress.after_settling()


def look(egress: Egress) -> None:
    """L-5: whether what is in the middle goes on."""
    egress.outgoing.large.look()
    egress.after_settling()


def on_taken(egress: Egress, size: int) -> None:
    """L-4: so much has left for the subscriber."""
    egress.outgoing.large.on_taken(size)
    egress.after_settling()  # SH-2: the link may be free again
