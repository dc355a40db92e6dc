"""The large delivery that comes on a publisher's link, from its first part to its last (rules L-1, L-5, L-7).

Deliveries of one link do not interleave (AMQP 1.0 section 2.6.14), so at most one is coming, and `_arriving` is its
slot. The first part is taken as a whole delivery would be: it may be refused, ignored or appended. Only if its slot is
ARRIVING then, the parts behind it mean anything. Each goes on to `LargeStreams`, which sends it to the subscriptions;
the window keeps the head alone.

A delivery that does not come to its end was aborted by the publisher, was followed by another one, or was on a link
that is lost. If the publisher's map has it, its slot is awaited again, for the publisher may send it again; else the
slot leaves the window. Those who owe what is awaited again are notified by a SYNC, unless the link is lost: then it
comes under another epoch.

Nobody keeps the body. A subscription whose turn comes when its parts are gone says so (NEED), and if it still owes the
delivery, the publisher has to send it once more. AMQP has no word for that, so the link is detached at the end of a
turn, though not while a delivery is coming and goes on: the publisher attaches again, presents its map, and sends it.

A timer looks several times in `LARGE_STALL_S`, for as long as there are streams. A publisher that has room and sends
nothing of its delivery for that long is detached. Time in which there was no room does not count against it.
"""

from __future__ import annotations

from delivery_records.model.inputs import LargeTransfer, PublisherAttach, PublisherTransfer
from delivery_records.model.limits import LARGE_BYTES, LARGE_BYTES_WITHOUT_MAP, LARGE_LOOKS, LARGE_STALL_S
from delivery_records.model.messages import Need, Taken
from delivery_records.model.outcomes import Decision
from delivery_records.model.parts import Part
from delivery_records.model.timers import Timer
from delivery_records.model.turn import Turn
from delivery_records.model.view import Subscription
from delivery_records.publisher.fanout import Fanout
from delivery_records.publisher.owner import Owner
from delivery_records.publisher.resends import Resends
from delivery_records.publisher.window import ARRIVING, Slot, Window

AGAIN = "a subscription needs a large message again: attach again, present the map, send again"
STALLED = "a delivery stopped in the middle, and nothing came of it for a while"


class LargeArrivals:
    """What comes in parts on one publisher's link: one delivery at a time (AMQP 1.0 section 2.6.14)."""

    __slots__ = ("_arriving", "_fanout", "_last", "_owner", "_resends", "_turn", "_window", "is_needed")

    def __init__(self, turn: Turn, owner: Owner, window: Window, fanout: Fanout, resends: Resends) -> None:
        """Nothing comes."""
        self._turn = turn
        self._owner = owner
        self._window = window
        self._fanout = fanout
        self._resends = resends
        self._arriving: Slot | None = None
        self._last = 0.0
        """When something of it came last, or there was no room for it."""
        self.is_needed = False
        """The publisher is to send something again (L-7)."""

    def on_transfer(self, transfer: LargeTransfer) -> None:
        """L-1: a part has come."""
        if transfer.part is Part.FIRST:
            self._begin(transfer)
            return
        slot = self._arriving
        if slot is None or slot.tag != transfer.tag or slot.state is not ARRIVING:
            return  # it was refused, ignored or given up: what still comes of it has no meaning
        if transfer.part is Part.ABORT:
            self.abort()
            return
        is_last = transfer.part is Part.LAST
        self._last = self._turn.now
        self._fanout.streams.add(slot, transfer.data, is_last=is_last)
        if slot.repeated:
            self._resends.on_part()
        self._owner.mark_dirty()
        if is_last:
            self._arriving = None
            if transfer.settled:
                self._fanout.streams.flush()  # else nobody would get the rest of it
                self._owner.on_settled([transfer.tag])  # given up behind this one try (I-4a)

    def _begin(self, transfer: LargeTransfer) -> None:
        self.abort()  # transfers of one link do not interleave: what was not through does not go on
        whole = PublisherTransfer(
            transfer.link,
            transfer.delivery_id,
            transfer.tag,
            transfer.data,
            resume=transfer.resume,
            message_format=transfer.message_format,
            receiver_settles=transfer.receiver_settles,
            is_large=True,
        )
        self._owner.on_transfer(whole)
        slot = self._window.find(transfer.tag)
        if slot is not None and slot.state is ARRIVING:
            self._arriving = slot
            self._last = self._turn.now
            self._turn.counts[Decision.LARGE_BEGUN] += 1
            self._watch()

    def abort(self, *, is_link_lost: bool = False) -> None:
        """L-5: the rest does not come; the publisher may send it again if it stands in its map."""
        slot, self._arriving = self._arriving, None
        if slot is None or slot.state is not ARRIVING:
            return
        self._turn.counts[Decision.LARGE_ABORTED] += 1
        self._fanout.streams.abort(slot)
        if slot.repeated:
            self._window.take_back_large(slot)
            self._resends.on_taken_back()
            if not is_link_lost:  # else it comes again under another epoch
                self._fanout.sync_holders(slot.number)
        else:
            self._owner.drop(slot)
        self._owner.mark_dirty()

    @property
    def is_arriving(self) -> bool:
        """A delivery has begun to come, and is not through."""
        return self._arriving is not None and self._arriving.state is ARRIVING

    # ------------------------------------------------------------------ what egresses say of it

    def on_taken(self, subscription: Subscription, taken: Taken) -> None:
        """L-4: so much of a large delivery has gone to the subscriber."""
        self._fanout.streams.on_taken(subscription.key, taken.subscription_epoch, taken.number, taken.taken)
        self._owner.mark_dirty()

    def on_router_gone(self, rid: int) -> None:
        """L-2: what was on its way to that router is lost."""
        if len(self._fanout.streams):
            self._fanout.streams.on_router_gone(rid)
            self._owner.mark_dirty()

    def on_need(self, subscription: Subscription, need: Need) -> None:
        """L-7: it is the turn of a large delivery; what is done with or settled meanwhile is not needed."""
        slot = self._window.at(need.number)
        cursor = self._fanout.cursors.get(subscription.record.member_of or subscription.key)
        if slot is not None and cursor is not None and cursor.owes(need.number):
            self.need()

    def need(self) -> None:
        """L-7: the publisher is to send something again; not before what it sends now has come."""
        self.is_needed = True
        self._owner.mark_dirty()

    def ask_publisher(self) -> None:
        """L-7, at the end of a turn: detach it, once."""
        slot = self._arriving
        is_going_on = slot is not None and self.is_arriving and self._fanout.streams.goes_on(slot)
        if self._owner.link is None or is_going_on:
            return
        self.is_needed = False
        self._turn.note(Decision.LARGE_ASKED_FOR, publisher=self._owner.name)
        self._owner.detach("amqp:link:detach-forced", AGAIN)

    # ------------------------------------------------------------------ time

    def _watch(self) -> None:
        if not self._turn.timers.is_set(Timer.STREAM, self._owner.key):
            at = self._turn.now + LARGE_STALL_S / LARGE_LOOKS
            self._turn.timers.set(Timer.STREAM, self._owner.key, at)

    def look(self) -> None:
        """L-5, L-6: what does not go on."""
        has_room = self._resends.has_room and self._turn.budget.body_room > 0
        self._fanout.streams.look(has_room=has_room)
        if self.is_arriving:
            if not has_room:
                self._last = self._turn.now
            elif self._turn.now - self._last >= LARGE_STALL_S:
                self._owner.detach("amqp:link:detach-forced", STALLED)
        if len(self._fanout.streams):
            self._watch()
        self._owner.mark_dirty()


def stream_above(request: PublisherAttach) -> int:
    """L-1: how long a delivery is that no router keeps."""
    return LARGE_BYTES_WITHOUT_MAP if request.unsettled is None or request.resumes else LARGE_BYTES
