"""A bridge node without a network of its own: the shipped receiver, driven in steps, and the shipped files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bridges.node.model import NodeSettings
from chaos.queries.code import Code
from chaos.queries.network import TOPIC, Link, Network, Sent
from chaos.routed.judge import Violation
from oncewire.client import NewIncarnation, SqliteJournal, SubscriptionExpired
from oncewire.client.journal_records import SubscriberChanges
from oncewire.client.outcomes import ACCEPTED, Outcome

SUB = "billing"
URL = "amqp://127.0.0.1:1"
START_S = 1_790_000_000.0


class Crash(Exception):
    """The process of the node ends here."""


class Suspended(Exception):
    """A coroutine waits for something that does not come now."""


def at_once(work: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns that has to wait for nothing.

    Raises:
        Suspended: it waits.
    """
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value
    except RuntimeError as error:  # it has asked for the running loop, to wait in
        raise Suspended from error
    work.close()
    raise Suspended


class SimClock:
    """What modules take from `time`."""

    def __init__(self) -> None:
        self.now = START_S

    def time(self) -> float:
        """Seconds since 1970."""
        return self.now

    def time_ns(self) -> int:
        """The same in nanoseconds."""
        return int(self.now * 1e9)

    def perf_counter(self) -> float:
        """Seconds of some clock."""
        return self.now


@dataclass(frozen=True, slots=True)
class SimDelivery:
    """What the receiver takes of a `Delivery`."""

    tag: bytes
    payload: bytes
    incarnation: int
    message_format: int = 0
    publisher: str = "p/link"


class SimNode:
    """One process after the other, on one folder.

    Args:
        code: of the node.
        folder: of its files.
        network: its subscription is `link` there.
        terms: of the subscription.
        chance: whether something of this probability happens.
    """

    def __init__(
        self,
        code: Code,
        folder: Path,
        link: Link,
        network: Network,
        terms: dict[str, Any],
        chance: Callable[[float], bool],
    ) -> None:
        self.clock = SimClock()
        self.link = link
        self.accepted: list[Sent] = []
        self.gaps: set[int] = set()
        """Incarnations of the subscription before whose first message some are missing."""
        self.receiver: Any = None
        self.client_journal: SqliteJournal | None = None
        self.must_stay_ended = False
        self.ended: dict[str, str] = {}
        self.is_calm = False
        self._code = code
        self._network = network
        self._chance = chance
        self._settled: list[bytes] = []
        self._is_asked = False
        code.receiver.time = code.storage.time = self.clock
        defaults = code.receiver.Subscription("", "", (), retention_s=terms.pop("retention_s", 0.0))
        self._subscription = replace(defaults, name=SUB, container_id=SUB, topics=(TOPIC,), **terms)
        self._settings = NodeSettings("node", folder, (URL,), defaults=defaults)
        self.api: Any = None
        self.begin()

    # --- the process --------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """The process starts, again if it ends meanwhile: it resumes what its folder has (J-14)."""
        while True:
            try:
                self._begin()
            except Crash:
                self.crash()
            else:
                return

    def _begin(self) -> None:
        self.api = self._code.embedded.EmbeddedNode(self._settings)
        self.api.subscribe = self._subscribe
        self.api.status = lambda: {"subscriptions": {SUB: {"retention_s": self._subscription.retention_s}}}
        self.api._thread = self
        self.ended.clear()
        self._is_asked = False
        storage = self.api._files
        if SUB in storage.subscriptions() and (ended := storage.journal(SUB).ended()):
            self.ended[SUB] = ended
        else:
            self._receive()

    def begin_with(self, **terms: Any) -> None:
        """It starts with other settings. What raises leaves the node as it was before."""
        before, self._subscription = self._subscription, replace(self._subscription, **terms)
        try:
            self.begin()
        except BaseException:
            self._subscription = before
            self.crash()
            raise

    def crash(self) -> None:
        """It ends, whatever it was doing."""
        self._let_go()
        self.api._thread = None
        self.api.close()

    def _let_go(self) -> None:
        if self.receiver is not None:
            self.receiver.close()
            self.receiver = None

    @property
    def node(self) -> SimNode:
        """See `EmbeddedNode`: what it asks of the node in its thread."""
        return self

    def soon(self, function: Callable[[str], None], argument: str) -> None:
        """See `EmbeddedNode`."""
        function(argument)

    def asked(self, _name: str) -> None:
        """See `BridgeNode`."""
        self._is_asked = True
        if self.receiver is not None:
            self.receiver.attention.asked()

    def trimmed(self, _name: str) -> None:
        """See `BridgeNode`."""

    def _subscribe(self, name: str, _topics: Sequence[str], _isolation: object = None) -> str:
        """See `Node`: a query wants the subscription, whatever has ended it."""
        self.must_stay_ended = False
        self.ended.clear()
        if self.receiver is None:
            self._receive(is_wanted=True)
        self.asked(name)
        return str(self.api._files.journal(name).marks().uuid)

    # --- the subscription ---------------------------------------------------------------------------------------------

    def _receive(self, *, is_wanted: bool = False) -> None:
        """Receive from now on; what the client's map has of the subscription is presented."""
        if self.must_stay_ended:
            raise Violation("the subscription was ended, and is received again though no query has asked for it")
        nobody_misses = self._nobody_misses()
        path = self._settings.folder / f"journals/{SUB}.db"
        self.receiver = self._code.receiver.Receiver(self._subscription, path, [URL])
        self.client_journal = self.receiver._client_journal
        if is_wanted:
            self.receiver.attention.asked()
        state = self.client_journal.open_subscriber(TOPIC)
        now = self._network.attach(self.link)
        if state.incarnation == now:
            for tag, outcome in state.entries:
                if outcome is not None:
                    self._accept(tag, outcome)
        elif state.incarnation:
            self.receiver._on_event(NewIncarnation(TOPIC, state.incarnation, now))
            if not self._is_asked and not is_wanted and not self.receiver.ended:
                raise Violation(
                    "the subscription was deleted while the node was disconnected, and nobody wants a new one"
                )
        if self.receiver.ended:
            self._finish_end()
            return
        if nobody_misses:
            self.gaps.clear()
        elif state.incarnation not in (0, now) and self.link.has_missed:
            self.gaps.add(now)
        self.link.has_missed = False
        at_once(self.receiver._begin(self, self.receiver._sources[TOPIC]))

    def _nobody_misses(self) -> bool:
        """J-14: an ended subscription without a query, and without messages that one could read, begins anew."""
        storage = self.api._files
        if SUB not in storage.subscriptions() or not storage.journal(SUB).ended():
            return False
        marks = storage.journal(SUB).marks()
        return marks.owner is None and marks.deleted == marks.last

    def operator_deletes(self) -> None:
        """Somebody deletes the subscription in the network while the node receives it."""
        self._network.delete(self.link)
        if self.receiver is None:
            return
        self.receiver._on_event(SubscriptionExpired(TOPIC))
        if not self.receiver.ended:
            raise Violation("the subscription was deleted by an operator, and the node makes another one")
        self._finish_end()

    def end(self, why: str) -> None:
        """The node ends the subscription."""
        self._network.delete(self.link)
        if self.receiver is not None:
            self.receiver.end_soon(why)
            self._finish_end()

    def _finish_end(self) -> None:
        receiver = self.receiver

        async def unsubscribe() -> None:
            receiver.is_unsubscribed = True

        receiver._receive = unsubscribe
        self._network.delete(self.link)
        at_once(receiver.run())
        self.ended[SUB] = receiver.ended
        self.must_stay_ended = True
        self._let_go()

    # --- what a receiver wants of its subscriber ----------------------------------------------------------------------

    @property
    def incarnation(self) -> int:
        """See `Subscriber`."""
        return self.link.incarnation

    @asynccontextmanager
    async def transaction(self, *deliveries: SimDelivery) -> AsyncIterator[Any]:
        """See `Subscriber`: acceptance and what the block does are one transaction; the process may end in it."""
        journal = self.client_journal
        assert journal is not None
        self._may_crash()
        journal.begin()
        try:
            yield journal.connection
            self._write(journal, deliveries, ACCEPTED)
            self._may_crash()
        except BaseException:
            journal.rollback()
            raise
        journal.commit()
        self._may_crash()
        for each in deliveries:
            self._accept(each.tag, ACCEPTED)

    async def finish(self, deliveries: Sequence[SimDelivery], outcome: Outcome) -> None:
        """See `Subscriber`."""
        journal = self.client_journal
        assert journal is not None
        journal.begin()
        self._write(journal, deliveries, outcome)
        journal.commit()
        for each in deliveries:
            self._accept(each.tag, outcome)

    def _write(self, journal: SqliteJournal, deliveries: Sequence[SimDelivery], outcome: Outcome) -> None:
        entries = tuple((each.tag, outcome) for each in deliveries)
        journal.write_subscriber(TOPIC, SubscriberChanges(self.link.incarnation, entries, tuple(self._settled)))
        self._settled.clear()

    def _may_crash(self) -> None:
        if not self.is_calm and self._chance(0.03):
            raise Crash

    def _accept(self, tag: bytes, outcome: Outcome) -> None:
        sent = self.link.unsettled.pop(tag, None)
        if sent is not None:
            self._settled.append(tag)
            if outcome.is_accepted:
                self.accepted.append(sent)

    def take(self, count: int) -> bool:
        """Take some messages in; False = it is full, or ended, or there are none.

        Raises:
            Crash: the process has ended in the middle.
        """
        if self.receiver is None or not self.link.unsettled:
            return False
        try:
            at_once(self.receiver._until_room())
        except Suspended:
            return False
        chosen = list(self.link.unsettled.items())[:count]
        deliveries = [SimDelivery(tag, sent.payload, sent.incarnation) for tag, sent in chosen]
        at_once(self.receiver._write(self, self.receiver._sources[TOPIC], deliveries))
        return True
