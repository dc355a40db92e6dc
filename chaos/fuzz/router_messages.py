"""Target `router-messages`: what neighbours send, as batches, frames and link states, into the decoders."""

from __future__ import annotations

import random
from collections.abc import Iterator
from struct import pack

from chaos.fuzz.mutations import NUMBERS, mutate_octets
from chaos.fuzz.target import InputTarget
from delivery_records.channels import codec, frame_header
from delivery_records.channels.codec_error import ChannelCodecError
from delivery_records.model.assigned import Assigned
from delivery_records.model.messages import (
    Ack,
    Annotations,
    Applied,
    Barrier,
    Claim,
    Credit,
    Datagram,
    FormerAnnotations,
    Hello,
    Msg,
    MsgPart,
    Nack,
    Return,
    Room,
    RouterMessage,
    Run,
    Settle,
    Sync,
)
from delivery_records.model.outcomes import DeliveryOutcome
from router.peers.output import FRAME, LINK_STATE, BatchError, read_batch
from topology.links.linkstate_codec import (
    Announcement,
    Heartbeat,
    LinkStateError,
    LinkStateUpdate,
    decode_message,
    encode_message,
)

EACH = 20
LARGEST = (1 << 64) - 1
OUTCOMES = (
    DeliveryOutcome.ACCEPTED,
    DeliveryOutcome.REJECTED,
    DeliveryOutcome.RELEASED,
    DeliveryOutcome.MODIFIED,
    DeliveryOutcome.MODIFIED_FAILED,
    DeliveryOutcome.UNDELIVERABLE,
    DeliveryOutcome.UNDELIVERABLE_FAILED,
)


def number(rng: random.Random, most: int = LARGEST) -> int:
    """A number that is likely to be one that somebody knows, or at an edge."""
    kind = rng.random()
    if kind < 0.6:
        return rng.randrange(12)
    return min(rng.choice((*NUMBERS, LARGEST, LARGEST - 1, 1 << 63)), most) if kind < 0.8 else rng.randrange(most + 1)


def _runs(rng: random.Random) -> tuple[Run, ...]:
    return tuple((number(rng), number(rng, 0xFFFFFFFF)) for _ in range(rng.choice((0, 1, 1, 2, 20))))


def _tag(rng: random.Random) -> bytes:
    return rng.choice((b"", b"1", b"2", b"tag-3", rng.randbytes(32)))


def _msg(rng: random.Random) -> Msg:
    to = None if rng.random() < 0.5 else tuple(number(rng) for _ in range(rng.randrange(4)))
    return Msg(
        number(rng),
        number(rng),
        _tag(rng),
        rng.choice((b"", b"body", b"b" * 500)),
        to,
        rng.random() < 0.2,
        rng.random() < 0.2,
        number(rng, 0xFFFF),
        rng.choice((0, 0, number(rng))),
        rng.choice((0, 0, 7)),
        rng.choice((Assigned.ANEW, *Assigned)),
    )


def _part(rng: random.Random) -> MsgPart:
    head, data = _msg(rng), rng.choice((b"", b"part", b"b" * 100))
    head.message = b""
    offset = rng.choice((0, 0, 4, 100, number(rng, 1 << 40)))
    return MsgPart(head, offset, offset + len(data) + rng.choice((0, 0, 4, number(rng, 1 << 40))), data)


def _sync(rng: random.Random) -> Sync:
    count = rng.choice((0, 1, 3, 30))
    numbers = [number(rng) for _ in range(count)]
    if rng.random() < 0.6:
        numbers.sort()
    tags = tuple(rng.choice((b"%d" % each, _tag(rng))) for each in range(count))
    epochs = tuple(number(rng) for _ in range(rng.randrange(4)))
    return Sync(number(rng), epochs, tuple(numbers), tags, rng.random() < 0.2, _serial(rng))


def _serial(rng: random.Random) -> int:
    return rng.choice((0, 0, 1, 2, 0xFFFFFFFF))


def message(rng: random.Random) -> RouterMessage:
    """A message that can be encoded; what it says may be nonsense."""
    kind = rng.randrange(11)
    if kind == 0:
        return _msg(rng)
    if kind == 1:
        return _part(rng)
    if kind == 2:
        return _sync(rng)
    if kind == 3:
        return Settle(number(rng), _runs(rng))
    if kind == 4:
        return Ack(number(rng), number(rng), rng.choice(OUTCOMES), _runs(rng))
    if kind == 5:
        delay_ms = number(rng, 0xFFFFFFFE) if rng.random() < 0.5 else None
        return Nack(number(rng), number(rng), number(rng), rng.random() < 0.5, number(rng, 0xFFFF), delay_ms)
    if kind == 6:
        return Claim(number(rng), number(rng), number(rng, 0xFFFFFFFF), _runs(rng), _serial(rng))
    if kind == 7:
        return Return(number(rng), number(rng), number(rng))
    if kind == 8:
        return Room(number(rng), number(rng), number(rng, 0xFFFFFFFF))
    if kind == 9:
        added = {rng.randbytes(rng.randrange(20)): rng.randbytes(rng.randrange(300)) for _ in range(rng.randrange(3))}
        return rng.choice((Annotations, FormerAnnotations))(number(rng), number(rng), number(rng), added)
    return Credit(rng.choice((0, 1000, 1 << 40, number(rng))))


def datagram(rng: random.Random) -> Datagram:
    """The same for those without a sequence."""
    if rng.random() < 0.6:
        return Hello(number(rng, 0xFFFFFFFF), rng.random() < 0.5, number(rng), number(rng), number(rng))
    return rng.choice((Barrier, Applied))(number(rng))


def _link_state(rng: random.Random) -> bytes:
    if rng.random() < 0.05:
        return encode_message(Heartbeat())
    states = tuple(
        LinkStateUpdate(
            number(rng),
            rng.choice(("r1", "", "\u2603", "n" * 255)),
            number(rng),
            tuple((number(rng), number(rng, 0xFFFFFFFF)) for _ in range(rng.choice((0, 1, 5)))),
            number(rng, 0xFFFF),
        )
        for _ in range(rng.choice((0, 1, 3)))
    )
    return encode_message(Announcement(states))


def _item(rng: random.Random) -> bytes:
    kind = rng.random()
    if kind < 0.25:
        data, what = _link_state(rng), LINK_STATE
    elif kind < 0.4:
        data, what = codec.encode_datagram(number(rng), number(rng), datagram(rng)), FRAME
    else:
        targets = [(number(rng), number(rng, 0xFFFFFFFF), number(rng)) for _ in range(rng.choice((1, 1, 3)))]
        data, what = (codec.encode_frame(number(rng), targets, message(rng), rng.choice((0, 1, 2, 32, 255))), FRAME)
    return pack(">BI", what, len(data)) + data


def _inputs(rng: random.Random) -> Iterator[bytes]:
    batch = b"".join(_item(rng) for _ in range(rng.choice((1, 1, 1, 3))))
    for _ in range(EACH):
        found = mutate_octets(rng, batch)
        if rng.random() < 0.5 and len(found) >= 5:  # the size of the first item is right again: its inside is read
            found = found[:1] + pack(">I", len(found) - 5) + found[5:]
        yield found


def take(batch: bytes) -> bool:
    """Read a batch as a neighbour's connection does; whether all of it can be read."""
    try:
        for kind, data in read_batch(batch):
            if kind == FRAME:
                _take_frame(data)
            elif kind == LINK_STATE:
                decode_message(data)
    except (BatchError, ChannelCodecError, LinkStateError):
        return False
    return True


def _take_frame(frame: bytes) -> None:
    header = frame_header.read_header(frame)
    for _, copy in frame_header.split(frame, header, lambda rid: rid % 3 or None):
        frame_header.read_header(copy)
    if header.is_datagram:
        codec.decode_datagram(frame, header)
    else:
        codec.decode_message(frame, header)


ROUTER_MESSAGES = InputTarget(
    "router-messages",
    "batches of frames and link states between routers, mutated, into the decoders, and split by next hop; messages, "
    "or `BatchError`, `ChannelCodecError`, `LinkStateError`",
    ("delivery_records.channels", "router.peers.output", "topology.links.linkstate_codec"),
    _inputs,
    take,
)
