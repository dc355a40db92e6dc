"""Keys of publishers: attach, session, theft and end (rules A-3, E-6, I-7, I-8)."""

from __future__ import annotations

from delivery_records.attachments.attempt import Attempt
from delivery_records.attachments.closing import STOLEN
from delivery_records.attachments.refusals import NOT_HELD
from delivery_records.attachments.watch.watch_parts import WatchParts
from delivery_records.model import effects
from delivery_records.model.inputs import PublisherAttach
from delivery_records.model.outcomes import Decision
from delivery_records.model.timers import Timer
from delivery_records.model.view import Change, Publisher, publisher_path
from delivery_records.publisher.ingress import Ingress
from delivery_records.publisher.phase import Phase
from delivery_records.publisher.resumption import Held
from delivery_records.subscriber.former_letters import settle_former_letters


class PublisherChanges:
    """What follows from a publisher's key."""

    __slots__ = (
        "_attaching",
        "_egress_parts",
        "_endpoints",
        "_expiry",
        "_ingress_parts",
        "_proposals",
        "_steals",
        "_turn",
    )

    def __init__(self, parts: WatchParts) -> None:
        """Nothing has changed yet."""
        self._attaching = parts.attaching
        self._egress_parts = parts.egress
        self._endpoints = parts.endpoints
        self._expiry = parts.expiry
        self._ingress_parts = parts.ingress
        self._proposals = parts.proposals
        self._steals = parts.steals
        self._turn = parts.turn

    def on_change(self, change: Change) -> None:
        """It attached, was put again, or is gone; with another session its former one is gone."""
        turn = self._turn
        old = turn.view.publishers.get(change.key)
        turn.view.apply(change)
        awaited = self._expiry.cancel(publisher_path(change.key))
        publisher = turn.view.publishers.get(change.key)
        if old is not None and old.session and (publisher is None or publisher.session != old.session):
            for egress in list(self._endpoints.egresses.values()):
                egress.on_session_gone(old.session)  # E-6
        elif old is not None:
            for egress in list(self._egress_parts.synced_letters.get(old.epoch, {}).values()):
                settle_former_letters(turn, egress)  # I-3e
        if publisher is None:
            self._deleted(change.key)
        else:
            self._attached(publisher, awaited)

    def _attached(self, publisher: Publisher, awaited: int) -> None:
        """A-3 when it is our put; I-7 when the link here was overtaken."""
        turn = self._turn
        path = publisher_path(publisher.key)
        here = self._endpoints.ingresses.get(publisher.key)
        started = self._proposals.reputs.pop(publisher.record.nonce, None)
        if here is not None and started is here:
            turn.timers.cancel(Timer.UNKNOWN_PUT, publisher.record.nonce)
            self._endpoints.ingress_by_epoch[publisher.epoch] = self._endpoints.ingress_by_epoch.pop(here.epoch)
            here.on_reput(publisher)
            if here.link is None:
                self._expiry.on_attachment_lost(path, publisher, awaited)
            elif here.phase is Phase.CLOSING:
                self._proposals.delete(path, publisher.epoch)  # I-8
            return
        attempt: Attempt | None = self._attaching.take(publisher.record.nonce)
        held = self._held(here, publisher, attempt)
        if here is not None:
            self._endpoints.forget_ingress(here)
            if here.link is not None:
                self._steal(here, publisher)
        if attempt is not None and not attempt.is_lost:
            self._open(publisher, attempt, held, awaited)
        elif publisher.record.rid == turn.rid:
            self._expiry.on_attachment_lost(path, publisher, awaited)
        elif publisher.record.rid not in turn.view.routers:
            self._expiry.on_orphan(path, publisher)

    def _held(self, here: Ingress | None, publisher: Publisher, attempt: Attempt | None) -> Held | None:
        """A-3b: what a publisher without the capability may resume; None: nothing, or it is not known."""
        request = None if attempt is None else attempt.request
        if not isinstance(request, PublisherAttach) or not request.resumes:
            return None
        if here is not None:
            here.large.abort(is_link_lost=True)  # L-5: if its link is still there
        return self._attaching.held(publisher_path(publisher.key), publisher.session, request)

    def _open(self, publisher: Publisher, attempt: Attempt, held: Held | None, awaited: int) -> None:
        turn, request = self._turn, attempt.request
        assert isinstance(request, PublisherAttach)
        if held is None and request.resumes:  # A-3c: it was forgotten since the put
            turn.note(Decision.PUBLISHER_UNKNOWN, publisher=publisher.name)
            self._endpoints.links.pop(attempt.link, None)
            turn.out.append(effects.DetachLink(attempt.link, True, *NOT_HELD))
            self._expiry.on_attachment_lost(publisher_path(publisher.key), publisher, awaited)
            return
        turn.durations.attach_publisher.observe(turn.now - attempt.since)
        ingress = Ingress(turn, publisher, request, attempt.since, self._ingress_parts, held)
        self._endpoints.open_ingress(ingress, attempt.link)
        ingress.open(request)

    def _steal(self, ingress: Ingress, publisher: Publisher) -> None:
        turn = self._turn
        assert ingress.link is not None
        turn.note(Decision.PUBLISHER_STOLEN, publisher=ingress.name, by=publisher.record.peer)
        self._steals.on_stolen(publisher_path(ingress.key), turn.now, ingress.peer, publisher.record.peer)
        text = f"attached again by {publisher.record.peer or 'another connection'}"
        turn.out.append(effects.DetachLink(ingress.link, ingress.phase is Phase.CLOSING, STOLEN, text))

    def _deleted(self, key: str) -> None:
        turn = self._turn
        self._ingress_parts.failures.forget_resends(key)
        ingress = self._endpoints.ingresses.get(key)
        if ingress is None:
            return
        self._endpoints.forget_ingress(ingress)
        if ingress.link is None:
            return
        if ingress.phase is Phase.CLOSING:
            turn.note(Decision.PUBLISHER_CLOSED, publisher=ingress.name)
            turn.out.append(effects.DetachLink(ingress.link, True))  # I-8
        else:
            info = {"x-opt-topic-resume": "expired"}
            text = "the publisher's session has expired or was deleted"
            turn.out.append(effects.DetachLink(ingress.link, True, "amqp:resource-deleted", text, info))
