"""Draining: a router that is to stop lets its clients move first (rule K-8a).

A client that presents a map may move at any moment, for what is unsettled is resumed. One that keeps none is let go
when everything it sent or was sent is settled: then nothing of it can come again.
"""

from __future__ import annotations

from collections.abc import Sequence

from delivery_records.attachments.attempt import Attempt
from delivery_records.attachments.endpoints import Endpoints, Link
from delivery_records.model import effects
from delivery_records.model.inputs import Drain, LossCause
from delivery_records.model.limits import DRAIN_CHECK_S, DRAIN_PATIENCE_S
from delivery_records.model.outcomes import Decision
from delivery_records.model.timers import Timer
from delivery_records.model.turn import Turn


class Draining:
    """Which connections are still to go, and until when they are waited for."""

    __slots__ = ("_connections", "_endpoints", "_limit_at", "_patience_at", "_turn")

    def __init__(self, turn: Turn, endpoints: Endpoints) -> None:
        """The router serves."""
        self._turn = turn
        self._endpoints = endpoints
        self._connections: list[Sequence[int]] = []
        self._patience_at = 0.0
        self._limit_at = 0.0

    def start(self, drain: Drain) -> None:
        """Take back credit, and send away whoever is at rest already. A second `Drain` changes nothing."""
        turn = self._turn
        if turn.is_draining:
            return
        turn.is_draining = True
        self._connections = list(drain.connections)
        self._patience_at = turn.now + min(DRAIN_PATIENCE_S, drain.limit_s)
        self._limit_at = turn.now + drain.limit_s
        turn.note(Decision.DRAIN_STARTED, connections=len(self._connections), limit_s=drain.limit_s)
        for ingress in self._endpoints.ingresses.values():
            ingress.withdraw_credit()
        for egress in self._endpoints.egresses.values():
            egress.outgoing.park()
        self.look()

    def look(self) -> None:
        """Send away every connection whose links may go; at the limit all of them."""
        turn = self._turn
        is_over = turn.now >= self._limit_at
        waiting: list[Sequence[int]] = []
        sent_away = 0
        for links in self._connections:
            here = [(link, endpoint) for link in links if (endpoint := self._endpoints.links.get(link)) is not None]
            if is_over or all(self._may_go(endpoint) for _, endpoint in here):
                self._send_away(here)
                sent_away += 1
            else:
                waiting.append(links)
        self._connections = waiting
        if sent_away:
            turn.note(Decision.CLIENTS_SENT_AWAY, connections=sent_away, left=len(waiting), is_limit=is_over)
        if waiting:
            turn.timers.set(Timer.DRAIN, 0, turn.now + DRAIN_CHECK_S)

    def _may_go(self, endpoint: Link) -> bool:
        if isinstance(endpoint, Attempt) or endpoint.is_at_rest:
            return True
        return endpoint.resumes and self._turn.now >= self._patience_at

    def _send_away(self, here: list[tuple[int, Link]]) -> None:
        """Close the connection; all its links are suspended (A-9)."""
        if here:
            self._turn.out.append(effects.CloseConnection(here[0][0], "amqp:connection:redirect", _MOVE))
        for link, endpoint in here:
            self._endpoints.lose(link, endpoint, LossCause.CONNECTION_LOSS)


_MOVE = "this router is going to stop; connect to another router"
