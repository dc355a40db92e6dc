"""The performatives, delivery states, termini and SASL frame bodies of AMQP 1.0 as plain data.

Field names and their order are those of the specification (parts 2.7, 3.4, 3.5 and 5.3.3) in snake_case; a default
value is the specification's default. How they look as bytes is the business of ``performative_codec``, which also
offers the short ways for the frames of the hot path.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, TypeAlias

from oncewire.wire.types import Described, Symbol

UINT_MAX = 0xFFFFFFFF
USHORT_MAX = 0xFFFF

# A map with symbol keys (2.8.13 fields, 3.5.8 node-properties, 3.5.9 filter-set).
Fields: TypeAlias = dict[Symbol, object]


class SenderSettleMode(IntEnum):
    """2.8.2: how a sender settles its deliveries."""

    UNSETTLED = 0
    SETTLED = 1
    MIXED = 2


class ReceiverSettleMode(IntEnum):
    """2.8.3: a receiver settles at once (first) or after the sender has settled (second)."""

    FIRST = 0
    SECOND = 1


class TerminusDurability(IntEnum):
    """3.5.5: what a terminus keeps over a restart of its container."""

    NONE = 0
    CONFIGURATION = 1
    UNSETTLED_STATE = 2


class TerminusExpiryPolicy:
    """3.5.6: the event that starts the expiry timer of a terminus."""

    LINK_DETACH: ClassVar[Symbol] = Symbol("link-detach")
    SESSION_END: ClassVar[Symbol] = Symbol("session-end")
    CONNECTION_CLOSE: ClassVar[Symbol] = Symbol("connection-close")
    NEVER: ClassVar[Symbol] = Symbol("never")


class SaslCode(IntEnum):
    """5.3.3.6: outcome of the SASL dialogue."""

    OK = 0
    AUTH = 1
    SYS = 2
    SYS_PERM = 3
    SYS_TEMP = 4


# --- errors and delivery states ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AmqpError:
    """2.8.14: the ``error`` value of close, end, detach and rejected."""

    condition: Symbol
    description: str | None = None
    info: Fields | None = None


@dataclass(frozen=True, slots=True)
class Received:
    """3.4.1: partial progress, not terminal."""

    section_number: int
    section_offset: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """3.4.2: processed. Use the singleton ``ACCEPTED``."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """3.4.3: invalid and not processable."""

    error: AmqpError | None = None


@dataclass(frozen=True, slots=True)
class Released:
    """3.4.4: not processed and never will be here. Use the singleton ``RELEASED``."""


@dataclass(frozen=True, slots=True)
class Modified:
    """3.4.5: not processed, to be changed before it is offered again."""

    delivery_failed: bool = False
    undeliverable_here: bool = False
    message_annotations: Fields | None = None


ACCEPTED = Accepted()
RELEASED = Released()

Outcome: TypeAlias = Accepted | Rejected | Released | Modified
# 3.4: the terminal states; a delivery that has reached one keeps it.
OUTCOMES = (Accepted, Rejected, Released, Modified)
# A state this engine does not know (declared, transactional-state) stays an opaque Described value.
DeliveryState: TypeAlias = Received | Accepted | Rejected | Released | Modified | Described
# 2.7.3: delivery tag -> state, None where the delivery has no state yet.
UnsettledMap: TypeAlias = dict[bytes, DeliveryState | None]


# --- termini ----------------------------------------------------------------------------------------------------------


class _Plain:  # noqa: PLW1641  # no hash, as the other performatives: they can be changed
    """What termini and performatives have in common, once: a dataclass of many fields is slow to import otherwise.

    The three performatives of the hot path have no dataclass at all: they are made for each frame.
    """

    __slots__ = ()
    __match_args__: ClassVar[tuple[str, ...]] = ()

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and all(getattr(self, f) == getattr(other, f) for f in self.__match_args__)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{f}={getattr(self, f)!r}' for f in self.__match_args__)})"


@dataclass(slots=True, eq=False, repr=False)
class Source(_Plain):
    """3.5.3. ``timeout`` is in seconds and counts from the event that ``expiry_policy`` names."""

    address: str | None = None
    durable: int = TerminusDurability.NONE
    expiry_policy: Symbol = TerminusExpiryPolicy.SESSION_END
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: Fields | None = None
    distribution_mode: Symbol | None = None
    filter: Fields | None = None
    default_outcome: DeliveryState | None = None
    outcomes: tuple[Symbol, ...] = ()
    capabilities: tuple[Symbol, ...] = ()


@dataclass(slots=True, eq=False, repr=False)
class Target(_Plain):
    """3.5.4. ``timeout`` is in seconds and counts from the event that ``expiry_policy`` names."""

    address: str | None = None
    durable: int = TerminusDurability.NONE
    expiry_policy: Symbol = TerminusExpiryPolicy.SESSION_END
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: Fields | None = None
    capabilities: tuple[Symbol, ...] = ()


# --- performatives ----------------------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False, repr=False)
class Open(_Plain):
    """2.7.1. ``idle_time_out`` is in milliseconds; None and 0 mean no time-out."""

    container_id: str
    hostname: str | None = None
    max_frame_size: int = UINT_MAX
    channel_max: int = USHORT_MAX
    idle_time_out: int | None = None
    outgoing_locales: tuple[Symbol, ...] = ()
    incoming_locales: tuple[Symbol, ...] = ()
    offered_capabilities: tuple[Symbol, ...] = ()
    desired_capabilities: tuple[Symbol, ...] = ()
    properties: Fields | None = None


@dataclass(slots=True, eq=False, repr=False)
class Begin(_Plain):
    """2.7.2. Windows count transfer frames."""

    remote_channel: int | None
    next_outgoing_id: int
    incoming_window: int
    outgoing_window: int
    handle_max: int = UINT_MAX
    offered_capabilities: tuple[Symbol, ...] = ()
    desired_capabilities: tuple[Symbol, ...] = ()
    properties: Fields | None = None


@dataclass(slots=True, eq=False, repr=False)
class Attach(_Plain):
    """2.7.3. ``role`` is that of the sending end: True = receiver.

    ``target`` is a ``Described`` value when the peer attaches to a coordinator (4.5.1), which no node here offers.
    ``unsettled``: None = no resumption; an empty dict = resumption with nothing unsettled at this end.
    """

    name: str
    handle: int
    role: bool
    snd_settle_mode: int = SenderSettleMode.MIXED
    rcv_settle_mode: int = ReceiverSettleMode.FIRST
    source: Source | None = None
    target: Target | Described | None = None
    unsettled: UnsettledMap | None = None
    incomplete_unsettled: bool = False
    initial_delivery_count: int | None = None
    max_message_size: int | None = None
    offered_capabilities: tuple[Symbol, ...] = ()
    desired_capabilities: tuple[Symbol, ...] = ()
    properties: Fields | None = None


class Flow(_Plain):
    """2.7.4. Without ``handle`` it speaks of the session only."""

    __match_args__: ClassVar[tuple[str, ...]] = (
        "next_incoming_id",
        "incoming_window",
        "next_outgoing_id",
        "outgoing_window",
        "handle",
        "delivery_count",
        "link_credit",
        "available",
        "drain",
        "echo",
        "properties",
    )
    __slots__ = __match_args__

    def __init__(
        self,
        next_incoming_id: int | None,
        incoming_window: int,
        next_outgoing_id: int,
        outgoing_window: int,
        handle: int | None = None,
        delivery_count: int | None = None,
        link_credit: int | None = None,
        available: int | None = None,
        drain: bool = False,
        echo: bool = False,
        properties: Fields | None = None,
    ) -> None:
        self.next_incoming_id = next_incoming_id
        self.incoming_window = incoming_window
        self.next_outgoing_id = next_outgoing_id
        self.outgoing_window = outgoing_window
        self.handle = handle
        self.delivery_count = delivery_count
        self.link_credit = link_credit
        self.available = available
        self.drain = drain
        self.echo = echo
        self.properties = properties


class Transfer(_Plain):
    """2.7.5. ``settled`` None means: as on the first frame of the delivery, False if this is the first."""

    __match_args__: ClassVar[tuple[str, ...]] = (
        "handle",
        "delivery_id",
        "delivery_tag",
        "message_format",
        "settled",
        "more",
        "rcv_settle_mode",
        "state",
        "resume",
        "aborted",
        "batchable",
    )
    __slots__ = __match_args__

    def __init__(
        self,
        handle: int,
        delivery_id: int | None = None,
        delivery_tag: bytes | None = None,
        message_format: int | None = None,
        settled: bool | None = None,
        more: bool = False,
        rcv_settle_mode: int | None = None,
        state: DeliveryState | None = None,
        resume: bool = False,
        aborted: bool = False,
        batchable: bool = False,
    ) -> None:
        self.handle = handle
        self.delivery_id = delivery_id
        self.delivery_tag = delivery_tag
        self.message_format = message_format
        self.settled = settled
        self.more = more
        self.rcv_settle_mode = rcv_settle_mode
        self.state = state
        self.resume = resume
        self.aborted = aborted
        self.batchable = batchable


class Disposition(_Plain):
    """2.7.6. ``role`` is that of the sending end: True = receiver. ``last`` None means ``first``."""

    __match_args__: ClassVar[tuple[str, ...]] = ("role", "first", "last", "settled", "state", "batchable")
    __slots__ = __match_args__

    def __init__(
        self,
        role: bool,
        first: int,
        last: int | None = None,
        settled: bool = False,
        state: DeliveryState | None = None,
        batchable: bool = False,
    ) -> None:
        self.role = role
        self.first = first
        self.last = last
        self.settled = settled
        self.state = state
        self.batchable = batchable


@dataclass(slots=True, eq=False, repr=False)
class Detach(_Plain):
    """2.7.7."""

    handle: int
    closed: bool = False
    error: AmqpError | None = None


@dataclass(slots=True, eq=False, repr=False)
class End(_Plain):
    """2.7.8."""

    error: AmqpError | None = None


@dataclass(slots=True, eq=False, repr=False)
class Close(_Plain):
    """2.7.9."""

    error: AmqpError | None = None


Performative: TypeAlias = Open | Begin | Attach | Flow | Transfer | Disposition | Detach | End | Close


# --- SASL frame bodies (5.3.3) ----------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False, repr=False)
class SaslMechanisms(_Plain):
    """5.3.3.1."""

    sasl_server_mechanisms: tuple[Symbol, ...]


@dataclass(slots=True, eq=False, repr=False)
class SaslInit(_Plain):
    """5.3.3.2."""

    mechanism: Symbol
    initial_response: bytes | None = None
    hostname: str | None = None


@dataclass(slots=True, eq=False, repr=False)
class SaslChallenge(_Plain):
    """5.3.3.3."""

    challenge: bytes


@dataclass(slots=True, eq=False, repr=False)
class SaslResponse(_Plain):
    """5.3.3.4."""

    response: bytes


@dataclass(slots=True, eq=False, repr=False)
class SaslOutcomeFrame(_Plain):
    """5.3.3.5 (sasl-outcome; the event of the connection is called ``SaslOutcome``)."""

    code: int
    additional_data: bytes | None = None


SaslFrame: TypeAlias = SaslMechanisms | SaslInit | SaslChallenge | SaslResponse | SaslOutcomeFrame
