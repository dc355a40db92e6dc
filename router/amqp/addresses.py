"""Addresses that are more than a topic's name: `topic://`, those that a router makes, and the `to` of a message."""

from __future__ import annotations

import secrets

from oncewire.wire import DecodeError, Symbol
from oncewire.wire.annotations import PROPERTIES_CODE, read_section_code
from oncewire.wire.decoding import DecodeBudget, read_value, skip

TOPIC_SCHEME = "topic://"
"""Clients of brokers that have queues and topics write it before a topic; it is no part of the topic's name."""
MADE_PREFIX = "_reply/"
"""Of each address that a router makes (X-2): no client can choose a name that begins so."""
MADE_BYTES = 16
"""Of chance: nobody guesses an address, and no two routers make the same one."""
MADE_HOST = "$reply"
"""Addresses that routers make are in a virtual host of their own beside each one: the names of others have no `$`."""
_CREATOR = "-"
"""Before the key of the publisher that a dynamic target's address was made for: every router can look for it."""
_TO = 2
"""Place of `to` in the list of properties."""
_MAX_VALUES = 64
"""Values that the properties may consist of: there are 13 fields."""


def plain(address: str) -> str:
    """A topic's name without the scheme."""
    return address.removeprefix(TOPIC_SCHEME)


def new_address(creator: str = "") -> str:
    """An address for a dynamic source, or for a dynamic target: `creator` is the key of its link in etcd."""
    return MADE_PREFIX + secrets.token_hex(MADE_BYTES) + (_CREATOR + creator if creator else "")


def creator_of(address: str) -> str:
    """The key of the publisher that it was made for; empty: it was made for a dynamic source."""
    return address.partition(_CREATOR)[2]


def is_made(address: str) -> bool:
    """Whether it is an address of a router's making, or looks like one."""
    return address.startswith(MADE_PREFIX)


def made_in(vhost: str) -> str:
    """Where routers know the addresses that they made for clients of a virtual host: no pattern matches them (A-2c)."""
    return vhost + MADE_HOST


def to_of(message: bytes) -> str | None:
    """The address in a message's properties (3.2.4); None: there is none. Only what stands before it is read.

    Raises:
        DecodeError: the sections up to there are malformed.
    """
    at, last = 0, -1
    while at < len(message):
        code, value = read_section_code(message, at)
        if code <= last:
            raise DecodeError("the sections of the message are out of order, or one of them is there twice")
        if code == PROPERTIES_CODE:
            return _to_in(message, value)
        if code > PROPERTIES_CODE:
            return None
        last, at = code, skip(message, value, len(message))
    return None


def _to_in(message: bytes, at: int) -> str | None:
    fields, _ = read_value(message, at, len(message), DecodeBudget(_MAX_VALUES))
    if not isinstance(fields, list):
        raise DecodeError("the properties of the message are not a list")
    to = fields[_TO] if len(fields) > _TO else None
    if to is not None and (not isinstance(to, str) or isinstance(to, Symbol)):
        raise DecodeError("the field to of the message's properties is not a string")
    return to
