"""The bridge node itself: a folder, a receiver for each subscription, a publisher for each sink, in one event loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import replace

from bridges.doors.tls import tls_context
from bridges.node.errors import BadRequest, NodeError
from bridges.node.interface import Commit
from bridges.node.model import NodeSettings, Subscription
from bridges.node.publisher import SinkPublisher
from bridges.node.receiver import Receiver
from bridges.node.shards import refuse_part
from bridges.node.signals import Signal
from bridges.node.storage import Storage
from oncewire.cli.token import token_in
from oncewire.client import ClientError
from oncewire.client.isolation import Isolation

logger = logging.getLogger("oncewire.bridge")

_NO_LONGER = "No publisher waits for it."
_WAITS = "The network did not confirm that it is deleted, and deletes it after {0.timeout_s} s."
MAX_SUBSCRIPTIONS = 256
"""Each keeps a connection to the routers and a file open."""
HOUSE_KEEPING_S = 1.0
"""How often expired messages are deleted, and subscriptions that nobody reads are looked for."""
ABANDONED_S = 3600.0
"""How often what was staged and will not be committed is looked for (O-13)."""
MAX_WAIT_S = 30.0
"""Longest wait for a batch in one request; clients ask again. A connection that is silent for longer looks dead."""


def open_storage(settings: NodeSettings) -> Storage:
    """The folder of a node.

    Raises:
        StorageError: it cannot be used.
    """
    storage = Storage(
        settings.folder, max_outbox_bytes=settings.max_outbox_bytes, retention_s=settings.defaults.retention_s
    )
    for subscription in settings.subscriptions:
        storage.set_retention(subscription.name, subscription.retention_s)
    return storage


class BridgeNode:
    """All of a node but its server. Use `run()` in a task; the other coroutines in the same event loop.

    Raises:
        BadRequest: the TLS files cannot be used.
        StorageError: the folder cannot be used.

    Attributes:
        storage: what it keeps; may be used from any thread.
        ended: subscriptions that it does not receive any more, and why (J-14).
    """

    def __init__(self, settings: NodeSettings) -> None:
        configured = tuple(replace(subscription, is_configured=True) for subscription in settings.subscriptions)
        self.settings = replace(settings, subscriptions=configured)
        self._tls = tls_context(settings.tls, settings.routers)
        self._token = None if settings.token_file is None else token_in(settings.token_file)
        self.storage = open_storage(settings)
        self.ended: dict[str, str] = {}
        self._receivers: dict[str, Receiver] = {}
        self._configured = frozenset(subscription.name for subscription in settings.subscriptions)
        self._publishers: dict[str, SinkPublisher] = {}
        self._group: asyncio.TaskGroup | None = None
        self._opening = asyncio.Lock()
        self.started = Signal()

    async def run(self) -> None:
        """Receive and publish until cancelled.

        Raises:
            NodeError, ClientError: a journal of the configuration cannot be used.
        """
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for subscription in self.settings.subscriptions:
                    await self._start_receiver(subscription)
                if self.settings.resumes:
                    for name in self.storage.subscriptions():
                        await self._resume(name)
                    for sink in self.storage.sinks():
                        self._publisher(sink)
                self.started.notify()
                await self._keep_house()
        finally:
            self._group = None
            for receiver in self._receivers.values():
                receiver.close()
            self._receivers.clear()
            self._publishers.clear()
            self.storage.close()

    async def _keep_house(self) -> None:
        clock = asyncio.get_running_loop().time
        then = clock()
        sinks_at = then
        while True:
            await asyncio.sleep(HOUSE_KEEPING_S)
            passed_s, then = clock() - then, clock()
            if self.settings.resumes and then >= sinks_at:
                sinks_at = then + ABANDONED_S
                await asyncio.to_thread(self._delete_abandoned)
            for name, receiver in list(self._receivers.items()):
                try:
                    await self._keep(name, receiver, passed_s)
                except NodeError as error:
                    logger.warning("messages of subscription %s cannot be deleted: %s", name, error)
                receiver.trimmed()

    async def _keep(self, name: str, receiver: Receiver, passed_s: float) -> None:
        subscription, attention = receiver.subscription, receiver.attention
        if attention.passed(passed_s):
            await asyncio.to_thread(lambda: self.storage.journal(name).note_unread(attention.unread_s))
            attention.noted()
        if subscription.drop_unread_s:
            dropped = await asyncio.to_thread(self._drop_unread, name, subscription.drop_unread_s)
            if dropped:
                receiver.numbers.dropped += dropped
                logger.warning(
                    "subscription %s: %d messages were dropped (J-15): no query has processed them within %g s",
                    name,
                    dropped,
                    subscription.drop_unread_s,
                )
        await asyncio.to_thread(self.storage.delete_expired, name)
        limit_s = subscription.expire_unread_s
        if 0.0 < limit_s <= attention.unread_s:
            receiver.end_soon(f"no query has asked for it within {limit_s:g} s (expire_unread_s)")

    def _delete_abandoned(self) -> None:
        """O-13."""
        for sink in self.storage.sinks():
            try:
                self.storage.outbox(sink).delete_abandoned()
            except NodeError as error:
                logger.warning("abandoned rows of sink %s cannot be deleted: %s", sink, error)

    def _drop_unread(self, name: str, after_s: float) -> int:
        return self.storage.journal(name).drop_unread(time.time() - after_s)

    # --- subscriptions ------------------------------------------------------------------------------------------------

    async def subscribe(self, name: str, topics: Sequence[str], isolation: Isolation | None = None) -> None:
        """Receive topics under a subscription's name from now on, across restarts; harmless when it is so already.

        `isolation` None = as its journal has it.

        Returns when the network has confirmed it, or at least tried: it receives messages sent afterwards.

        Raises:
            BadRequest: the subscription has other topics or another isolation level, or is a shard, or there are too
                many subscriptions.
            NodeError, ClientError: its journal cannot be used.
        """
        async with self._opening:
            receiver = self._receivers.get(name)
            if receiver is not None and receiver.ended:
                await receiver.over()
                receiver = None
            if receiver is None:
                described = replace(self._described(name, tuple(topics)), isolation=isolation)
                receiver = await self._start_receiver(described)
        if receiver.subscription.shard is not None:
            raise refuse_part(name, receiver.subscription.shard)
        if topics and set(topics) != set(receiver.subscription.topics):
            raise BadRequest(
                f"subscription {name!r} cannot be made to topics {', '.join(topics)}",
                f"it has the topics {', '.join(receiver.subscription.topics)}",
                "use another subscription for other topics",
            )
        if isolation not in {None, receiver.isolation}:
            assert isolation is not None
            raise BadRequest(
                f"subscription {name!r} cannot be read with isolation level {isolation.value}",
                f"it has the level {receiver.isolation.value}",
                "use that level, or a subscription with another name",
            )
        receiver.attention.asked()
        await receiver.confirmed()

    def asked(self, name: str) -> None:
        """A client reads a subscription, or wants to (J-14)."""
        receiver = self._receivers.get(name)
        if receiver is not None:
            receiver.attention.asked()

    async def end(self, name: str, why: str) -> bool:
        """End a subscription for good, unless the configuration has it (J-14); whether the network has deleted it.

        What is in its journal stays there. A query that subscribes again gets a new subscription.

        Raises:
            NodeError, ClientError: its journal cannot be used.
        """
        if name in self._configured:
            return False
        async with self._opening:
            receiver = self._receivers.get(name)
            if receiver is None:
                if name in self.ended:
                    return True
                topics = await asyncio.to_thread(lambda: self.storage.journal(name).topics())
                receiver = await self._start_receiver(self._described(name, tuple(topics)))
        return await receiver.end(why)

    def _described(self, name: str, topics: tuple[str, ...]) -> Subscription:
        return replace(self.settings.defaults, name=name, container_id=f"{self.settings.name}.{name}", topics=topics)

    async def _resume(self, name: str) -> None:
        """Resume a subscription that was created on a client's request."""
        if name in self._receivers:
            return
        try:
            topics = await asyncio.to_thread(lambda: self.storage.journal(name).topics())
            ended = await asyncio.to_thread(lambda: self.storage.journal(name).ended())
            if ended:  # J-14
                self.ended[name] = ended
            elif topics:
                await self._start_receiver(self._described(name, tuple(topics)))
        except (NodeError, ClientError) as error:  # a damaged one must not stop the others
            logger.warning("subscription %s cannot be received: %s", name, error)

    async def _start_receiver(self, subscription: Subscription) -> Receiver:
        assert self._group is not None, "run() is not running"
        path = self.storage.journal_path(subscription.name)
        if len(self._receivers) >= MAX_SUBSCRIPTIONS:
            raise BadRequest(
                f"subscription {subscription.name!r} cannot be added",
                f"the node has {MAX_SUBSCRIPTIONS}",
                "use another node",
            )
        receiver = await asyncio.to_thread(Receiver, subscription, path, self.settings.routers, self._tls, self._token)
        self._receivers[subscription.name] = receiver
        self.ended.pop(subscription.name, None)
        self._group.create_task(self._run(receiver))
        return receiver

    async def _run(self, receiver: Receiver) -> None:
        """J-14: forget a subscription that has ended."""
        await receiver.run()
        name = receiver.subscription.name
        publishers = _NO_LONGER if receiver.is_unsubscribed else _WAITS.format(receiver.subscription)
        logger.warning(
            "subscription %s is not received any more: %s. %s A query that subscribes to it gets a new subscription; "
            "until then its journal %s keeps what was accepted",
            name,
            receiver.ended,
            publishers,
            receiver.path,
        )
        receiver.close()
        self.ended[name] = receiver.ended
        del self._receivers[name]

    async def appended(self, name: str, seen: int, timeout_s: float) -> int:
        """Wait until a subscription got messages after the count `seen`; returns the count now."""
        receiver = self._receivers.get(name)
        if receiver is None:
            return seen
        await receiver.appended.wait(seen, min(timeout_s, MAX_WAIT_S))
        return receiver.appended.count

    def trimmed(self, name: str) -> None:
        """A reader has trimmed a journal: its receiver may continue."""
        receiver = self._receivers.get(name)
        if receiver is not None:
            receiver.trimmed()

    # --- sinks --------------------------------------------------------------------------------------------------------

    def _publisher(self, sink: str) -> SinkPublisher:
        publisher = self._publishers.get(sink)
        if publisher is None:
            assert self._group is not None, "run() is not running"
            publisher = self._publishers[sink] = SinkPublisher(
                self.storage.outbox_path(sink),
                sink,
                self.settings.routers,
                tls=self._tls,
                token=self._token,
                inflight=self.settings.inflight,
            )
            self._group.create_task(publisher.run())
        return publisher

    async def finished(self, sink: str, number: int, timeout_s: float) -> Commit:
        """Wait until a manifest is published.

        Args:
            sink: whose.
            number: of the manifest.
            timeout_s: how long at most.

        Returns:
            What has become of it by then, and what keeps the sink from publishing, empty if nothing does.

        Raises:
            BadRequest: there is no such manifest.
        """
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + min(timeout_s, MAX_WAIT_S)
        await asyncio.to_thread(self.storage.manifest, sink, number)  # before anything is made for a sink
        publisher = self._publisher(sink)
        publisher.wake()
        while True:
            seen = publisher.progress.count
            found = await asyncio.to_thread(self.storage.manifest, sink, number)
            left_s = ends_at - loop.time()
            if found.is_done or left_s <= 0.0:
                trouble = "" if found.is_done else "; ".join(sorted(publisher.numbers.trouble.values()))
                return Commit(number, found.rows, found.is_first, found.is_done, found.not_accepted, trouble)
            await publisher.progress.wait(seen, left_s)

    # --- what people and metrics see ----------------------------------------------------------------------------------

    def waiting_for(self) -> list[str]:
        """What is missing until the node does all it should; empty when it is ready."""
        if self._group is None or not self.started.count:
            return ["start"]
        missing = [
            f"subscription {name}: {receiver.numbers.trouble or 'not attached yet'}"
            for name, receiver in self._receivers.items()
            if receiver.numbers.trouble or receiver.numbers.active_links < len(receiver.subscription.topics)
        ]
        missing += [f"subscription {name}: {why}" for name, why in self.ended.items() if name in self._configured]
        return missing + [
            f"sink {sink}: {why}"
            for sink, publisher in self._publishers.items()
            for why in publisher.numbers.trouble.values()
        ]

    def state(self) -> dict[str, object]:
        """Everything that is worth knowing, JSON-able. Reads the files: call it in a thread."""
        return {
            "name": self.settings.name,
            "ready": not self.waiting_for(),
            "waiting_for": self.waiting_for(),
            "subscriptions": {
                name: self._subscription_state(receiver) for name, receiver in list(self._receivers.items())
            },
            "ended": dict(self.ended),
            "sinks": {sink: self._sink_state(sink, publisher) for sink, publisher in list(self._publishers.items())},
        }

    def _subscription_state(self, receiver: Receiver) -> dict[str, object]:
        marks = self.storage.journal(receiver.subscription.name).marks()
        numbers = receiver.numbers
        return {
            "topics": list(receiver.subscription.topics),
            "shard": str(receiver.subscription.shard or ""),
            "shard_by": receiver.subscription.shard.by.value if receiver.subscription.shard else "",
            "journal": marks.uuid,
            "last": marks.last,
            "trimmed": marks.trimmed,
            "deleted": marks.deleted,
            "live_bytes": marks.live_bytes,
            "max_bytes": receiver.subscription.max_journal_bytes,
            "owner": marks.owner,
            "initial": marks.initial,
            "is_full": numbers.is_full,
            "messages": dict(numbers.messages),
            "groups": numbers.groups,
            "commit_seconds": round(numbers.commit_s, 6),
            "isolation": receiver.isolation.value,
            "open_bytes": receiver.open_bytes,
            "retention_s": receiver.subscription.retention_s,
            "unread_s": round(receiver.attention.unread_s, 1),
            "expire_unread_s": receiver.subscription.expire_unread_s,
            "drop_unread_s": receiver.subscription.drop_unread_s,
            "dropped": numbers.dropped,
            "origin": "settings" if receiver.subscription.is_configured else "query",
            "producers": receiver.producer_count,
            "new_incarnations": numbers.new_incarnations,
            "trouble": numbers.trouble,
        }

    def _sink_state(self, sink: str, publisher: SinkPublisher) -> dict[str, object]:
        numbers = publisher.numbers
        return {
            **self.storage.sink_state(sink),
            "outcomes": dict(numbers.outcomes),
            "unfinished": numbers.unfinished,
            "trouble": "; ".join(sorted(numbers.trouble.values())),
        }
