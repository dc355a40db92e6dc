"""Values and octets that stand where they do not belong, for all targets."""

from __future__ import annotations

import random
from typing import Any

from oncewire.wire import Described, Symbol, UInt, ULong

NUMBERS = (0, 1, 2, 3, 5, 255, 256, 2047, 2048, 65535, 65536, 1 << 31, (1 << 31) - 1, (1 << 32) - 2, (1 << 32) - 1)
"""Where counters and sizes begin, end and wrap."""
STRANGE: tuple[object, ...] = (
    None,
    True,
    False,
    -1,
    1 << 62,
    UInt(0),
    UInt(0xFFFFFFFF),
    ULong(1 << 63),
    1.5,
    "",
    "text",
    Symbol("symbol"),
    b"",
    b"x" * 33,
    b"tag-0",
    [],
    [[[[]]]],
    {},
    {b"t": None, b"u": Described(ULong(0x24), [])},
    {"wrong": 1},
    Described(ULong(0x24), []),
    Described(ULong(0x28), []),
    Described(Symbol("unknown"), None),
)
"""Values of every kind of AMQP."""
CONTROLS = (0, 1, 0x40, 0x45, 0x70, 0xC0, 0xD0, 0xF0, 0xFF)
"""Octets that mean something in AMQP's encoding."""
TEXTS = (
    "",
    " ",
    "a",
    "topic",
    "fuzz/#",
    "*",
    "..",
    "\0",
    "\x01",
    "\r\n",
    "\u2603",
    "\u202e",
    "\ud800",
    "x" * 300,
    "-1",
    "0",
    "1",
    "00",
    "1e400",
    "-0.0",
    "nan",
    "inf",
    "1_0",
    "0x10",
    "\u0661",
    "9" * 25,
    "9" * 5000,
    "1" + "0" * 400,
    "true",
    "True",
    "null",
    "{}",
    "[]",
    "%00",
    "%zz",
    "ff",
    "f" * 40,
    "ff" * 33,
    "=2C",
    "=",
    ",",
    ";",
    "a=b",
    "'",
    '"',
    "${user}",
    "(",
    "[",
    "(a+)+$",
    "\\",
    "127.0.0.1",
    "[::1]:1",
    "http://",
    "host:99999",
    "amqp://x@y:z",
)
"""Texts that some parser or other takes for something else."""
JSON_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    1,
    -1,
    1.5,
    1e308,
    float("inf"),
    float("nan"),
    1 << 63,
    1 << 64,
    10**400,
    -(10**400),
    "",
    [],
    {},
    [[]],
    [None],
    {"": None},
    ["a", 1],
)
"""Values of every kind that JSON and TOML can say, and some that a parser makes of them."""


def mutate_octets(rng: random.Random, data: bytes) -> bytes:
    """Flip bits, cut, insert or overwrite octets."""
    octets = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        place = rng.randrange(len(octets)) if octets else 0
        kind = rng.randrange(5)
        if kind == 0 and octets:
            octets[place] ^= 1 << rng.randrange(8)
        elif kind == 1 and octets:
            octets[place] = rng.choice((*CONTROLS, rng.randrange(256)))
        elif kind == 2:
            del octets[place : place + rng.choice((1, 2, 9))]
        elif kind == 3:
            octets[place:place] = rng.randbytes(rng.choice((1, 3, 8)))
        elif kind == 4:
            del octets[place:]
    return bytes(octets)


def mutate_text(rng: random.Random, text: str) -> str:
    """Put a strange text in the place of a part of this one."""
    start, end = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
    if rng.random() < 0.5:
        end = min(end, start + 2)
    return text[:start] + rng.choice(TEXTS) + text[end:]


def json_value(rng: random.Random) -> Any:
    """A value of some kind."""
    return rng.choice(JSON_VALUES) if rng.random() < 0.6 else rng.choice(TEXTS)
