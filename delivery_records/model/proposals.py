"""What this router proposes to etcd, and what it still waits to see in the watch (rules K-2, K-2a)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from delivery_records.model import effects
from delivery_records.model.bounded import keep_newest
from delivery_records.model.endpoint import Endpoint
from delivery_records.model.limits import UNKNOWN_PUT_S
from delivery_records.model.timers import Timer
from delivery_records.model.turn import Turn
from delivery_records.model.view import PublisherRecord, SubscriptionRecord


class Proposals:
    """Nonces of this incarnation, and the puts and deletions whose fate is open."""

    __slots__ = ("_nonces", "_turn", "deletions", "reputs")

    def __init__(self, turn: Turn) -> None:
        """Nothing is proposed."""
        self._turn = turn
        self._nonces = 0
        self.reputs: dict[str, Endpoint] = {}
        """Puts of attached links (session start A-4, proof of life A-10) whose event is awaited."""
        self.deletions: dict[str, str] = {}
        """Proposed deletions: nonce -> path."""

    def new_nonce(self) -> str:
        """A name for one read or put of this incarnation (K-2a)."""
        self._nonces += 1
        return f"{self._turn.rid:x}.{self._nonces}"

    def put(
        self,
        nonce: str,
        path: str,
        expect: int,
        record: PublisherRecord | SubscriptionRecord,
        shared: effects.SharedPut | None = None,
    ) -> None:
        """Propose a compare-and-put of `record`, marked with the nonce, and of its shared subscription (SH-1)."""
        self._turn.out.append(effects.Propose(nonce, path, expect, replace(record, nonce=nonce), shared))

    def put_again(
        self,
        path: str,
        endpoint: Endpoint,
        record: PublisherRecord | SubscriptionRecord,
        shared: effects.SharedPut | None = None,
        **changed: object,
    ) -> str:
        """Put the attachment of a link here with some fields changed; returns the nonce."""
        nonce = self.new_nonce()
        changes: dict[str, Any] = dict(changed)
        self.put(nonce, path, endpoint.epoch, replace(record, **changes), shared)
        self.reputs[nonce] = endpoint
        keep_newest(self.reputs)
        return nonce

    def delete(self, path: str, epoch: int) -> None:
        """Compare-and-delete an attachment (K-5, I-8, E-8)."""
        nonce = self.new_nonce()
        self.deletions[nonce] = path
        keep_newest(self.deletions)
        self._turn.out.append(effects.Propose(nonce, path, epoch, None))

    def watch_unknown(self, nonce: str) -> None:
        """Wait for a put whose fate is unknown (K-2a)."""
        self._turn.timers.set(Timer.UNKNOWN_PUT, nonce, self._turn.now + UNKNOWN_PUT_S)
