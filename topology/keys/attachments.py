"""Keys and JSON values in etcd <-> the records the core works with (`delivery_records.model.view`).

Values written by a newer version may have more fields: those are ignored. A value that makes no sense is a
`MalformedValue`; whoever reads many keys skips that one, says so in the log and goes on.
"""

from __future__ import annotations

import json
import logging
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from delivery_records.model.tags import ERA_BITS, NONCE_BYTES
from delivery_records.model.view import (
    SESSION_IS_THIS_PUT,
    Change,
    Kind,
    PublisherRecord,
    Record,
    RouterRecord,
    SubscriptionMode,
    SubscriptionRecord,
    rid_of_key,
    router_key,
)
from topology.etcd.store import PREFIX, EventKind, Stored, WatchEvent
from topology.keys.epochs import MAX_ORDINAL, epoch_of

CLUSTER_KEY = PREFIX + "cluster"
"""Holds the `ClusterLife`: the cluster nonce, which is part of every network tag, and what belongs to it."""
LOST_KEY = CLUSTER_KEY + ".lost"
"""Holds a `LostHistory`, written by a router that knows of a later past than these data (K-9)."""
MAX_VALUE_BYTES = 65_536
"""A record has some hundred bytes; a longer value is not ours and is not parsed."""
MAX_REVISION = 2**63 - 1
"""Revisions and lease ids are signed 64-bit integers in etcd."""
ATTACHMENT_KEY_DIGITS = 40
"""Hex digits of a link's identity."""

_log = logging.getLogger(__name__)


class MalformedValue(Exception):
    """A key or value under the prefix that this version cannot have written. The text says which and why."""


def store_key(path: str) -> str:
    """`subs/<h>` -> the full key in etcd."""
    return PREFIX + path


def router_store_key(record: RouterRecord) -> str:
    """The full key of a router incarnation."""
    return f"{PREFIX}{Kind.ROUTER.value}/{router_key(record)}"


def encode_record(record: Record, ordinal: int = 0) -> bytes:
    """The value to write. Fields that have their default are written too: people read these values.

    Args:
        record: what the value stands for.
        ordinal: of this key among those that its transaction writes (A-2e).
    """
    values = {name: getattr(record, name) for name in _FIELDS[type(record)]}
    # 64-bit numbers do not survive JavaScript; the key shows the incarnation in hex, too.
    values["rid"] = f"{record.rid:x}"
    if isinstance(record, SubscriptionRecord):
        values["mode"] = record.mode.value
    if ordinal:
        values[_ORDINAL] = ordinal
    return _ENCODER.encode(values).encode()


_FIELDS: Mapping[type[Record], tuple[str, ...]] = {
    kind: tuple(field.name for field in fields(kind)) for kind in (RouterRecord, SubscriptionRecord, PublisherRecord)
}
_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_ORDINAL = "ordinal"


def decode_record(kind: Kind, key: str, value: bytes) -> Record:
    """The record in a value; `key` is the last part of the etcd key.

    Raises:
        MalformedValue: it is not a record of that kind, or does not belong under that key.
    """
    return _decoded(kind, key, value)[0]


def _decoded(kind: Kind, key: str, value: bytes) -> tuple[Record, int]:
    """The record in a value, and its ordinal."""
    reader = _Reader(f"{kind.value}/{key}", value)
    record = _DECODERS[kind](reader)
    if isinstance(record, RouterRecord) and router_key(record) != key:
        raise MalformedValue(f"{kind.value}/{key}: the value is that of {router_key(record)}")
    return record, reader.whole(_ORDINAL, 0, highest=MAX_ORDINAL)


def change_of_stored(stored: Stored) -> Change | None:
    """A key of a snapshot, or that was read, as the core wants it; None for keys that are not attachments.

    Raises:
        MalformedValue: see `decode_record`.
    """
    found = _split(stored.key)
    if found is None:
        return None
    kind, key = found
    record, ordinal = _decoded(kind, key, stored.value)
    return Change(kind, key, record, epoch_of(stored.create_revision), epoch_of(stored.mod_revision, ordinal))


def change_of_event(event: WatchEvent) -> Change | None:
    """An event of the watch as the core wants it; None for keys that are not attachments.

    Raises:
        MalformedValue: see `decode_record`.
    """
    found = _split(event.key)
    if found is None:
        return None
    kind, key = found
    if event.kind is EventKind.DELETE:
        return Change(kind, key, None, epoch_of(event.create_revision), epoch_of(event.mod_revision))
    record, ordinal = _decoded(kind, key, event.value)
    return Change(kind, key, record, epoch_of(event.create_revision), epoch_of(event.mod_revision, ordinal))


_Source = TypeVar("_Source", Stored, WatchEvent)


def readable_changes(convert: Callable[[_Source], Change | None], sources: Iterable[_Source]) -> list[Change]:
    """All changes that make sense, in order; the others are logged and skipped."""
    changes: list[Change] = []
    for source in sources:
        try:
            change = convert(source)
        except MalformedValue as error:
            _log.error("a key in etcd is skipped: %s", error, extra={"event": "key_skipped"})
            continue
        if change is not None:
            changes.append(change)
    return changes


@dataclass(frozen=True, slots=True)
class ClusterLife:
    """One life of etcd's data, from its first router or `oncewire cluster new-nonce` on (K-9)."""

    nonce: bytes
    """Part of every network tag: what was sent in another life is never taken for something of this one."""
    era: int
    """Part of every incarnation number of a subscriber. 0: written by a version that knew none."""
    etcd_id: int
    """The etcd cluster this life began in; 0: not known."""
    log_lead: int | None = None
    """By how much etcd's log was ahead of its revision then, at least; only a restore makes it less. None: unknown."""
    is_confirmed: bool = True
    """An operator drew it, or a version that did not say who."""


@dataclass(frozen=True, slots=True)
class LostHistory:
    """Data that lack what a router has seen (K-9)."""

    nonce: bytes
    """The life they belong to; a new nonce makes this void."""
    why: str


def new_life(etcd_id: int, log_lead: int | None, *, is_confirmed: bool) -> ClusterLife:
    """An incarnation that is distinct from every other."""
    nonce, era = secrets.token_bytes(NONCE_BYTES), 1 + secrets.randbelow((1 << ERA_BITS) - 1)
    return ClusterLife(nonce, era, etcd_id, log_lead, is_confirmed)


def encode_life(life: ClusterLife) -> bytes:
    """The value of `CLUSTER_KEY`."""
    fields: dict[str, object] = {"nonce": life.nonce.hex(), "era": life.era, "etcd_id": f"{life.etcd_id:x}"}
    if life.log_lead is not None:
        fields["log_lead"] = life.log_lead
    fields["confirmed"] = life.is_confirmed
    return json.dumps(fields).encode()


def encode_lost(lost: LostHistory) -> bytes:
    """The value of `LOST_KEY`."""
    return json.dumps({"nonce": lost.nonce.hex(), "why": lost.why}).encode()


def why_marked(value: bytes | None, nonce: bytes) -> str:
    """What the value of `LOST_KEY` says of the life with this nonce; empty: nothing."""
    if value is None:
        return ""
    try:
        reader = _Reader("cluster.lost", value)
        return reader.text("why") if reader.text("nonce") == nonce.hex() else ""
    except MalformedValue as error:
        _log.error("a key in etcd is skipped: %s", error, extra={"event": "key_skipped"})
        return ""


def decode_life(value: bytes) -> ClusterLife:
    """What is in the value of `CLUSTER_KEY`.

    Raises:
        MalformedValue: it makes no sense.
    """
    reader = _Reader("cluster", value)
    try:
        nonce = bytes.fromhex(reader.text("nonce"))
        etcd_id = int(reader.text("etcd_id", "0"), 16)
    except ValueError:
        raise MalformedValue("cluster: the nonce or the id of etcd is not in hex") from None
    era = reader.whole("era", 0)
    if len(nonce) != NONCE_BYTES:
        raise MalformedValue(f"cluster: the nonce is not {NONCE_BYTES} bytes in hex")
    if era >= 1 << ERA_BITS:
        raise MalformedValue(f"cluster: the era {era} has more than {ERA_BITS} bits")
    log_lead = reader.whole("log_lead", 0, -MAX_REVISION) if reader.has("log_lead") else None
    return ClusterLife(nonce, era, etcd_id, log_lead, reader.flag("confirmed", True))


class _Reader:
    """Typed access to the fields of one JSON object."""

    def __init__(self, path: str, value: bytes) -> None:
        self._path = path
        if len(value) > MAX_VALUE_BYTES:
            raise MalformedValue(f"{path}: {len(value)} bytes are more than {MAX_VALUE_BYTES}")
        try:
            found = json.loads(value)
        except (ValueError, RecursionError) as error:
            raise MalformedValue(f"{path}: not JSON ({error})") from None
        if not isinstance(found, dict):
            raise MalformedValue(f"{path}: not a JSON object")
        self._fields: Mapping[str, Any] = found

    def text(self, name: str, default: str | None = None) -> str:
        value = self._fields.get(name, default)
        if not isinstance(value, str):
            raise self._wrong(name, "text")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise self._wrong(name, "text that UTF-8 can write") from None
        return value

    def has(self, name: str) -> bool:
        return name in self._fields

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._fields.get(name, default)
        if not isinstance(value, bool):
            raise self._wrong(name, "true or false")
        return value

    def whole(self, name: str, default: int, lowest: int = 0, highest: int = MAX_REVISION) -> int:
        value = self._fields.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
            raise self._wrong(name, f"a whole number from {lowest} on")
        return value

    def seconds(self, name: str) -> float:
        value = self._fields.get(name, 0.0)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self._wrong(name, "a number of seconds")
        if not 0 <= value <= MAX_REVISION:  # a larger integer is no float, and nobody waits so long
            raise self._wrong(name, "a finite number of seconds, not below 0")
        return float(value)

    def rid(self) -> int:
        digits = self.text("rid")
        try:
            rid = int(digits, 16)
        except ValueError:
            rid = 0
        if not 0 < rid <= MAX_REVISION:
            raise self._wrong("rid", "a lease id in hex")
        return rid

    def mode(self) -> SubscriptionMode:
        try:
            return SubscriptionMode(self.text("mode", SubscriptionMode.AT_LEAST_ONCE.value))
        except ValueError:
            raise self._wrong("mode", f"one of {', '.join(m.value for m in SubscriptionMode)}") from None

    def stores(self) -> bool | None:
        """I-3g: None of a release that does not know it."""
        return self.flag("stores") if self._fields.get("stores") is not None else None

    def _wrong(self, name: str, wanted: str) -> MalformedValue:
        return MalformedValue(f"{self._path}: {name} is {self._fields.get(name)!r:.80}, not {wanted}")


def _router(reader: _Reader) -> RouterRecord:
    return RouterRecord(
        node_id=reader.text("node_id"),
        rid=reader.rid(),
        inter_router=reader.text("inter_router", ""),
        amqp=reader.text("amqp", ""),
        http=reader.text("http", ""),
        protocol_min=reader.whole("protocol_min", 1),
        protocol_max=reader.whole("protocol_max", 1),
        version=reader.text("version", ""),
        leaving=reader.flag("leaving"),
        draining=reader.flag("draining"),
        group=reader.text("group", ""),
    )


def _subscription(reader: _Reader) -> SubscriptionRecord:
    shared = reader.flag("shared")
    return SubscriptionRecord(
        container_id=reader.text("container_id"),
        link_name=reader.text("link_name"),
        topic=reader.text("topic"),
        rid=0 if shared else reader.rid(),
        nonce=reader.text("nonce"),
        timeout_s=reader.seconds("timeout_s"),
        expiry_policy=reader.text("expiry_policy", "session-end"),
        mode=reader.mode(),
        map_bound=reader.whole("map_bound", 0),
        provisional=reader.flag("provisional"),
        resuming=reader.flag("resuming"),
        peer=reader.text("peer", ""),
        vhost=reader.text("vhost", ""),
        user=reader.text("user", ""),
        shared=shared,
        grouped=reader.flag("grouped"),
        member_of=reader.text("member_of", ""),
        filter=reader.text("filter", ""),
        stores=reader.stores(),
    )


def _publisher(reader: _Reader) -> PublisherRecord:
    return PublisherRecord(
        container_id=reader.text("container_id"),
        link_name=reader.text("link_name"),
        topic=reader.text("topic"),
        rid=reader.rid(),
        nonce=reader.text("nonce"),
        session=reader.whole("session", 0, lowest=SESSION_IS_THIS_PUT),
        timeout_s=reader.seconds("timeout_s"),
        resuming=reader.flag("resuming"),
        peer=reader.text("peer", ""),
        vhost=reader.text("vhost", ""),
        user=reader.text("user", ""),
    )


_DECODERS: Mapping[Kind, Callable[[_Reader], Record]] = {
    Kind.ROUTER: _router,
    Kind.SUBSCRIPTION: _subscription,
    Kind.PUBLISHER: _publisher,
}


def _split(full_key: str) -> tuple[Kind, str] | None:
    """Kind and last part of a key under the prefix; None for kinds this version does not know."""
    kind_name, slash, key = full_key.removeprefix(PREFIX).partition("/")
    if not slash or kind_name not in _KINDS:
        return None
    kind = _KINDS[kind_name]
    if not (_is_router_key(key) if kind is Kind.ROUTER else _is_attachment_key(key)):
        raise MalformedValue(f"{full_key}: not a key of this kind")
    return kind, key


_KINDS = {kind.value: kind for kind in Kind}


def _is_router_key(key: str) -> bool:
    try:
        return 0 < rid_of_key(key) <= MAX_REVISION
    except ValueError:
        return False


def _is_attachment_key(key: str) -> bool:
    return len(key) == ATTACHMENT_KEY_DIGITS and set(key) <= set("0123456789abcdef")
