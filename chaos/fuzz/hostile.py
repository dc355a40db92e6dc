"""Structure-aware fuzzing of routers: clients with enough AMQP to reach the record core, that then do as they like."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from typing import Any

from chaos.fuzz.mutations import NUMBERS, STRANGE, TEXTS, mutate_octets
from chaos.fuzz.streams import mutated_stream
from chaos.fuzz.wire_client import OpenClient
from delivery_records.model.limits import LARGE_BYTES
from oncewire.wire import (
    ACCEPTED,
    RELEASED,
    AmqpError,
    ConnectionClosed,
    ConnectionLost,
    DeliveryBegun,
    DeliveryReceived,
    DeliveryState,
    Described,
    Event,
    Fields,
    LinkAttached,
    LinkDetached,
    LinkFlow,
    LocalProtocolError,
    Modified,
    Properties,
    Received,
    Rejected,
    SenderLink,
    SessionEnded,
    SessionState,
    Source,
    Symbol,
    Target,
    Transfer,
    UInt,
    ULong,
    UnsettledMap,
    encode,
    encode_data_message,
    encode_performative,
)
from oncewire.wire.frames import encode_frame
from oncewire.wire.vocabulary import ASK, CONFIRMED, ECHO, EXACTLY_ONCE, RESUME, TAG

TOPIC = "fuzz/orders"
IDENTITIES = 6
"""Container-ids the hostile clients share, so that they resume and steal each other's links."""
PATIENCE_S = 0.3
"""For an answer that may never come; nothing is judged by it."""
TAME = 0.7
"""Share of clients whose attaches are legal, so that what they do on the link is reached; the others break those."""
PARTS = 0.1
"""Share of messages that are large. Each takes ten milliseconds, so few are."""
STEPS = 12
"""Links of one connection, at most; whoever breaks AMQP itself ends it earlier."""
_MODIFIED: Fields = {Symbol("x-opt-note"): "n" * 40, TAG: b"forged"}
STATES: tuple[DeliveryState | None, ...] = (
    None,
    ACCEPTED,
    RELEASED,
    Rejected(AmqpError(Symbol("x:y"), "no")),
    Modified(True),
    Modified(True, False, _MODIFIED),
    Modified(False, True),
    Received(1, 2),
    Described(ULong(0x34), [b"txn", None]),
)


class HostileClient:
    """One connection that follows AMQP for some steps, breaks it in one of them, and leaves."""

    def __init__(self, rng: random.Random, seen_tags: list[bytes]) -> None:
        """Make all choices from `rng`; `seen_tags` are network tags that subscribers were sent, shared by all."""
        self._rng = rng
        self._seen = seen_tags
        self._is_tame = rng.random() < TAME
        self._is_anonymous = False
        """Its publisher of now has no address: the messages have (X-1)."""
        self._client: OpenClient

    async def run(self, port: int) -> int:
        """Connect to a router, misbehave, leave; returns how often it has written something."""
        rng = self._rng
        name = f"hostile-{rng.randrange(IDENTITIES)}"
        if not self._is_tame:
            name = rng.choice((name, "h" * 300, "\N{SNOWMAN}"))
        self._client = await OpenClient(name, max_frame_size=rng.choice((512, 4096, 1 << 20))).dial(port)
        try:
            for _ in range(rng.randrange(1, STEPS)):
                with contextlib.suppress(LocalProtocolError):  # our own engine knows that the router has ended the link
                    await (self._publish() if rng.random() < 0.6 else self._subscribe())
                if self._client.is_gone or self._client.session.state is not SessionState.MAPPED:
                    break
            if rng.random() < 0.4 and not self._client.is_gone:
                self._client.write(b"".join(mutated_stream(rng) for _ in range(3)))
                await self._hear(ConnectionClosed, ConnectionLost)
        finally:
            if not self._client.is_gone:
                self._client.cut()
        return self._client.writes

    # --- links --------------------------------------------------------------------------------------------------------

    async def _publish(self) -> None:
        rng, client = self._rng, self._client
        is_sane = self._is_tame or rng.random() < 0.5
        self._is_anonymous = rng.random() < 0.3
        sane = Target() if self._is_anonymous else Target(address=TOPIC)
        link = client.session.attach_sender(
            f"p{rng.randrange(3)}",
            source=self._source() if not is_sane and rng.random() < 0.3 else Source(address="p"),
            target=sane if is_sane else self._target(),
            snd_settle_mode=0 if is_sane else rng.choice((0, 1, 2, 7)),
            rcv_settle_mode=1 if is_sane else rng.choice((0, 1, 9)),
            unsettled=self._map(),
            incomplete_unsettled=not is_sane and rng.random() < 0.2,
            initial_delivery_count=rng.choice(NUMBERS),
            max_message_size=rng.choice((None, 0, 1, 1 << 63)),
            desired_capabilities=[EXACTLY_ONCE] if rng.random() < 0.8 else ["queue", "x" * 90],
            properties=self._properties(),
        )
        client.flush()
        if not await self._hear(LinkAttached, of=link):
            return
        echo = await self._hear(LinkFlow, of=link)
        if isinstance(echo, LinkFlow) and not self._is_anonymous and rng.random() < 0.9:
            link.flow(echo.properties if rng.random() < 0.9 else self._properties())
            client.flush()
            await self._hear(LinkFlow, of=link)
        await self._send_some(link)
        link.flow(self._properties(), echo=rng.random() < 0.5)
        client.flush()
        for _ in range(rng.randrange(4)):
            link.settle(list(range(rng.randrange(6))), rng.choice(STATES))
            client.flush()
        self._leave(link)
        client.flush()
        await self._hear(LinkDetached, of=link)

    async def _send_some(self, link: SenderLink) -> None:
        rng, client = self._rng, self._client
        tags = [tag for tag in (link.local_attach.unsettled or {}) if 0 < len(tag) <= 32] if link.local_attach else []
        for number in range(rng.randrange(8)):
            tag = rng.choice((tags[number % len(tags)] if tags else b"%d" % number, b"%d" % number, rng.randbytes(32)))
            if self._is_anonymous and rng.random() < 0.2:
                await asyncio.sleep(0.05)  # its inner publishers are attached meanwhile
            if not link.credit or rng.random() < 0.1:
                if rng.random() < 0.2:  # a frame our own engine would never write
                    frame = Transfer(link.handle, rng.choice(NUMBERS), rng.choice((tag, b"", b"x" * 33)), 0)
                    frame.more = rng.random() < 0.5
                    client.write(encode_frame(0, encode_performative(frame) + self._message()))
                continue
            if rng.random() < PARTS:
                await self._send_in_parts(link, tag)
                continue
            link.send(
                tag,
                self._message(),
                settled=rng.random() < 0.15,
                resume=rng.random() < 0.1,
                aborted=rng.random() < 0.1,
                message_format=rng.choice((0, 0, 0, 7)),
            )
            client.flush()

    async def _send_in_parts(self, link: SenderLink, tag: bytes) -> None:
        """A large message (L-1), to its end, to an abort, or not."""
        rng, client = self._rng, self._client
        link.begin(tag, self._message() + bytes(LARGE_BYTES), settled=rng.random() < 0.1, resume=rng.random() < 0.1)
        while link.has_begun:
            client.flush()
            choice = rng.random()
            if choice < 0.3:
                link.send_part(bytes(rng.choice((1, 40_000, 3 * LARGE_BYTES))))
            elif choice < 0.6:
                link.finish(rng.choice((b"", self._message())))
            elif choice < 0.8:
                link.abort(rng.choice((b"", b"spoilt")))
            elif choice < 0.9:
                return  # whatever is sent next is refused by our own engine
            else:
                await self._hear(LinkDetached, of=link)
        client.flush()

    async def _subscribe(self) -> None:
        rng, client = self._rng, self._client
        link = client.session.attach_receiver(
            f"s{rng.randrange(3)}",
            source=self._sane_source() if self._is_tame else self._source(),
            target=rng.choice((None, Target(address="s"))),
            snd_settle_mode=rng.choice((0, 1, 2)),
            rcv_settle_mode=rng.choice((0, 1)),
            unsettled=self._map(),
            incomplete_unsettled=rng.random() < 0.1,
            max_message_size=rng.choice((None, 1, 1 << 40)),
            desired_capabilities=[EXACTLY_ONCE] if rng.random() < 0.7 else [],
            properties=self._properties(),
        )
        client.flush()
        if not await self._hear(LinkAttached, of=link):
            return
        link.stream_above = rng.choice((None, None, 100_000))
        link.grant(rng.choice((0, 1, 5, 100)), drain=rng.random() < 0.2, properties=self._properties())
        client.flush()
        for _ in range(rng.randrange(9)):
            delivery = await self._hear(DeliveryReceived, DeliveryBegun, of=link)
            if not isinstance(delivery, DeliveryReceived | DeliveryBegun):
                break
            self._seen.append(delivery.tag)
            state = rng.choice(STATES)
            link.dispose([delivery.delivery_id, delivery.delivery_id + 1], state, rng.random() < 0.4)
            client.flush()
        self._leave(link)
        client.flush()
        await self._hear(LinkDetached, of=link)

    def _leave(self, link: Any) -> None:
        if self._rng.random() < 0.5:
            error = AmqpError(Symbol("x:y"), "bye") if self._rng.random() < 0.2 else None
            link.detach(self._rng.random() < 0.5, error)

    async def _hear(self, *kinds: type[Event], of: object = None) -> Event | None:
        """The first such event, or None when it cannot come any more or has not come soon."""
        heard = self._client.heard

        def is_end(event: Event) -> bool:
            return isinstance(event, ConnectionClosed | ConnectionLost | SessionEnded) or (
                isinstance(event, LinkDetached) and event.link is of
            )

        try:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    for event in heard:
                        if isinstance(event, kinds) and (of is None or getattr(event, "link", None) is of):
                            heard.remove(event)
                            return event
                        if is_end(event):
                            return None
                    await self._client.news()
        except TimeoutError:
            return None

    # --- what goes into a frame ---------------------------------------------------------------------------------------

    def _map(self) -> UnsettledMap | None:
        rng = self._rng
        kind = rng.random()
        if kind < 0.15:
            return None
        if self._is_tame and kind < 0.6:
            return {}
        found: UnsettledMap = {}
        for number in range(rng.choice((0, 1, 3, 30))):
            tag = rng.choice((b"%d" % number, rng.randbytes(rng.choice((1, 22, 32)))))
            if self._seen and rng.random() < 0.4:
                tag = rng.choice(self._seen)
            found[tag] = None if self._is_tame else rng.choice((None, None, None, *STATES))
        if kind > (0.95 if self._is_tame else 0.75):
            found[rng.choice((b"", b"t" * 33, b"t" * 300, b"\x00" * 12, b"\xff" * 32))] = rng.choice(STATES)
        return found

    def _properties(self) -> Fields | None:
        rng = self._rng
        if rng.random() < (0.8 if self._is_tame else 0.4):
            return None
        names = (ECHO, ASK, CONFIRMED, RESUME, Symbol("other"))
        values: tuple[object, ...] = (*STRANGE, b"a" * 300, rng.randrange(1 << 32), UInt(1), ULong(1 << 63))
        return {rng.choice(names): rng.choice(values) for _ in range(rng.randrange(1, 4))}

    def _address(self) -> str | None:
        return self._rng.choice(
            (
                TOPIC,
                TOPIC,
                TOPIC,
                "fuzz/*",
                "fuzz/#",
                None,
                "",
                "/",
                "fuzz//x",
                "*.fuzz",
                "fuzz/\N{SNOWMAN}",
                "a/" * 40,
                "x" * 300,
                "$management",
                "$router",
                "fuzz/\0",
                "#/fuzz",
                "vhost\x1ffuzz",
            )
        )

    def _terminus(self) -> dict[str, Any]:
        rng = self._rng
        policies = ("link-detach", "session-end", "connection-close", "never", "sometimes", "")
        return {
            "address": self._address(),
            "durable": rng.choice((0, 1, 2, 7)),
            "expiry_policy": Symbol(rng.choice(policies)),
            "timeout": rng.choice((0, 1, 3600, 0xFFFFFFFF)),
            "dynamic": rng.random() < 0.1,
            "dynamic_node_properties": rng.choice((None, {Symbol("lifetime-policy"): 7})),
            "capabilities": rng.choice(((), (Symbol("queue"),), (Symbol("shared"),))),
        }

    def _sane_source(self) -> Source | None:
        rng = self._rng
        if rng.random() < 0.1:
            return None
        policy = Symbol(rng.choice(("link-detach", "session-end", "connection-close")))
        topic = rng.choice((TOPIC, "fuzz/#", "fuzz/*"))
        return Source(address=topic, durable=2, expiry_policy=policy, timeout=rng.choice((0, 1, 60)))

    def _source(self) -> Source:
        rng = self._rng
        filters: tuple[Fields | None, ...] = (
            None,
            None,
            None,
            {},
            {Symbol("sel"): Described(Symbol("apache.org:selector-filter:string"), "a = 1")},
            {Symbol("odd"): rng.choice(STRANGE)},
        )
        return Source(
            **self._terminus(),
            distribution_mode=rng.choice((None, Symbol("move"), Symbol("copy"), Symbol("x"))),
            filter=rng.choice(filters),
            default_outcome=rng.choice(STATES),
            outcomes=rng.choice(((), (Symbol("amqp:accepted:list"),), (Symbol("unknown"),))),
        )

    def _target(self) -> Target | Described | None:
        if self._rng.random() < 0.1:
            return self._rng.choice((None, Described(ULong(0x30), []), Described(Symbol("x"), None)))
        return Target(**self._terminus())

    def _addressed(self) -> bytes:
        """A message to some address, which may be none."""
        rng = self._rng
        made = ("_reply/", "_reply/#", f"_reply/{rng.randrange(1 << 128):032x}", "$reply\x1f_reply/1", "queue://x")
        to = rng.choice((TOPIC, f"{TOPIC}/{rng.randrange(90)}", self._address(), rng.choice(made), rng.choice(TEXTS)))
        with contextlib.suppress(LocalProtocolError, UnicodeEncodeError):
            message = encode_data_message(b"body", properties=Properties(to=to))
            return message if rng.random() < 0.9 else mutate_octets(rng, message)
        return b""

    def _message(self) -> bytes:
        """A message: sound, of odd sections, or with octets changed."""
        rng = self._rng
        if self._is_anonymous and rng.random() < 0.8:
            return self._addressed()
        if rng.random() < 0.4:
            return encode_data_message(b"body")
        codes = rng.sample(range(0x70, 0x7A), rng.randrange(1, 5))
        if rng.random() < 0.7:
            codes.sort()
        makers: tuple[Callable[[], object], ...] = (
            list,
            lambda: {TAG: b"forged", Symbol("k"): rng.choice(STRANGE)},
            lambda: rng.choice(STRANGE),
            lambda: b"data",
        )
        message = bytearray(b"".join(encode(Described(ULong(code), rng.choice(makers)())) for code in codes))
        for _ in range(rng.choice((0, 0, 1, 4))):
            message[rng.randrange(len(message))] = rng.randrange(256)
        return bytes(message[: rng.choice((len(message), len(message), rng.randrange(len(message) + 1)))])
