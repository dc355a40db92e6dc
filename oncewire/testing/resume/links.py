"""The router's side of a link, as scenarios speak of it: what a router does in one step is one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from oncewire.testing.resume.judging import require
from oncewire.testing.resume.router import E, Visit
from oncewire.wire import (
    ACCEPTED,
    AmqpError,
    Attach,
    DeliveryReceived,
    DispositionReceived,
    Fields,
    LinkFlow,
    ReceiverLink,
    SenderLink,
    Symbol,
    Target,
    UInt,
    ULong,
    UnsettledMap,
    decode_message,
    encode_data_message,
    vocabulary,
)
from oncewire.wire.map_parts import parts_of, read_part
from oncewire.wire.performative_codec import unsettled_map_bound

MAX_MESSAGE_SIZE = 1 << 20
SECOND = 1
INCARNATION = 7


def body_of(payload: bytes) -> str:
    """The text that a message of the client carries."""
    body = decode_message(payload).body
    return body.decode() if isinstance(body, bytes) else str(body)


class ScriptedLink:
    """What both roles have in common.

    Attributes:
        visit: the connection.
        attach: what the client has said.
    """

    def __init__(self, visit: Visit, wire: SenderLink | ReceiverLink) -> None:
        self.visit = visit
        self.wire = wire
        assert wire.remote_attach is not None
        self.attach: Attach = wire.remote_attach

    @property
    def presented(self) -> UnsettledMap:
        """The map of the attach."""
        return dict(self.attach.unsettled or {})

    @property
    def bound(self) -> int:
        """Entries that a map of the client may have here (C-4)."""
        return unsettled_map_bound(self.visit.engine.receive_frame_size)

    async def next(self, kind: type[E], where: Callable[[E], bool] | None = None) -> E:
        """The next event of this kind on this link; see `Visit.next`."""
        return await self.visit.next(self.wire, kind, where)

    async def stated(
        self, left: set[bytes], where: Callable[[DispositionReceived], bool] | None = None
    ) -> list[DispositionReceived]:
        """The dispositions that name these tags, until all are named."""

        def names_one(each: DispositionReceived) -> bool:
            return not left.isdisjoint(each.tags) and (where is None or where(each))

        found: list[DispositionReceived] = []
        while left:
            found.append(await self.next(DispositionReceived, names_one))
            left -= set(found[-1].tags)
        return found

    def check_terms(self) -> None:
        """The client asks for exactly once."""
        require(vocabulary.EXACTLY_ONCE in self.attach.desired_capabilities, "its attach desires no topic-exactly-once")
        require(self.attach.rcv_settle_mode == SECOND, "its attach asks for another rcv-settle-mode than second")
        require(self.attach.unsettled is not None, "its attach has no unsettled map, also not an empty one")

    async def prove_life(self, value: int) -> None:
        """A-4, A-10: ask for the echo, and wait for it."""
        self._ask(value)
        self.visit.flush()
        answer = await self.next(LinkFlow, lambda flow: vocabulary.ECHO in (flow.properties or {}))
        assert answer.properties is not None
        require(answer.properties[vocabulary.ECHO] == value, "it answered the echo with another value")

    def _ask(self, value: int) -> None:
        raise NotImplementedError

    def detach(self, condition: str) -> None:
        """Detach without closing."""
        self.wire.detach(False, AmqpError(Symbol(condition), "by the scenario"))
        self.visit.flush()

    def refuse(self, condition: str) -> None:
        """Refuse the attach (A-8)."""
        self.wire.refuse(AmqpError(Symbol(condition), "by the scenario"))
        self.visit.flush()

    def drop(self) -> None:
        """Lose the connection."""
        self.visit.flush()
        self.visit.drop()


class FromPublisher(ScriptedLink):
    """The client publishes here."""

    wire: ReceiverLink

    def _ask(self, value: int) -> None:
        self.wire.grant(0, echo=True, properties={vocabulary.ECHO: ULong(value)})

    def reply(self) -> None:
        """A-3a: with an empty map."""
        assert isinstance(self.attach.target, Target)
        self.wire.reply(
            source=self.attach.source,
            target=self.attach.target,
            unsettled={},
            max_message_size=MAX_MESSAGE_SIZE,
            offered_capabilities=(vocabulary.EXACTLY_ONCE,),
            properties={vocabulary.RESUME: "resumed" if self.presented else "new"},
        )

    async def grant(self, credit: int, *, value: int = 100) -> None:
        """Reply, ask for proof of life, and give credit for so many."""
        self.reply()
        await self.prove_life(value)
        require(not self.visit.has(self.wire, DeliveryReceived), "it sent before it had credit")
        self.wire.grant(credit, properties={vocabulary.SESSION: ULong(value + 1)})
        self.visit.flush()

    async def transfers(self, count: int) -> list[DeliveryReceived]:
        """The next deliveries."""
        return [await self.next(DeliveryReceived) for _ in range(count)]

    def accept(self, deliveries: Iterable[DeliveryReceived]) -> None:
        """State accepted, unsettled."""
        self.wire.dispose([delivery.delivery_id for delivery in deliveries], ACCEPTED, False)
        self.visit.flush()

    async def settlements(self, deliveries: Iterable[DeliveryReceived]) -> None:
        """The client settles these deliveries, in any number of frames."""
        await self.stated({delivery.tag for delivery in deliveries}, lambda each: each.settled)


class ToSubscriber(ScriptedLink):
    """The client subscribes here."""

    wire: SenderLink
    _whole: UnsettledMap | None = None

    def _ask(self, value: int) -> None:
        self.wire.flow({vocabulary.ECHO: ULong(value)}, echo=True)

    async def whole_map(self) -> UnsettledMap:
        """The map that the client presents, with the parts behind the attach (C-4); of a round, its part."""
        if self._whole is not None:
            return self._whole
        presented = self.presented
        require(len(presented) <= self.bound, f"its attach has {len(presented)} entries where {self.bound} fit")
        total = vocabulary.number_in(self.attach.properties, vocabulary.MAP_ENTRIES) or 0
        require(
            bool(total) <= self.attach.incomplete_unsettled,
            "it has more entries, and does not state incomplete-unsettled",
        )
        while len(presented) < total:
            flow = await self.next(LinkFlow, lambda flow: vocabulary.MAP_PART in (flow.properties or {}))
            part = read_part((flow.properties or {})[vocabulary.MAP_PART])
            require(bool(part), "a flow behind its attach carries no unsettled map")
            presented |= part or {}
        self._whole = presented
        return presented

    async def grant(self, kept: Sequence[bytes] = (), *, value: int = 100) -> None:
        """Reply with these entries of its map, confirm the subscription, and wait for credit."""
        await self.whole_map()
        here, rest = dict.fromkeys(kept[: self.bound]), dict.fromkeys(kept[self.bound :])
        properties: Fields = {vocabulary.INCARNATION: ULong(INCARNATION), vocabulary.RESUME: "resumed"}
        if rest:
            properties[vocabulary.MAP_ENTRIES] = UInt(len(kept))
        self.wire.reply(
            source=self.attach.source,
            target=self.attach.target,
            unsettled=here,
            incomplete_unsettled=bool(rest) or self.is_round,
            offered_capabilities=(vocabulary.EXACTLY_ONCE,),
            properties=properties,
        )
        for part in parts_of(rest, self.bound):
            self.wire.flow(part)
        await self.prove_life(value)
        self.wire.flow({vocabulary.CONFIRMED: ULong(INCARNATION)})
        self.visit.flush()

    @property
    def is_round(self) -> bool:
        """The client presents a part, and no rest of it follows."""
        return self.attach.incomplete_unsettled and vocabulary.MAP_ENTRIES not in (self.attach.properties or {})

    async def send(self, tag: bytes, body: str = "", *, resume: bool = False, settled: bool = False) -> int:
        """Send a delivery when there is credit; without a body as a settled resume is (A-7)."""
        while self.wire.credit <= 0:
            await self.next(LinkFlow)
        payload = encode_data_message(body.encode()) if body else b""
        number = self.wire.send(tag, payload, resume=resume, settled=settled, state=ACCEPTED if settled else None)
        self.visit.flush()
        return number

    async def outcomes(self, tags: Iterable[bytes]) -> None:
        """The client states accepted of these deliveries, in any number of frames, and settles none."""
        for found in await self.stated(set(tags)):
            require(found.state == ACCEPTED, f"it stated {found.state!r}")
            require(not found.settled, "it settled a delivery with its outcome: a lost outcome is a lost message then")

    def settle(self, *numbers: int) -> None:
        """Settle these deliveries."""
        self.wire.settle(numbers)
        self.visit.flush()
