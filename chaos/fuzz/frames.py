"""Targets `frames` and `performatives`: AMQP as streams for a whole wire engine, and as single bodies."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import TypeAlias

from chaos.fuzz.mutations import STRANGE, mutate_octets
from chaos.fuzz.streams import established, feed, fresh, legal_frame, mutated_fields, mutated_start, mutated_stream
from chaos.fuzz.target import InputTarget
from oncewire.wire import (
    ConnectionState,
    Described,
    RemoteProtocolError,
    Role,
    ULong,
    decode,
    decode_message,
    decode_performative,
    encode,
    encode_data_message,
    encode_performative,
)
from oncewire.wire.vocabulary import TAG

Stream: TypeAlias = tuple[str, bytes, str]
"""What kind of engine, the bytes, and the seed of the engine's owner."""
BODIES_EACH = 20
"""Bodies of one run: mutations of one frame, which is the dear part."""
PERFORMATIVE, MESSAGE, VALUE = 0, 1, 2

BEFORE_BYTES = 50
"""What an engine with resumed links has done before its input costs about as much as so many bytes of it."""


def _streams(rng: random.Random) -> Iterator[Stream]:
    kind = rng.choice(("client", "server", "start", "start"))
    owner = str(rng.random())
    if kind == "start":
        _, sasl = fresh(random.Random(owner))
        yield kind, mutated_start(rng, sasl), owner
    else:
        yield kind, mutated_stream(rng), owner


def take_stream(stream: Stream) -> bool:
    """Give a stream to an engine; whether the engine went on."""
    kind, data, seed = stream
    rng = random.Random(seed)
    owner = fresh(rng)[0] if kind == "start" else established(Role.CLIENT if kind == "client" else Role.SERVER, rng)
    feed(owner, data, rng)
    return owner.engine.state is not ConnectionState.ENDED


def _bodies(rng: random.Random) -> Iterator[bytes]:
    performative, payload = legal_frame(rng)
    body = encode_performative(performative)
    first = rng.randrange(3)
    for _ in range(BODIES_EACH):
        if first == PERFORMATIVE:
            found = mutated_fields(rng, performative) if rng.random() < 0.5 else mutate_octets(rng, body)
        elif first == MESSAGE:
            found = mutate_octets(rng, rng.choice((encode_data_message(payload[:40]), _sections(rng))))
        else:
            found = mutate_octets(rng, encode(rng.choice(STRANGE)))
        yield bytes((first,)) + found


def _sections(rng: random.Random) -> bytes:
    values = ([True, 4, 1000, False, 1], {TAG: b"t"}, rng.choice(STRANGE), b"data")
    codes = sorted(rng.sample(range(0x70, 0x79), 4))
    return b"".join(encode(Described(ULong(code), rng.choice(values))) for code in codes)


def take_body(data: bytes) -> bool:
    """Decode a performative, a message or a value, as the first octet says; whether it is one."""
    kind, body = (data[0] % 3, data[1:]) if data else (VALUE, b"")
    try:
        if kind == PERFORMATIVE:
            decode_performative(body, 0, len(body))
        elif kind == MESSAGE:
            decode_message(body)
        else:
            decode(body)
    except RemoteProtocolError:
        return False
    return True


FRAMES = InputTarget(
    "frames",
    "streams of mutated AMQP frames into a whole wire engine, client and server, with SASL and without, from the first "
    "byte or in the middle of resumed links; it goes on or ends with one event, and writes legal AMQP",
    ("oncewire.wire", "chaos.fuzz.streams"),
    _streams,
    take_stream,
    lambda stream: BEFORE_BYTES + len(stream[1]),
)
PERFORMATIVES = InputTarget(
    "performatives",
    "mutated bodies of frames, messages and values into the decoders; a value or `RemoteProtocolError`",
    ("oncewire.wire", "chaos.fuzz.streams"),
    _bodies,
    take_body,
)
