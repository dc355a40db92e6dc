"""What a router sends and does, in the words of the protocol page.

Stories are kept as text and compared: they say what matters of a message, and stay as they are when a class, a field or
a file gets another name.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from delivery_records.model import effects
from delivery_records.model.messages import (
    Ack,
    Annotations,
    Applied,
    Barrier,
    Claim,
    Credit,
    Datagram,
    ExpiringMsg,
    FormerAnnotations,
    Hello,
    LargePart,
    Msg,
    MsgPart,
    Nack,
    Need,
    Reason,
    Return,
    Room,
    RouterMessage,
    Run,
    Settle,
    Sync,
    Taken,
)
from delivery_records.model.tags import OWN_TAG_AT


def sent(message: RouterMessage | Datagram) -> str:
    """A message to another router."""
    match message:
        case Hello():
            name = "HELLO, a reply" if message.is_reply else "HELLO"
            counts = f"sent {message.sent}, received {message.received}, applied {message.applied}"
            return f"{name}: generation {message.generation}, {counts}"
        case Barrier():
            return f"BARRIER at revision {message.revision}"
        case Applied():
            return f"APPLIED revision {message.revision}"
        case Credit():
            return f"CREDIT for {message.granted_bytes} bytes"
        case Sync() | Msg() | MsgPart() | LargePart() | FormerAnnotations() | Settle():
            return _to_egress(message)
    return f"{_to_ingress(message)} of publisher {message.publisher_epoch} by subscription {message.subscription_epoch}"


def _to_egress(message: Sync | Msg | MsgPart | LargePart | FormerAnnotations | Settle) -> str:
    match message:
        case Sync():
            kind = "SYNC of letters" if message.is_letters else "SYNC"
            serial = f", serial {message.serial}" if message.serial else ""
            unsettled = f"U = {_listed(message.numbers)}{serial}"
            to = f"subscriptions {_listed(message.subscription_epochs)}"
            return f"{kind} of publisher {message.publisher_epoch} for {to}: {unsettled}"
        case Msg():
            to = "all that are synced" if message.to is None else f"subscriptions {_listed(message.to)}"
            size = "without its body" if message.is_large else f"{len(message.message)} bytes"
            life = f", {message.ttl_ms} ms left" if isinstance(message, ExpiringMsg) else ""
            of = f"{message.number} of publisher {message.publisher_epoch}"
            return f"MSG {of} for {to}: {size}{life}{_flags(message)}"
        case MsgPart():
            return f"MSG-PART at {message.offset} of {message.total} bytes: {_to_egress(message.head)}"
        case LargePart():
            part = "left out" if message.is_owed else message.part.value
            of = f"{message.number} of publisher {message.publisher_epoch} for subscriptions {_listed(message.to)}"
            return f"LARGE {of}: {part}, {len(message.data)} bytes{_flags(message)}"
        case FormerAnnotations():
            by = f"publisher {message.publisher_epoch} for subscription {message.subscription_epoch}"
            return f"ANNOTATIONS of {message.number} of {by}: {len(message.added)}"
        case Settle():
            return f"SETTLE {_runs(message.runs)} of publisher {message.publisher_epoch}"


def _to_ingress(message: Ack | Nack | Reason | Annotations | Claim | Return | Room | Taken | Need) -> str:
    match message:
        case Ack():
            return f"ACK {_runs(message.runs)} {message.outcome.value}"
        case Nack():
            failed = f"failed, attempt {message.attempts}" if message.failed else "released"
            delay = "" if message.delay_ms is None else f", again in {message.delay_ms} ms"
            return f"NACK {message.number} {failed}{delay}{' (in its map)' if message.is_presented else ''}"
        case Reason():
            return f"REASON {_runs(message.runs)} {message.error!r}"
        case Annotations():
            return f"ANNOTATIONS {message.number} ({len(message.added)})"
        case Claim():
            serial = f", serial {message.serial}" if message.serial else ""
            return f"CLAIM {_runs(message.runs)}, room {message.room}{serial}"
        case Return():
            return f"RETURN {message.number}"
        case Room():
            return f"ROOM {message.room}"
        case Taken():
            return f"TAKEN {message.taken} bytes of {message.number}"
        case Need():
            return f"NEED {message.number}"


def done(effect: effects.Effect) -> str:
    """What a router does at a link of its own."""
    match effect:
        case effects.PublisherReply() | effects.SubscriberReply():
            return _reply(effect)
        case effects.AskEcho():
            return f"link {effect.link}: echo of epoch {effect.epoch}, please"
        case effects.GrantPublisherCredit():
            session = "" if effect.session is None else f", session {effect.session}"
            return f"link {effect.link}: credit up to {effect.limit}{session}"
        case effects.Dispose():
            settled = ", settled" if effect.settled else ""
            why = f": {effect.condition} {effect.description}" if effect.condition else ""
            return f"link {effect.link}: {_listed(effect.delivery_ids)} {effect.outcome.value}{settled}{why}"
        case effects.Deliver():
            return f"link {effect.link}: transfer {_own(effect.tag)}{_flags(effect)}"
        case effects.DeliverPart():
            part = f"{effect.part.value}, {len(effect.data)} bytes"
            return f"link {effect.link}: transfer {_own(effect.tag)}, {part}{_flags(effect)}"
        case effects.SettleAtSubscriber():
            return f"link {effect.link}: settled {' '.join(map(_own, effect.tags))}"
        case effects.Confirm():
            kept = f"kept for {effect.timeout_s:g} s after {effect.expiry_policy}"
            return f"link {effect.link}: confirmed, epoch {effect.incarnation}, {kept}"
        case effects.DetachLink():
            why = f": {effect.condition} {effect.description}" if effect.condition else ""
            return f"link {effect.link}: detach{', closed' if effect.closed else ''}{why}"
        case effects.CloseConnection():
            return f"link {effect.link}: close of its connection: {effect.condition} {effect.description}"
        case effects.CompleteDrain():
            return f"link {effect.link}: drained"
    return _for_people(effect)


def _for_people(effect: effects.Effect) -> str:
    """What publishers and operators are notified of."""
    match effect:
        case effects.NotifyStart():
            return f"link {effect.link}: start of subscription {effect.created} behind {effect.tag.hex()}"
        case effects.NotifyEnded() | effects.NotifyOwing() | effects.NotifyAcceptedBy():
            what = {effects.NotifyEnded: "ended", effects.NotifyOwing: "owed by"}.get(type(effect), "accepted by")
            return f"link {effect.link}: {effect.tag.hex()} {what} {effect.count}: {' '.join(effect.names)}"
        case effects.OrderAnswered():
            return f"order {effect.order}: {effect.ending.value}, epoch {effect.epoch}"
    return repr(effect)  # of no link


def _reply(effect: effects.PublisherReply | effects.SubscriberReply) -> str:
    kept = f"kept for {effect.timeout_s:g} s after {effect.expiry_policy}"
    once = "" if effect.exactly_once else ", without the capability"
    resumed = ", resumed" if effect.resumed else ""
    if isinstance(effect, effects.PublisherReply):
        has = "no map" if effect.unsettled is None else f"map {' '.join(tag.hex() for tag in effect.unsettled) or '-'}"
        return f"link {effect.link}: attach, publisher, {has}{resumed}{once}, {kept}"
    has = "no map" if effect.kept is None else f"map {' '.join(map(_own, effect.kept)) or '-'}"
    part = ", incomplete" if effect.incomplete else ""
    what = f"{effect.mode.value} subscriber, epoch {effect.incarnation}"
    return f"link {effect.link}: attach, {what}, {has}{part}{resumed}{once}, {kept}"


def _flags(it: Msg | LargePart | effects.Deliver | effects.DeliverPart) -> str:
    """What a delivery says beside its message, where it says it."""
    found = [name for name in ("resume", "settled", "redelivered") if getattr(it, name, False)]
    found += [f"attempt {it.attempt}"] if it.attempt else []
    return "".join(f", {each}" for each in found)


def _own(tag: bytes) -> str:
    """The publisher's part of a network tag."""
    return tag[OWN_TAG_AT:].hex()


def _runs(runs: Iterable[Run]) -> str:
    return " ".join(f"{first}" if count == 1 else f"{first}-{first + count - 1}" for first, count in runs) or "-"


def _listed(numbers: Sequence[int]) -> str:
    return "{" + ", ".join(map(str, numbers)) + "}"
