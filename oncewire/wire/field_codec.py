"""Composite types as data: one table says which fields a performative, state, error or terminus has.

The tables drive a generic encoder and decoder (AMQP 1.0 part 1, section 1.4). Reading is tolerant where that does no
harm: fields beyond the known ones are ignored, any unsigned width stands for another when the number fits, and symbol
and string stand for each other. A mandatory field that is missing and a value of another type are DecodeErrors.
"""

from __future__ import annotations

from collections.abc import Callable

from oncewire.wire import performatives as p
from oncewire.wire.encoding import compound, encode, encode_binary, encode_string, encode_symbol, encode_uint
from oncewire.wire.errors import DecodeError, LocalProtocolError
from oncewire.wire.types import AmqpArray, Char, Described, Symbol, Timestamp, UByte, ULong, UShort

NULL = b"\x40"
_BINARY_HEADS = {size: bytes((0xA0, size)) for size in range(33)}
"""Of binary as long as delivery tags are (2.8.7)."""


class Kind:
    """How a field of one type is written, and checked after the primitive codec has read it."""

    __slots__ = ("convert", "write")

    def __init__(self, write: Callable[[object], bytes], convert: Callable[[object], object]) -> None:
        self.write = write
        self.convert = convert


class Field:
    """One field of a composite type. ``default`` is both the value of null and written as null."""

    __slots__ = ("default", "kind", "mandatory", "name")

    def __init__(self, name: str, kind: Kind, default: object = None, mandatory: bool = False) -> None:
        self.name = name
        self.kind = kind
        self.default = default
        self.mandatory = mandatory


class Composite:
    """A composite type: its descriptor in both forms, the class that stands for it, and its fields in order."""

    __slots__ = ("cls", "code", "fields", "symbol")

    def __init__(self, code: int, symbol: str, cls: type[object], fields: tuple[Field, ...]) -> None:
        self.code = code
        self.symbol = symbol
        self.cls = cls
        self.fields = fields


# --- kinds of fields --------------------------------------------------------------------------------------------------


def _wrong(value: object, expected: str) -> DecodeError:
    return DecodeError(f"a {type(value).__name__} stands where AMQP wants {expected}")


def _unsigned(bits: int, name: str, write: Callable[[int], bytes]) -> Kind:
    limit = (1 << bits) - 1

    def to_bytes(value: object) -> bytes:
        if not isinstance(value, int):
            raise LocalProtocolError(f"{value!r} is no {name}")
        return write(int(value))

    def convert(value: object) -> object:
        # bool is asked for first: compiled code forgets the subclass of what it knows to be an int
        if isinstance(value, (bool, Timestamp)) or not isinstance(value, int) or not 0 <= value <= limit:
            raise _wrong(value, name)
        return int(value)

    return Kind(to_bytes, convert)


def _choice(kind: Kind, highest: int, name: str) -> Kind:
    """A restricted type (1.4): its source type, of which only the numbers up to ``highest`` mean something."""

    def convert(value: object) -> object:
        number = kind.convert(value)
        assert isinstance(number, int)
        if number > highest:
            raise DecodeError(f"{number} is no {name}")
        return number

    return Kind(kind.write, convert)


def _write_boolean(value: object) -> bytes:
    return b"\x41" if value else b"\x42"


def _convert_boolean(value: object) -> object:
    if not isinstance(value, bool):
        raise _wrong(value, "a boolean")
    return value


def _write_string(value: object) -> bytes:
    if not isinstance(value, str):
        raise LocalProtocolError(f"{value!r} is no string")
    return encode_string(value)


def _convert_string(value: object) -> object:
    if not isinstance(value, str) or isinstance(value, Char):
        raise _wrong(value, "a string")
    return str(value)


def _write_symbol(value: object) -> bytes:
    if not isinstance(value, str):
        raise LocalProtocolError(f"{value!r} is no symbol")
    return encode_symbol(value)


def _to_symbol(value: object) -> Symbol:
    if isinstance(value, Symbol):
        return value
    if not isinstance(value, str) or isinstance(value, Char) or not value.isascii():
        raise _wrong(value, "a symbol")
    return Symbol(value)


def _write_binary(value: object) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise LocalProtocolError(f"{value!r} is not binary")
    return encode_binary(value)


def _convert_binary(value: object) -> object:
    if not isinstance(value, bytes):
        raise _wrong(value, "binary")
    return value


def _write_symbols(value: object) -> bytes:
    if not isinstance(value, (tuple, list)):
        raise LocalProtocolError(f"{value!r} is no sequence of symbols")
    return encode(AmqpArray(Symbol, tuple(Symbol(item) for item in value)))


def _convert_symbols(value: object) -> object:
    """1.4, multiple: an array, or one value without an array around it."""
    if isinstance(value, AmqpArray):
        if value.descriptors:
            raise DecodeError("an array of symbols is described")
        return tuple(_to_symbol(item) for item in value.items)
    return (_to_symbol(value),)


def _write_fields(value: object) -> bytes:
    if not isinstance(value, dict):
        raise LocalProtocolError(f"{value!r} is no map")
    return encode({Symbol(key): item for key, item in value.items()})


def _convert_fields(value: object) -> object:
    if not isinstance(value, dict):
        raise _wrong(value, "a map")
    return {_to_symbol(key): item for key, item in value.items()}


def _convert_node_properties(value: object) -> object:
    """3.5.9: a lifetime-policy "MUST be of a type which provides the lifetime-policy archetype".

    That is a described type, and none of those that mean something else here; a policy of somebody's own may be one.
    """
    properties = _convert_fields(value)
    assert isinstance(properties, dict)
    policy = properties.get(LIFETIME_POLICY)
    if policy is not None and (not isinstance(policy, Described) or descriptor_code(policy.descriptor) >= 0):
        raise _wrong(policy, "a lifetime-policy (3.5.9)")
    modes = properties.get(SUPPORTED_DIST_MODES)
    if modes is not None:
        _convert_symbols(modes)
    return properties


def _composite_writer(value: object) -> bytes:
    return encode_composite(value)


def _one_of(code: int) -> Kind:
    """A field that holds exactly the composite type with this descriptor."""

    def convert(value: object) -> object:
        if not isinstance(value, Described) or descriptor_code(value.descriptor) != code:
            raise _wrong(value, COMPOSITES[code].symbol)
        return build(COMPOSITES[code], value.value)

    return Kind(_composite_writer, convert)


def _write_target(value: object) -> bytes:
    return encode(value) if isinstance(value, Described) else encode_composite(value)


def _convert_target(value: object) -> object:
    if not isinstance(value, Described):
        raise _wrong(value, "a target")
    if descriptor_code(value.descriptor) != TARGET_CODE:
        return value  # a coordinator (4.5.1): the owner of the link refuses it, the connection goes on
    return build(COMPOSITES[TARGET_CODE], value.value)


def encode_state(state: object) -> bytes:
    """Encode a delivery state; None is null."""
    if state is None:
        return NULL
    fixed = _FIXED_STATES.get(type(state))
    if fixed is not None:
        return fixed
    return encode(state) if isinstance(state, Described) else encode_composite(state)


def to_state(value: object) -> p.DeliveryState:
    """Turn a described value into the delivery state it stands for; unknown states stay as they are.

    Raises:
        DecodeError: the value is not described, or its fields are not those of the state.
    """
    if not isinstance(value, Described):
        raise _wrong(value, "a delivery state")
    code = descriptor_code(value.descriptor)
    if not RECEIVED_CODE <= code <= MODIFIED_CODE:
        return value  # declared and transactional-state (4.5.6, 4.5.8), or a vendor's own
    state = build(COMPOSITES[code], value.value)
    if isinstance(state, p.Accepted):
        return p.ACCEPTED
    if isinstance(state, p.Released):
        return p.RELEASED
    assert isinstance(state, (p.Received, p.Rejected, p.Modified))
    return state


def encode_unsettled_map(unsettled: p.UnsettledMap) -> bytes:
    """Encode the ``unsettled`` field of attach (2.7.3): delivery tag -> state or null."""
    parts: list[bytes] = []
    for tag, state in unsettled.items():
        head = _BINARY_HEADS.get(len(tag)) if type(tag) is bytes else None
        if head is None:
            parts += (_write_binary(tag), encode_state(state))
        else:  # there may be 20,000
            parts += (head + tag, NULL if state is None else encode_state(state))
    return compound(0xC1, 0xD1, len(parts), b"".join(parts))


def _write_unsettled(value: object) -> bytes:
    if not isinstance(value, dict):
        raise LocalProtocolError(f"{value!r} is no unsettled map")
    return encode_unsettled_map(value)


def _convert_unsettled(value: object) -> object:
    if not isinstance(value, dict):
        raise _wrong(value, "a map")
    result: p.UnsettledMap = {}
    for tag, state in value.items():
        if not isinstance(tag, bytes):
            raise _wrong(tag, "a delivery tag")
        result[tag] = None if state is None else to_state(state)
    return result


def _encode_ubyte(value: int) -> bytes:
    return encode(UByte(value))


def _encode_ushort(value: int) -> bytes:
    return encode(UShort(value))


def _encode_ulong(value: int) -> bytes:
    return encode(ULong(value))


LIFETIME_POLICY = Symbol("lifetime-policy")
SUPPORTED_DIST_MODES = Symbol("supported-dist-modes")
RECEIVED_CODE = 0x23
MODIFIED_CODE = 0x27
ERROR_CODE = 0x1D
SOURCE_CODE = 0x28
TARGET_CODE = 0x29

BOOLEAN = Kind(_write_boolean, _convert_boolean)
UBYTE = _unsigned(8, "ubyte", _encode_ubyte)
USHORT = _unsigned(16, "ushort", _encode_ushort)
UINT = _unsigned(32, "uint", encode_uint)
ULONG = _unsigned(64, "ulong", _encode_ulong)
STRING = Kind(_write_string, _convert_string)
SYMBOL = Kind(_write_symbol, _to_symbol)
SYMBOLS = Kind(_write_symbols, _convert_symbols)
BINARY = Kind(_write_binary, _convert_binary)
FIELDS = Kind(_write_fields, _convert_fields)
NODE_PROPERTIES = Kind(_write_fields, _convert_node_properties)
STATE = Kind(encode_state, to_state)
SND_SETTLE_MODE = _choice(UBYTE, p.SenderSettleMode.MIXED, "snd-settle-mode (2.8.2)")
RCV_SETTLE_MODE = _choice(UBYTE, p.ReceiverSettleMode.SECOND, "rcv-settle-mode (2.8.3)")
DURABILITY = _choice(UINT, p.TerminusDurability.UNSETTLED_STATE, "terminus-durability (3.5.5)")
UNSETTLED = Kind(_write_unsettled, _convert_unsettled)
ERROR = _one_of(ERROR_CODE)
SOURCE = _one_of(SOURCE_CODE)
TARGET = Kind(_write_target, _convert_target)


# --- the tables -------------------------------------------------------------------------------------------------------


def _must(name: str, kind: Kind) -> Field:
    return Field(name, kind, None, True)


_CAPABILITIES = (
    Field("offered_capabilities", SYMBOLS, ()),
    Field("desired_capabilities", SYMBOLS, ()),
    Field("properties", FIELDS),
)
_TERMINUS = (
    Field("address", STRING),
    Field("durable", DURABILITY, 0),
    Field("expiry_policy", SYMBOL, p.TerminusExpiryPolicy.SESSION_END),
    Field("timeout", UINT, 0),
    Field("dynamic", BOOLEAN, False),
    Field("dynamic_node_properties", NODE_PROPERTIES),
)
_ERROR_ONLY = (Field("error", ERROR),)

_ALL = (
    Composite(
        0x10,
        "amqp:open:list",
        p.Open,
        (
            _must("container_id", STRING),
            Field("hostname", STRING),
            Field("max_frame_size", UINT, p.UINT_MAX),
            Field("channel_max", USHORT, p.USHORT_MAX),
            Field("idle_time_out", UINT),
            Field("outgoing_locales", SYMBOLS, ()),
            Field("incoming_locales", SYMBOLS, ()),
            *_CAPABILITIES,
        ),
    ),
    Composite(
        0x11,
        "amqp:begin:list",
        p.Begin,
        (
            Field("remote_channel", USHORT),
            _must("next_outgoing_id", UINT),
            _must("incoming_window", UINT),
            _must("outgoing_window", UINT),
            Field("handle_max", UINT, p.UINT_MAX),
            *_CAPABILITIES,
        ),
    ),
    Composite(
        0x12,
        "amqp:attach:list",
        p.Attach,
        (
            _must("name", STRING),
            _must("handle", UINT),
            _must("role", BOOLEAN),
            Field("snd_settle_mode", SND_SETTLE_MODE, 2),
            Field("rcv_settle_mode", RCV_SETTLE_MODE, 0),
            Field("source", SOURCE),
            Field("target", TARGET),
            Field("unsettled", UNSETTLED),
            Field("incomplete_unsettled", BOOLEAN, False),
            Field("initial_delivery_count", UINT),
            Field("max_message_size", ULONG),
            *_CAPABILITIES,
        ),
    ),
    Composite(
        0x13,
        "amqp:flow:list",
        p.Flow,
        (
            Field("next_incoming_id", UINT),
            _must("incoming_window", UINT),
            _must("next_outgoing_id", UINT),
            _must("outgoing_window", UINT),
            Field("handle", UINT),
            Field("delivery_count", UINT),
            Field("link_credit", UINT),
            Field("available", UINT),
            Field("drain", BOOLEAN, False),
            Field("echo", BOOLEAN, False),
            Field("properties", FIELDS),
        ),
    ),
    Composite(
        0x14,
        "amqp:transfer:list",
        p.Transfer,
        (
            _must("handle", UINT),
            Field("delivery_id", UINT),
            Field("delivery_tag", BINARY),
            Field("message_format", UINT),
            Field("settled", BOOLEAN),
            Field("more", BOOLEAN, False),
            Field("rcv_settle_mode", UBYTE),
            Field("state", STATE),
            Field("resume", BOOLEAN, False),
            Field("aborted", BOOLEAN, False),
            Field("batchable", BOOLEAN, False),
        ),
    ),
    Composite(
        0x15,
        "amqp:disposition:list",
        p.Disposition,
        (
            _must("role", BOOLEAN),
            _must("first", UINT),
            Field("last", UINT),
            Field("settled", BOOLEAN, False),
            Field("state", STATE),
            Field("batchable", BOOLEAN, False),
        ),
    ),
    Composite(
        0x16, "amqp:detach:list", p.Detach, (_must("handle", UINT), Field("closed", BOOLEAN, False), *_ERROR_ONLY)
    ),
    Composite(0x17, "amqp:end:list", p.End, _ERROR_ONLY),
    Composite(0x18, "amqp:close:list", p.Close, _ERROR_ONLY),
    Composite(
        ERROR_CODE,
        "amqp:error:list",
        p.AmqpError,
        (_must("condition", SYMBOL), Field("description", STRING), Field("info", FIELDS)),
    ),
    Composite(
        RECEIVED_CODE, "amqp:received:list", p.Received, (_must("section_number", UINT), _must("section_offset", ULONG))
    ),
    Composite(0x24, "amqp:accepted:list", p.Accepted, ()),
    Composite(0x25, "amqp:rejected:list", p.Rejected, _ERROR_ONLY),
    Composite(0x26, "amqp:released:list", p.Released, ()),
    Composite(
        MODIFIED_CODE,
        "amqp:modified:list",
        p.Modified,
        (
            Field("delivery_failed", BOOLEAN, False),
            Field("undeliverable_here", BOOLEAN, False),
            Field("message_annotations", FIELDS),
        ),
    ),
    Composite(
        SOURCE_CODE,
        "amqp:source:list",
        p.Source,
        (
            *_TERMINUS,
            Field("distribution_mode", SYMBOL),
            Field("filter", FIELDS),
            Field("default_outcome", STATE),
            Field("outcomes", SYMBOLS, ()),
            Field("capabilities", SYMBOLS, ()),
        ),
    ),
    Composite(TARGET_CODE, "amqp:target:list", p.Target, (*_TERMINUS, Field("capabilities", SYMBOLS, ()))),
    Composite(0x40, "amqp:sasl-mechanisms:list", p.SaslMechanisms, (_must("sasl_server_mechanisms", SYMBOLS),)),
    Composite(
        0x41,
        "amqp:sasl-init:list",
        p.SaslInit,
        (_must("mechanism", SYMBOL), Field("initial_response", BINARY), Field("hostname", STRING)),
    ),
    Composite(0x42, "amqp:sasl-challenge:list", p.SaslChallenge, (_must("challenge", BINARY),)),
    Composite(0x43, "amqp:sasl-response:list", p.SaslResponse, (_must("response", BINARY),)),
    Composite(
        0x44, "amqp:sasl-outcome:list", p.SaslOutcomeFrame, (_must("code", UBYTE), Field("additional_data", BINARY))
    ),
)

COMPOSITES: dict[int, Composite] = {composite.code: composite for composite in _ALL}
_BY_CLASS: dict[type[object], Composite] = {composite.cls: composite for composite in _ALL}
_BY_SYMBOL: dict[str, int] = {composite.symbol: composite.code for composite in _ALL}
# The two states without fields are most of what a router says: their bytes are made once.
_FIXED_STATES: dict[type[object], bytes] = {p.Accepted: b"\x00\x53\x24\x45", p.Released: b"\x00\x53\x26\x45"}


# --- the generic codec ------------------------------------------------------------------------------------------------


def descriptor_code(descriptor: object) -> int:
    """Return the numeric code of a descriptor in either form, -1 if no composite type here has it."""
    if isinstance(descriptor, Symbol):
        return _BY_SYMBOL.get(descriptor, -1)
    if isinstance(descriptor, ULong) and descriptor in COMPOSITES:
        return int(descriptor)
    return -1


def build(composite: Composite, value: object) -> object:
    """Make the object of a composite type from its decoded list of fields.

    Raises:
        DecodeError: no list, a mandatory field is missing, or a field has the wrong type.
    """
    if not isinstance(value, list):
        raise DecodeError(f"{composite.symbol} is not a list")
    arguments: list[object] = []
    for index, field in enumerate(composite.fields):
        item = value[index] if index < len(value) else None
        if item is not None:
            arguments.append(field.kind.convert(item))
        elif field.mandatory:
            raise DecodeError(f"{composite.symbol} lacks its mandatory field {field.name}")
        else:
            arguments.append(field.default)
    return composite.cls(*arguments)


def encode_composite(value: object) -> bytes:
    """Encode an object of a composite type; null fields at the end are left out.

    Raises:
        LocalProtocolError: no composite type, a mandatory field is None, or a field's value does not fit.
    """
    composite = _BY_CLASS.get(type(value))
    if composite is None:
        raise LocalProtocolError(f"a {type(value).__name__} is no AMQP composite type")
    return encode_fields(composite, value)


def encode_fields(composite: Composite, value: object) -> bytes:
    """Encode an object by the table of its composite type; errors as for ``encode_composite``."""
    parts: list[bytes] = []
    used = 0
    for index, field in enumerate(composite.fields):
        item: object = getattr(value, field.name)
        if field.mandatory and item is None:
            raise LocalProtocolError(f"{composite.symbol} needs a value for {field.name}")
        if not field.mandatory and (item is None or item == field.default):
            parts.append(NULL)
        else:
            parts.append(field.kind.write(item))
            used = index + 1
    head = b"\x00\x53" + bytes((composite.code,))
    return head + (compound(0xC0, 0xD0, used, b"".join(parts[:used])) if used else b"\x45")
