"""Publishers that end while subscriptions owe what was read of them (rule A-9a).

A session that its publisher resumes is suspended as it is. Nobody comes back to any other: so its ingress goes on until
nothing is owed. A client that waits for the answer to its detach, end or close gets outcomes first, for T_end at
most; where the link is simply gone, nobody waits, and what was read is owed for T_sub.
"""

from __future__ import annotations

from collections.abc import Callable

from delivery_records.attachments.endpoints import Endpoints
from delivery_records.attachments.expiry import awaited_endpoint
from delivery_records.model import effects
from delivery_records.model.inputs import LinkDetach
from delivery_records.model.outcomes import Decision
from delivery_records.model.proposals import Proposals
from delivery_records.model.timers import Timer
from delivery_records.model.turn import Turn
from delivery_records.model.view import Kind, publisher_path, split_path
from delivery_records.publisher.ingress import Ingress
from delivery_records.publisher.phase import Phase, step


class Departing:
    """What becomes of a publisher that ends its link."""

    __slots__ = ("_endpoints", "_expire", "_on_free", "_proposals", "_turn")

    def __init__(
        self,
        turn: Turn,
        endpoints: Endpoints,
        proposals: Proposals,
        expire: Callable[[str], None],
        on_free: Callable[[str], None],
    ) -> None:
        """Nobody ends.

        Args:
            turn: of this router.
            endpoints: its links.
            proposals: deletions.
            expire: a session that was kept for what is owed is over (K-5).
            on_free: an attach of the same name waits no longer.
        """
        self._turn = turn
        self._endpoints = endpoints
        self._proposals = proposals
        self._expire = expire
        self._on_free = on_free

    def on_detach(self, ingress: Ingress, detach: LinkDetach) -> None:
        """The client has ended a publisher's link, its session, or its connection, and waits for our answer."""
        if ingress.phase is Phase.CLOSING:
            return  # the deletion answers (I-8)
        departure = ingress.departure
        departure.closes, departure.cause = departure.closes or detach.closed, detach.cause
        comes_back = not departure.closes and (ingress.timeout_s > 0 or departure.resumes)
        if ingress.phase not in (Phase.ACTIVE, Phase.ENDING) or ingress.exactly_once or comes_back:
            self._answer(ingress)
            return
        if ingress.phase is Phase.ACTIVE:
            ingress.large.abort(is_link_lost=True)  # L-5
            ingress.phase = step(ingress.phase, Phase.ENDING)
            self._turn.timers.set(Timer.ENDING, ingress.key, self._turn.now + self._turn.limits.end_wait_s)
        if not self._is_suspended(ingress):
            ingress.outcomes.settle_with_outcomes()
        ingress.mark_dirty()

    def _is_suspended(self, ingress: Ingress) -> bool:
        """Whether its session or connection keeps the terminus while it is open: attached there again, it resumes."""
        departure = ingress.departure
        return not departure.closes and awaited_endpoint(ingress.expiry_policy, departure.cause, ingress.place) > 0

    def look(self, ingress: Ingress) -> None:
        """Whether everything that was read has its outcome; or, behind a lost link, nothing is owed any more."""
        if ingress.phase is Phase.ENDING:
            if not ingress.departure.is_reported:
                return
            self._answer(ingress)
        elif ingress.departure.owed:
            return
        elif ingress.departure.is_kept:
            self._expire(publisher_path(ingress.key))
        ingress.departure.is_awaited = False
        self._on_free(publisher_path(ingress.key))

    def on_timer(self, ingress: Ingress) -> None:
        """T_end is over: what has no outcome is in doubt."""
        if ingress.phase is not Phase.ENDING:
            return
        if self._is_suspended(ingress):
            self._answer(ingress)
            self._on_free(publisher_path(ingress.key))
        else:
            assert ingress.link is not None
            unfinished = ingress.outcomes.notify_all()
            ingress.outcomes.send(ingress.link)
            self._note(ingress, unfinished)
            ingress.mark_dirty()

    def _note(self, ingress: Ingress, deliveries: int) -> None:
        self._turn.note(
            Decision.PUBLISHER_UNFINISHED,
            publisher=ingress.name,
            topic=ingress.topic,
            peer=ingress.peer,
            deliveries=deliveries,
        )
        self._turn.counts[Decision.DELIVERY_UNFINISHED] += deliveries

    def _answer(self, ingress: Ingress) -> None:
        assert ingress.link is not None
        self._turn.timers.cancel(Timer.ENDING, ingress.key)
        if ingress.departure.closes:
            ingress.phase = step(ingress.phase, Phase.CLOSING)  # I-8
            self._proposals.delete(publisher_path(ingress.key), ingress.epoch)
            return
        self._turn.out.append(effects.DetachLink(ingress.link, False))
        self._endpoints.suspend(ingress, ingress.departure.cause)

    # ------------------------------------------------------------------ behind a lost link

    def keeps(self, path: str) -> bool:
        """Whether a key that has expired is kept, because its publisher is gone and what was read is owed."""
        ingress = self._ingress_at(path)
        if ingress is None or not self._goes_on(ingress):
            return False
        departure = ingress.departure
        owed, until = departure.owed, self._ends_at(ingress)
        if owed and self._turn.now >= until and departure.is_kept:
            self._note(ingress, owed)
        departure.is_kept = owed > 0 and self._turn.now < until
        if departure.is_kept:
            self._turn.timers.set(Timer.EXPIRY, path, until)
        return departure.is_kept

    def _goes_on(self, ingress: Ingress) -> bool:
        """Whether what was read of it goes on though its link is gone, and nobody presents a map of it."""
        is_over = ingress.link is not None or not ingress.fanout.is_active
        return not (is_over or ingress.exactly_once or ingress.departure.resumes)

    def _ends_at(self, ingress: Ingress) -> float:
        return ingress.departure.left_at + self._turn.limits.subscription_timeout_s

    def is_busy(self, path: str) -> bool:
        """Whether an attach of this name would end deliveries that were read of a publisher before it."""
        ingress = self._ingress_at(path)
        if ingress is None:
            return False
        is_owed = self._goes_on(ingress) and ingress.departure.owed > 0
        ingress.departure.is_awaited = is_owed and self._turn.now < self._ends_at(ingress)
        return ingress.departure.is_awaited or ingress.phase is Phase.ENDING

    def _ingress_at(self, path: str) -> Ingress | None:
        kind, key = split_path(path)
        return self._endpoints.ingresses.get(key) if kind is Kind.PUBLISHER else None
