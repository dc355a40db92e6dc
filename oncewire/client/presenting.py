"""What a subscriber's attach presents of its map, and what the reply keeps of it: in parts, where it does not fit."""

from __future__ import annotations

from oncewire.client.arrived_entry import PresentedMap
from oncewire.client.delivery_states import state_of
from oncewire.client.outcomes import Outcome
from oncewire.wire import Attach, Fields, LinkFlow, ReceiverLink, UnsettledMap, vocabulary
from oncewire.wire.map_parts import entries_stated, parts_of, read_part, stated_entries


class Presenting:
    """One attach (rule C-4).

    Attributes:
        unsettled: of the attach.
        kept: what the reply has kept, as far as it is here.
        is_whole: the router took the whole map; else this attach is a round.
    """

    def __init__(self, presented: PresentedMap | None, bound: int) -> None:
        """Nothing is sent. `bound`: entries that an attach may have."""
        self.unsettled = None if presented is None else _states(presented.unsettled)
        self._rest = {} if presented is None else _states(presented.rest)
        self._bound = bound
        self._reply: Attach | None = None
        self._awaited = 0
        self.kept: UnsettledMap = {}
        self.is_whole = True

    @property
    def is_incomplete(self) -> bool:
        """The attach does not carry the whole map."""
        return bool(self._rest)

    @property
    def properties(self) -> Fields | None:
        """Of the attach."""
        return entries_stated(len(self.unsettled or ()) + len(self._rest)) if self._rest else None

    def send_rest(self, link: ReceiverLink) -> None:
        """Right behind the attach."""
        for part in parts_of(self._rest, self._bound):
            link.flow(part)

    def take_reply(self, reply: Attach) -> Attach | None:
        """The reply came; None: more of its map follows."""
        self._reply = reply
        self.kept = dict(reply.unsettled or {})
        self.is_whole = not self._rest or vocabulary.number_in(reply.properties, vocabulary.MAP_ENTRIES) is not None
        self._rest = {}
        self._awaited = stated_entries(reply)
        return None if self._awaited else reply

    def take_part(self, event: LinkFlow) -> Attach | None:
        """A flow came; the reply, if it is complete with it."""
        part = None if event.properties is None else read_part(event.properties.get(vocabulary.MAP_PART))
        if part is None or not self._awaited:
            return None
        self.kept |= part
        if len(self.kept) < self._awaited:
            return None
        self._awaited = 0
        return self._reply


def _states(entries: dict[bytes, Outcome | None]) -> UnsettledMap:
    return {tag: None if outcome is None else state_of(outcome, bare=True) for tag, outcome in entries.items()}
