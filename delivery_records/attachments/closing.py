"""Puts and deletions of attached links that etcd did not carry out (rules E-8, I-8, K-2a, A-4)."""

from __future__ import annotations

from delivery_records.attachments.attaching import Attaching
from delivery_records.attachments.ending import OrderedEnds
from delivery_records.attachments.endpoints import Endpoints
from delivery_records.attachments.refusals import refused_by_store
from delivery_records.model import effects
from delivery_records.model.endpoint import Endpoint
from delivery_records.model.inputs import LossCause, StoreFailed, StoreFailure
from delivery_records.model.proposals import Proposals
from delivery_records.model.timers import Timer
from delivery_records.model.turn import Turn
from delivery_records.model.view import publisher_path, subscription_path
from delivery_records.publisher.ingress import Ingress
from delivery_records.publisher.phase import Phase
from delivery_records.subscriber.egress import Egress

STOLEN = "amqp:link:stolen"


class Closing:
    """What a link is answered whose put or whose close did not come about."""

    __slots__ = ("_attaching", "_endpoints", "_orders", "_proposals", "_turn")

    def __init__(
        self, turn: Turn, proposals: Proposals, endpoints: Endpoints, attaching: Attaching, orders: OrderedEnds
    ) -> None:
        """Nothing has failed."""
        self._turn = turn
        self._proposals = proposals
        self._endpoints = endpoints
        self._attaching = attaching
        self._orders = orders

    def close(self, egress: Egress) -> None:
        """E-8; SH-1: whoever looked a shared subscription up ends that, and a member only itself."""
        view = self._turn.view
        member = view.subscriptions.get(egress.key)
        shared = None if member is None else view.subscriptions.get(member.record.member_of)
        if shared is None or egress.request.topic is not None:
            self._proposals.delete(subscription_path(egress.key), egress.epoch)
        elif len(view.members_of[shared.key]) > 1:
            self._refuse_end(egress)
        else:
            self._proposals.delete(subscription_path(shared.key), shared.epoch)

    def _refuse_end(self, egress: Egress) -> None:
        self._turn.out.append(effects.DetachLink(egress.link, True, "amqp:resource-locked", _HAS_MEMBERS))
        self._endpoints.suspend(egress, LossCause.DETACH)
        self._proposals.delete(subscription_path(egress.key), egress.epoch)

    def _ending(self, path: str) -> Egress | None:
        """Whose close waits for the end of the shared subscription at this path."""
        for egress in self._endpoints.egresses.values():
            member = self._turn.view.subscriptions.get(egress.key)
            if egress.outgoing.is_closing and member is not None:
                key = member.record.member_of
                if key and subscription_path(key) == path:
                    return egress
        return None

    def on_failed(self, failed: StoreFailed) -> None:
        """A read or proposal of this router did not succeed."""
        if self._attaching.on_failed(failed.nonce, failed.failure):
            return
        if self._orders.on_failed(failed.nonce, failed.failure):
            return
        deletions = self._proposals.deletions
        endpoint = self._proposals.reputs.get(failed.nonce)
        if endpoint is not None:
            self._on_reput_failed(failed.nonce, endpoint, failed.failure)
        path = deletions.get(failed.nonce)
        if path is None:
            return
        if failed.failure is StoreFailure.UNKNOWN:
            self._proposals.watch_unknown(failed.nonce)
            return
        del deletions[failed.nonce]
        if failed.failure is StoreFailure.CONFLICT:
            self.on_deletion_lost(path)
        else:
            self._on_deletion_failed(path)

    def on_unknown_timer(self, nonce: str) -> None:
        """The watch has shown nothing of a put or deletion of unknown fate for long enough (K-2a)."""
        if self._attaching.on_unknown_timer(nonce):
            return
        self._orders.on_unknown_timer(nonce)
        endpoint = self._proposals.reputs.get(nonce)
        if isinstance(endpoint, Ingress):
            self._close_unstarted(endpoint, StoreFailure.UNKNOWN)
        path = self._proposals.deletions.pop(nonce, None)
        if path is not None:
            self._on_deletion_failed(path)

    def _on_reput_failed(self, nonce: str, endpoint: Endpoint, failure: StoreFailure) -> None:
        reputs = self._proposals.reputs
        if isinstance(endpoint, Egress):
            if failure is not StoreFailure.UNKNOWN:
                del reputs[nonce]  # one of unknown fate is still ours if the watch shows it (K-2a)
            if self._endpoints.is_here(endpoint):
                endpoint.proof.on_put_failed(endpoint.key, failure)
                if failure is not StoreFailure.CONFLICT:
                    self._on_deletion_failed(subscription_path(endpoint.key))  # E-8: if a close waits for this put
        elif failure is not StoreFailure.UNKNOWN:
            assert isinstance(endpoint, Ingress)
            del reputs[nonce]
            self._turn.timers.cancel(Timer.UNKNOWN_PUT, nonce)
            self._close_unstarted(endpoint, failure)

    def _close_unstarted(self, ingress: Ingress, failure: StoreFailure) -> None:
        """A-4: the put that starts the session failed or its fate is unknown."""
        if not self._endpoints.is_here(ingress):
            return  # K-2a: a newer attach has taken the link over, and its timers are not ours
        if ingress.link is not None and ingress.phase is Phase.STARTING:
            text = "the session could not be started in etcd; attach again"
            self._turn.out.append(refused_by_store(ingress.link, text))
            self._endpoints.suspend(ingress, LossCause.DETACH)
        elif failure is StoreFailure.CONFLICT:
            self.on_deletion_lost(publisher_path(ingress.key))  # I-8: if a close waits for this put
        else:
            self._on_deletion_failed(publisher_path(ingress.key))

    # ------------------------------------------------------------------ deletions

    def on_deletion_lost(self, path: str) -> None:
        """E-8, I-8: the compare failed: somebody attached again, so the link here is not closed but stolen."""
        ending = self._ending(path)
        if ending is not None:
            self._refuse_end(ending)  # SH-1: a member has come meanwhile, or shown life
            return
        endpoint = self._endpoints.of_path(path)
        if path in self._proposals.deletions.values() or (endpoint is not None and self._is_writing(endpoint)):
            return  # it lost to a put of the link itself: the deletion at that put's revision decides
        link = _link_to_close(endpoint)
        if endpoint is not None and link is not None:
            self._turn.out.append(effects.DetachLink(link, True, STOLEN, _LOST_CLOSE))
            self._endpoints.suspend(endpoint, LossCause.DETACH)

    def _is_writing(self, endpoint: Ingress | Egress) -> bool:
        if isinstance(endpoint, Egress):
            return endpoint.proof.is_writing
        return any(found is endpoint for found in self._proposals.reputs.values())

    def _on_deletion_failed(self, path: str) -> None:
        """E-8, I-8: etcd cannot be reached: as with an attach, the client must come back and close again (K-2a)."""
        endpoint = self._ending(path) or self._endpoints.of_path(path)
        link = _link_to_close(endpoint)
        if endpoint is not None and link is not None:
            self._turn.out.append(refused_by_store(link, _FAILED_CLOSE))
            self._endpoints.suspend(endpoint, LossCause.DETACH)


def _link_to_close(endpoint: Ingress | Egress | None) -> int | None:
    """The link whose close waits for etcd; None when none does."""
    if isinstance(endpoint, Egress):
        return endpoint.link if endpoint.outgoing.is_closing else None
    return endpoint.link if endpoint is not None and endpoint.phase is Phase.CLOSING else None


_HAS_MEMBERS = "the shared subscription has other members: close them first"
_FAILED_CLOSE = "the link could not be closed, for this router cannot reach etcd; attach and close again"
_LOST_CLOSE = "the link was attached again elsewhere while it was being closed; attach and close again"
