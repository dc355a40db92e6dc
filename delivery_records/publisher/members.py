"""What the ingress of a publisher knows of each member of a shared subscription (rules SH-2, SH-4)."""

from __future__ import annotations

from delivery_records.model.turn import Turn
from delivery_records.model.view import Subscription


class Member:
    """One member, as this ingress knows it."""

    __slots__ = (
        "answered",
        "claimed",
        "epoch",
        "handed_back",
        "has",
        "is_full",
        "key",
        "last",
        "name",
        "rid",
        "room",
        "serial",
    )

    def __init__(self, member: Subscription) -> None:
        self.key = member.key
        self.name = member.name
        self.epoch = member.epoch
        self.rid = member.record.rid
        self.serial = 0
        """Of the last SYNC to its egress."""
        self.answered = False
        """Its CLAIM to the last SYNC has come: its map is known (SH-4)."""
        self.room = 0
        self.is_full = True
        """It returned a delivery or has no link; a ROOM or a CLAIM ends that (SH-2)."""
        self.last = 0
        """When it was assigned something last, in assignments."""
        self.has: dict[int, None] = {}
        """What it was assigned, or claims, and is not done with."""
        self.claimed: set[int] = set()
        """Of these, what its map has: a RETURN does not take it away."""
        self.handed_back: set[int] = set()
        """Of these, what it does not have by an answer of a former epoch: the CLAIM that is to come decides (SH-5)."""

    def takes_more(self, turn: Turn) -> bool:
        """SH-2: it has room, as far as this ingress knows."""
        return not self.is_out_of_room and self.is_there(turn)

    @property
    def is_out_of_room(self) -> bool:
        """It has all that it has stated room for, or returned something (SH-2)."""
        return self.is_full or len(self.has) >= self.room

    def is_there(self, turn: Turn) -> bool:
        """SH-4: its map is known, and its link, as far as the view says; `on_deleted` may be about to be called."""
        return self.answered and self.rid in turn.view.routers and self.key in turn.view.subscriptions
