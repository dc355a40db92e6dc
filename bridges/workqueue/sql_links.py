"""Deliveries of AMQP links that push items (W-17, W-18)."""

from __future__ import annotations

from collections.abc import Sequence

from bridges.store import links
from bridges.store.links import LinkState
from bridges.workqueue.items import NewItem, Pushed
from bridges.workqueue.sql_items import SqlItems


class SqlLinks(SqlItems):
    """Resume a link, push its deliveries, settle them; see Operations."""

    def resume_link(self, link: str, tags: Sequence[bytes]) -> LinkState:
        """Begin a new generation of a link; see Operations."""
        return links.resume_link(self, link, tags)

    def push_delivery(self, queue: str, item: NewItem, link: str, generation: int, tag: bytes) -> Pushed:
        """Push a delivery of a link, once; see Operations."""
        links.check_generation(self, link, generation)
        known = links.find_deliveries(self, link, [tag])
        if known:
            return Pushed(known[tag], is_new=False)
        pushed = self.push(queue, [item])[0]
        links.note_deliveries(self, link, {tag: pushed.item})
        return pushed

    def settle_deliveries(self, link: str, generation: int, tags: Sequence[bytes]) -> None:
        """Forget deliveries that their sender has settled; see Operations."""
        links.settle_deliveries(self, link, generation, tags)
