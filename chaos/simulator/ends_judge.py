"""The judge of publishers without a map that end: what was read gets an outcome, or goes on (A-9a)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from chaos.simulator.promises import FASTEST_CLOCK
from chaos.simulator.routers import Router
from chaos.simulator.state import SESSION_END, WorldState
from chaos.simulator.violation import Violation
from delivery_records.model import effects, inputs
from delivery_records.model.limits import END_WAIT_S, SUBSCRIPTION_TIMEOUT_S
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.view import Kind, PublisherRecord, session_of_record

Message: TypeAlias = tuple[int, int]
"""A publisher's index and the number of its message."""


class EndsJudge:
    """Sees what routers read of such publishers and what they state."""

    def __init__(self, world: WorldState, still_owed: Callable[[int, int], list[int]]) -> None:
        """Nothing was read. `still_owed`: subscribers that a message is owed to and that are not done with it."""
        self._world = world
        self._still_owed = still_owed
        self._read: dict[int, dict[int, Message]] = {}
        """By link: deliveries without an outcome that their publisher has not settled."""
        self._ids: dict[tuple[int, bytes], int] = {}
        """By link and tag: the id of the last delivery."""
        self._in_parts: set[tuple[int, int]] = set()
        """Link and id of each delivery that no router keeps: a subscription may need it again (L-7)."""
        self._asked: dict[int, float] = {}
        """By link: when the client's end was read."""
        self._left: dict[int, float] = {}
        """By link: when its router knew that it is gone."""
        self._links: dict[int, tuple[int, int]] = {}
        """By publisher: the link that its key stands for, once it has sent something, and that router's incarnation."""
        self._attached: dict[tuple[int, int], float] = {}
        """By publisher and router: when the first attach was read since the key was written."""
        self._newest: dict[tuple[int, int], int] = {}
        """By publisher and router: the link of the newest attach there."""
        self._taken_over: set[int] = set()
        """Links that were attached, as far as their routers knew, when another attach was read."""

    def on_turn(self, router: Router, batch: Sequence[inputs.Input]) -> None:
        """A router reads this."""
        if self._world.traits.resuming_publisher:
            return  # with a map: whoever loses it gets no outcomes (A-9a, G7)
        now = self._world.now
        for item in batch:
            if isinstance(item, inputs.PublisherTransfer) and not item.settled and item.link not in self._left:
                message = item.message[0], int.from_bytes(item.message[1:5], "big")
                if self._world.is_stock_publisher(message[0]) and self._is_of_session(router, item.link, message[0]):
                    self._read.setdefault(item.link, {})[item.delivery_id] = message
                    self._ids[item.link, item.tag] = item.delivery_id
                    self._links[message[0]] = (item.link, router.rid)
            elif isinstance(item, inputs.LargeTransfer):
                self._in_parts.add((item.link, item.delivery_id))
            elif isinstance(item, inputs.PublisherAttach):
                for publisher in [each.index for each in self._world.publishers if item.peer == f"p{each.index}"]:
                    here = publisher, router.rid
                    self._attached.setdefault(here, now)
                    before = self._newest.get(here, 0)
                    self._newest[here] = item.link
                    if before not in self._left and before not in self._asked:
                        self._taken_over.add(before)
            elif isinstance(item, inputs.PublisherSettle):
                for tag in item.tags:  # I-4a: it is given up
                    self._read.get(item.link, {}).pop(self._ids.get((item.link, tag), -1), None)
            elif isinstance(item, inputs.LinkDetach):
                self._asked.setdefault(item.link, now)
            elif isinstance(item, inputs.LinkLost):
                self._left.setdefault(item.link, now)

    def _is_of_session(self, router: Router, link: int, publisher: int) -> bool:
        """Whether the key still stands for this link's session: a router reads on until it knows better (I-7)."""
        assert router.records is not None
        held = self._world.etcd.keys.get((Kind.PUBLISHER, self._world.publisher_key(publisher)))
        if held is None:
            return False
        assert isinstance(held.record, PublisherRecord)
        session = getattr(router.records.links.get(link), "session", 0)
        return held.record.rid == router.rid and session_of_record(held.record, held.mod_revision) == session

    def on_effect(self, effect: effects.Effect) -> None:
        """A router states this.

        Raises:
            Violation: an end is answered before what was read has an outcome, or that is given up too early.
        """
        if self._world.traits.resuming_publisher:
            return
        if isinstance(effect, effects.Dispose):
            for delivery_id in effect.delivery_ids:
                self._read.get(effect.link, {}).pop(delivery_id, None)
            is_needed_again = all((effect.link, delivery_id) in self._in_parts for delivery_id in effect.delivery_ids)
            is_modified = effect.outcome is DeliveryOutcome.MODIFIED_FAILED and not is_needed_again
            if is_modified and not self._is_over(self._asked.get(effect.link), END_WAIT_S):
                raise Violation(f"GIVEN UP: link {effect.link} gets modified before the time for its end is over")
        elif isinstance(effect, effects.DetachLink | effects.CloseConnection):
            self._left.setdefault(effect.link, self._world.now)
            is_answer = isinstance(effect, effects.DetachLink) and not effect.condition and effect.link in self._asked
            if is_answer and self._read.get(effect.link) and self._world.policy != SESSION_END:
                raise Violation(
                    f"UNREPORTED: the end of link {effect.link} is answered, and {self._read[effect.link]} not"
                )

    def _is_over(self, since: float | None, seconds: float) -> bool:
        return since is not None and self._world.now - since >= seconds / FASTEST_CLOCK

    def excuse(self, publisher: int) -> None:
        """A fault ends its session, or what has ended it was judged."""
        link, _ = self._links.pop(publisher, (0, 0))
        self._read.pop(link, None)
        self._attached = {here: since for here, since in self._attached.items() if here[0] != publisher}

    def on_session_over(self, publisher: int, rid: int | None) -> None:
        """Its key is deleted, or put by an attach at the router with this id; so its session is over.

        Raises:
            Violation: of what its router has read something is owed, and its time is not over.
        """
        link, own = self._links.get(publisher, (0, 0))
        read = self._read.get(link, {})
        is_there = self._world.router_of(own) is not None and own in self._world.etcd.routers
        left = self._left.get(link)
        is_judged = rid in (None, own) and is_there and link not in self._taken_over
        if is_judged and left is not None and not self._world.traits.large:
            is_over = self._is_over(left, SUBSCRIPTION_TIMEOUT_S) or (
                rid is not None and self._is_over(self._attached.get((publisher, rid)), END_WAIT_S)
            )
            for message in read.values():
                if not is_over and (owing := self._still_owed(*message)):
                    raise Violation(f"DROPPED: p{message[0]}/{message[1]} was read, and s{owing[0]} does not get it")
        self.excuse(publisher)
