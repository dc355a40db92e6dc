"""Python values for the AMQP 1.0 primitive types (AMQP 1.0 part 1, section 1.6).

Most AMQP types have a natural Python type: null is ``None``, boolean is ``bool``, double is ``float``, binary is
``bytes``, string is ``str``, uuid is ``uuid.UUID``, list is ``list`` and map is ``dict``, or ``AmqpMap`` where a
``dict`` would lose an entry. A plain ``int`` stands for the AMQP type long. Where Python has one type and AMQP has
several, the thin subclasses of this module name the AMQP type, so that a decoded value is encoded again as the type it
had.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


class UByte(int):
    """AMQP ubyte: 0 to 2**8 - 1."""

    __slots__ = ()


class UShort(int):
    """AMQP ushort: 0 to 2**16 - 1."""

    __slots__ = ()


class UInt(int):
    """AMQP uint: 0 to 2**32 - 1."""

    __slots__ = ()


class ULong(int):
    """AMQP ulong: 0 to 2**64 - 1."""

    __slots__ = ()


class Byte(int):
    """AMQP byte: -2**7 to 2**7 - 1."""

    __slots__ = ()


class Short(int):
    """AMQP short: -2**15 to 2**15 - 1."""

    __slots__ = ()


class Int(int):
    """AMQP int: -2**31 to 2**31 - 1."""

    __slots__ = ()


class Long(int):
    """AMQP long: -2**63 to 2**63 - 1. Decoding gives a plain ``int``, which encodes as long too."""

    __slots__ = ()


class Timestamp(int):
    """AMQP timestamp: milliseconds since the Unix epoch, UTC, signed 64 bits."""

    __slots__ = ()


class Float(float):
    """AMQP float: IEEE 754 binary32. A plain ``float`` is the AMQP type double."""

    __slots__ = ()


class Char(str):
    """AMQP char: one Unicode character."""

    __slots__ = ()


class Symbol(str):
    """AMQP symbol: ASCII text from a constrained domain, such as a capability or an error condition."""

    __slots__ = ()


class Decimal32(bytes):
    """AMQP decimal32: the 4 bytes of an IEEE 754 decimal32, kept opaque."""

    __slots__ = ()


class Decimal64(bytes):
    """AMQP decimal64: the 8 bytes of an IEEE 754 decimal64, kept opaque."""

    __slots__ = ()


class Decimal128(bytes):
    """AMQP decimal128: the 16 bytes of an IEEE 754 decimal128, kept opaque."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Described:
    """A described value (section 1.2): a descriptor, normally a ULong or Symbol, and the value it describes."""

    descriptor: object
    value: object


@dataclass(frozen=True, slots=True)
class AmqpArray:
    """An AMQP array (section 1.6.24): elements of one type.

    Attributes:
        element_type: the Python type that stands for the elements' AMQP type, one of ``type(None)``, ``bool``,
            ``int`` (long), ``float`` (double), ``bytes``, ``str``, ``list``, ``dict``, ``uuid.UUID``, ``AmqpArray``
            or a class of this module other than ``Described``.
        items: the elements, without their descriptors.
        descriptors: outermost first; empty when the elements are not described.
    """

    element_type: type[object]
    items: tuple[object, ...]
    descriptors: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class AmqpMap:
    """An AMQP map that no ``dict`` can hold (section 1.6.23): a key is a list or a map, or keys differ by type only.

    To Python ``1``, ``1.0``, ``True`` and ``UInt(1)`` are one key, as are ``"a"`` and ``Symbol("a")``. To AMQP they are
    not. Decoding gives a ``dict`` wherever that keeps every entry.

    Attributes:
        pairs: keys and their values, in order.
    """

    pairs: tuple[tuple[object, object], ...]


# What a Python value may be on the wire. The codec checks it when it encodes.
AmqpValue: TypeAlias = object
