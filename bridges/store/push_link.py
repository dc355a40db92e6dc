"""A client that sends to an address of the store: carries out what `PushCore` decides."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from typing import Any, Protocol

from bridges.store import links
from bridges.store import push_core as core
from bridges.store.amqp_errors import error_of
from bridges.store.links import LinkState
from oncewire.client.service import ServiceLink
from oncewire.store.errors import EdgeError
from oncewire.store.open_store import OpenStore
from oncewire.wire import (
    NOT_IMPLEMENTED,
    AmqpError,
    DeliveryReceived,
    DispositionReceived,
    LinkDetached,
    LinkFlow,
    ReceiverSettleMode,
)


class PushTarget(Protocol):
    """What a client sends to."""

    def check(self, do: Any) -> None:
        """Look whether it is there.

        Raises:
            UnknownName: it is not.
        """

    def decode(self, event: DeliveryReceived) -> Any:
        """Make of a message what is pushed.

        Raises:
            InvalidRequest, PayloadTooLarge: it can never be.
        """

    def push(self, do: Any, items: Sequence[core.ToPush], link: str | None, generation: int) -> list[Any]:
        """Push items in this transaction, and note their tags where a link is named (W-17).

        Returns what became of each: an EdgeError of one that has written nothing, or anything else.
        """


class PushLink:
    """One link of a client that sends.

    Args:
        start: runs a piece of work beside the others.
        store: of the address.
        link: the client's.
        target: what it sends to.
    """

    def __init__(
        self,
        start: Callable[[Coroutine[Any, Any, None]], object],
        store: OpenStore[Any],
        link: ServiceLink,
        target: PushTarget,
    ) -> None:
        self.link = link
        self.is_over = False
        self._work = start
        self._store = store
        self._target = target
        self._core = core.PushCore(link.attach.rcv_settle_mode == ReceiverSettleMode.SECOND, target.decode)
        identity = f"{len(link.container_id)}:{link.container_id}{link.user or ''}|{link.name}"
        self._key = hashlib.sha256(identity.encode()).hexdigest()

    async def open(self) -> None:
        """Answer the attach."""
        attach = self.link.attach
        if attach.incomplete_unsettled:
            why = "its unsettled map is not complete"
            fix = "raise the client's max-frame-size, so that its attach holds the whole map"
            self._refuse(AmqpError(NOT_IMPLEMENTED, f"the link was refused: {why}; {fix}"))
            return
        try:
            state = await self._store.transact(self._begin)
        except EdgeError as error:
            self._refuse(error_of(error))
            return
        if self.is_over:
            return
        known = self._core.on_resumed(state)
        self.link.reply(
            unsettled=None if attach.unsettled is None else known,
            rcv_settle_mode=attach.rcv_settle_mode,
            snd_settle_mode=attach.snd_settle_mode,
        )
        self._do(self._core.begin())

    def _begin(self, do: Any) -> LinkState:
        self._target.check(do)
        if not self._core.is_exactly_once:
            return LinkState(0, frozenset())
        return links.resume_link(do, self._key, list(self.link.attach.unsettled or ()))

    def _refuse(self, error: AmqpError) -> None:
        self.is_over = True
        self.link.refuse(error)

    def on_delivery(self, event: DeliveryReceived) -> None:
        """See `LinkEvents`."""
        self._do(self._core.on_delivery(event))

    def on_flow(self, event: LinkFlow) -> None:
        """A sender's flow states nothing that is needed here."""

    def on_disposition(self, event: DispositionReceived) -> None:
        """See `LinkEvents`."""
        self._do(self._core.on_disposition(event))

    def on_detached(self, _event: LinkDetached | None) -> None:
        """See `LinkEvents`."""
        self.is_over = True
        self._core.on_detached()

    def _do(self, effects: Iterable[core.PushEffect]) -> None:
        for effect in effects:
            if isinstance(effect, core.Push):
                self._work(self._push(effect.items, effect.left))
            elif isinstance(effect, core.Settled):
                self._work(self._forget(effect.tags))
            elif isinstance(effect, core.Dispose):
                self.link.dispose(effect.numbers, effect.state, effect.settled)
            elif isinstance(effect, core.Grant):
                self.link.grant(effect.credit)
            else:
                self.is_over = True
                self.link.detach(effect.closed, effect.error)

    async def _push(self, items: list[core.ToPush], left: frozenset[bytes]) -> None:
        link = self._key if self._core.is_exactly_once else None
        generation = self._core.generation

        def job(do: Any) -> list[Any]:
            if left:
                links.settle_deliveries(do, self._key, generation, sorted(left))
            return self._target.push(do, items, link, generation)

        try:
            results = await self._store.transact(job)
        except EdgeError as error:
            results = [error] * len(items)
        self._do(self._core.on_pushed(items, results))

    async def _forget(self, tags: list[bytes]) -> None:
        generation = self._core.generation
        with suppress(EdgeError):  # they are forgotten with the next attach, or with the link
            await self._store.transact(lambda do: links.settle_deliveries(do, self._key, generation, tags))
