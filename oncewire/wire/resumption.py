"""What becomes of unsettled deliveries when a link is attached again (AMQP 1.0 part 2, section 2.6.13).

Both attaches carry a map tag -> state. ``decide`` says for one delivery, from the state each end presented, what the
source of the link does; the target can run the same function to know what will come. The router and our client follow
rules of their own on top of it (A-3a, A-6, A-7); this module is AMQP's share.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from oncewire.wire.decoding import skip
from oncewire.wire.errors import DecodeError
from oncewire.wire.performative_codec import bare_state, unsettled_map_bound
from oncewire.wire.performatives import OUTCOMES, DeliveryState, Received, UnsettledMap


class Presence(Enum):
    """Stands where one end's map has no entry for a tag; None is an entry without a state."""

    ABSENT = auto()


ABSENT = Presence.ABSENT


class ResumeAction(Enum):
    """What the source does about one delivery."""

    # A new delivery with the same tag, resume=false: the target knows nothing of it (cases 1 and 5).
    RESEND = auto()
    # transfer(resume=true) with the payload from ``start`` on (cases 2, 4 and 6).
    RESUME = auto()
    # transfer(resume=true, settled=true, state) without payload: both ends forget it (cases 3, 8 and 12).
    SETTLE = auto()
    # transfer(resume=true, state) without payload: the source's outcome is the one that counts; the target states it
    # too and settles (case 13).
    RESTATE = auto()
    # transfer(resume=true, aborted=true): it cannot be resumed and counts as settled (cases 7, 9, 11 and 14).
    ABORT = auto()
    # Nothing is sent: the target has settled it and the source does so too (case 10); or only the target holds it.
    FORGET = auto()
    # An incomplete map leaves it open. Nothing is sent; it is decided after the next attach (C-4).
    WAIT = auto()


@dataclass(frozen=True, slots=True)
class ResumeDecision:
    """What the source does about one delivery.

    Attributes:
        action: see ``ResumeAction``.
        state: the state to put into the transfer, or to record when nothing is sent; None if there is none.
        start: with ``RESUME``, where the payload goes on; see ``payload_from``.
    """

    action: ResumeAction
    state: DeliveryState | None = None
    start: Received | None = None


class _Kind(Enum):
    ABSENT = auto()
    PARTIAL = auto()
    TERMINAL = auto()


_NOTHING_RECEIVED = Received(0, 0)

# (kind at the source, kind at the target) -> action. Two pairs need a second look: how far each end got, and whether
# both outcomes are the same.
_ACTIONS: dict[tuple[_Kind, _Kind], ResumeAction] = {
    (_Kind.ABSENT, _Kind.ABSENT): ResumeAction.FORGET,
    (_Kind.ABSENT, _Kind.PARTIAL): ResumeAction.FORGET,
    (_Kind.ABSENT, _Kind.TERMINAL): ResumeAction.FORGET,
    (_Kind.PARTIAL, _Kind.ABSENT): ResumeAction.RESEND,
    (_Kind.PARTIAL, _Kind.PARTIAL): ResumeAction.RESUME,
    (_Kind.PARTIAL, _Kind.TERMINAL): ResumeAction.SETTLE,
    (_Kind.TERMINAL, _Kind.ABSENT): ResumeAction.FORGET,
    (_Kind.TERMINAL, _Kind.PARTIAL): ResumeAction.ABORT,
    (_Kind.TERMINAL, _Kind.TERMINAL): ResumeAction.SETTLE,
}


def _kind(state: DeliveryState | Presence | None) -> _Kind:
    if state is ABSENT:
        return _Kind.ABSENT
    # A state of a transaction is none yet: transactions end with their connection, and none are offered here.
    return _Kind.TERMINAL if isinstance(state, OUTCOMES) else _Kind.PARTIAL


def _progress(state: DeliveryState | Presence | None) -> Received:
    """Return how far a delivery that is not terminal got; no state is as good as nothing received."""
    return state if isinstance(state, Received) else _NOTHING_RECEIVED


def decide(
    source: DeliveryState | Presence | None,
    target: DeliveryState | Presence | None,
    *,
    source_incomplete: bool = False,
    target_incomplete: bool = False,
) -> ResumeDecision:
    """Say what the source of a link does about a delivery after both attaches.

    Args:
        source: the state in the source's map, ``ABSENT`` if it is not in there.
        target: the state in the target's map, ``ABSENT`` if it is not in there.
        source_incomplete, target_incomplete: that end's attach said incomplete-unsettled. Then a missing entry proves
            nothing, and no new delivery may be sent on this attach.
    """
    source_kind = _kind(source)
    target_kind = _kind(target)
    if (source_kind is _Kind.ABSENT and source_incomplete) or (
        target_kind is _Kind.ABSENT and target_incomplete
    ):
        return ResumeDecision(ResumeAction.WAIT)
    action = _ACTIONS[source_kind, target_kind]
    if action is ResumeAction.RESEND:
        return ResumeDecision(ResumeAction.WAIT if source_incomplete else action)
    if action is ResumeAction.RESUME:
        had, got = _progress(source), _progress(target)
        if (got.section_number, got.section_offset) < (had.section_number, had.section_offset):
            # The source may have dropped what lies before its own mark, and the target needs some of it.
            return ResumeDecision(ResumeAction.ABORT)
        return ResumeDecision(action, None, got)
    if action is ResumeAction.SETTLE:
        assert isinstance(target, OUTCOMES)
        if not isinstance(source, OUTCOMES):
            return ResumeDecision(action, target)
        # An outcome takes effect at the source, so its view wins; details such as errors are no other outcome.
        return ResumeDecision(action if type(source) is type(target) else ResumeAction.RESTATE, source)
    return ResumeDecision(action, source if isinstance(source, OUTCOMES) else None)


def source_plan(
    local: Mapping[bytes, DeliveryState | None],
    remote: Mapping[bytes, DeliveryState | None] | None,
    *,
    local_incomplete: bool = False,
    remote_incomplete: bool = False,
) -> list[tuple[bytes, ResumeDecision]]:
    """Return what the sending end does about each delivery it presented, in the order of its map.

    Carry out everything but ``RESEND`` in any order, then ``RESEND`` in this order, then send new deliveries. Entries
    that only the target presented need nothing: it forgets them.

    Args:
        local: the map in our attach.
        remote: the map in the receiver's attach; None = it does not resume, as good as an empty one.
        local_incomplete, remote_incomplete: the flags of the two attaches.
    """
    other = remote or {}
    return [
        (
            tag,
            decide(
                state,
                other.get(tag, ABSENT),
                source_incomplete=local_incomplete,
                target_incomplete=remote_incomplete,
            ),
        )
        for tag, state in local.items()
    ]


def target_plan(
    local: Mapping[bytes, DeliveryState | None],
    remote: Mapping[bytes, DeliveryState | None] | None,
    *,
    local_incomplete: bool = False,
    remote_incomplete: bool = False,
) -> list[tuple[bytes, ResumeDecision]]:
    """Return what the receiving end has to expect of each delivery it presented, in the order of its map.

    ``FORGET`` = settled at the sender, forget it now. Every other action will show as a transfer with resume=true, and
    one with a tag that is not expected must be ignored (2.6.13).

    Args:
        local: the map in our attach.
        remote: the map in the sender's attach; None = it does not resume, as good as an empty one.
        local_incomplete, remote_incomplete: the flags of the two attaches.
    """
    other = remote or {}
    return [
        (
            tag,
            decide(
                other.get(tag, ABSENT),
                state,
                source_incomplete=remote_incomplete,
                target_incomplete=local_incomplete,
            ),
        )
        for tag, state in local.items()
    ]


def bound_map(
    unsettled: Mapping[bytes, DeliveryState | None], max_frame_size: int
) -> tuple[UnsettledMap, bool]:
    """Return as much of an unsettled map as an attach surely holds, with bare states, and whether entries are missing.

    The first entries stay: pass a map in the order of the deliveries. The flag is for ``incomplete_unsettled`` (C-4).

    Args:
        unsettled: tag -> state.
        max_frame_size: bytes, the smaller one of both ends.
    """
    bound = unsettled_map_bound(max_frame_size)
    kept = {tag: bare_state(state) for tag, state in list(unsettled.items())[:bound]}
    return kept, len(kept) < len(unsettled)


def payload_from(message: bytes, start: Received) -> bytes:
    """Return the part of an encoded message that a resumed transfer carries (3.4.1).

    Args:
        message: the whole encoded message.
        start: first section, counted from 0, and first byte within it that the target lacks.

    Raises:
        DecodeError: the message has no such section or byte.
    """
    pos = 0
    for _ in range(start.section_number):
        pos = skip(message, pos, len(message))
    pos += start.section_offset
    if pos > len(message):
        raise DecodeError(
            f"the message ends before section {start.section_number} byte {start.section_offset}"
        )
    return message[pos:]
