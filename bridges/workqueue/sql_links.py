"""Deliveries of AMQP links in the SQL stores: what was pushed by a link is known until its sender settles it."""

from __future__ import annotations

from collections.abc import Sequence

from bridges.workqueue import sql_statements as sql
from bridges.workqueue.errors import LinkStolen
from bridges.workqueue.items import LinkState, NewItem, Pushed
from bridges.workqueue.rules_core import LINK_EXPIRY_S, to_us
from bridges.workqueue.sql_items import SqlItems

PURGED_LINKS = 16
"""Expired links that an attach deletes: more than it adds, so they never pile up."""


class SqlLinks(SqlItems):
    """Resume a link, push its deliveries, settle them; see Operations."""

    def resume_link(self, link: str, tags: Sequence[bytes]) -> LinkState:
        """Begin a new generation of a link; see Operations."""
        expires = self._now_us + to_us(LINK_EXPIRY_S)
        for (gone,) in self.execute(sql.PURGE_LINKS, (self._now_us, PURGED_LINKS)):
            self.execute(sql.FORGET_LINK, (gone,))
        generation = int(self.execute(sql.RAISE_LINK, (link, expires))[0][0])
        wanted = set(tags)
        known = [bytes(tag) for (tag,) in self.execute(sql.LINK_TAGS, (link,))]
        # W-17: nothing is forgotten yet, for this may be a late attach that its sender has given up.
        return LinkState(generation, frozenset(wanted.intersection(known)), frozenset(known) - wanted)

    def push_delivery(self, queue: str, item: NewItem, link: str, generation: int, tag: bytes) -> Pushed:
        """Push a delivery of a link, once; see Operations."""
        rows = self.execute(sql.AMQP_LINK, (link,))
        if not rows or rows[0][0] != generation:  # W-18
            raise LinkStolen(
                "the delivery was not pushed",
                "its link was attached again since, or its time is over",
                "attach again and present the unsettled deliveries",
            )
        if rows[0][1] < self._now_us + to_us(LINK_EXPIRY_S) // 2:
            self.execute(sql.RENEW_LINK, (self._now_us + to_us(LINK_EXPIRY_S), link))
        known = self.execute(sql.DELIVERY, (link, tag))
        if known:
            return Pushed(int(known[0][0]), is_new=False)
        pushed = self.push(queue, [item])[0]
        self.execute(sql.NOTE_DELIVERY, (link, tag, pushed.item))
        return pushed

    def settle_deliveries(self, link: str, generation: int, tags: Sequence[bytes]) -> None:
        """Forget deliveries that their sender has settled; see Operations."""
        rows = self.execute(sql.AMQP_LINK, (link,))
        if rows and rows[0][0] == generation:
            for tag in tags:
                self.execute(sql.FORGET_DELIVERY, (link, tag))
