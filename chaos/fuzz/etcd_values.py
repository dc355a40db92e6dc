"""Target `etcd-values`: keys and values that somebody else has written under the prefix."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

from chaos.fuzz.mutations import json_value, mutate_octets, mutate_text
from chaos.fuzz.target import InputTarget
from delivery_records.model.view import PublisherRecord, RouterRecord, SubscriptionRecord
from topology.etcd.store import PREFIX, EventKind, Stored, WatchEvent
from topology.keys.attachments import (
    CLUSTER_KEY,
    ClusterLife,
    MalformedValue,
    change_of_event,
    change_of_stored,
    decode_life,
    encode_life,
    encode_record,
)
from topology.keys.router_secrets import RouterSecrets
from topology.keys.services import SERVICES, decode_service, encode_service, service_key

EACH = 10
DIGITS = "0123456789abcdef0123456789abcdef01234567"
SAMPLES = (
    (f"{PREFIX}routers/r1.1f", encode_record(RouterRecord("r1", 0x1F, "h:1", "amqp://h:2", "http://h:3"))),
    (f"{PREFIX}subs/{DIGITS}", encode_record(SubscriptionRecord("c", "l", "topic", 0x1F, "nonce", 60.0))),
    (f"{PREFIX}pubs/{DIGITS}", encode_record(PublisherRecord("c", "l", "topic", 0x1F, "nonce", 7, 60.0))),
    (CLUSTER_KEY, encode_life(ClusterLife(b"nonc", 5, 0xABC))),
    (service_key(0x1F, "queue://"), encode_service(0x1F, "queue://")),
)
"""A key of each kind with its value."""


def _inputs(rng: random.Random) -> Iterator[bytes]:
    key, value = rng.choice(SAMPLES)
    for _ in range(EACH):
        kind = rng.random()
        if kind < 0.6:
            fields = json.loads(value)
            for name in rng.sample(sorted(fields), min(len(fields), rng.choice((1, 1, 2)))):
                fields[name] = json_value(rng)
            changed = _json(rng, fields)
        elif kind < 0.9:
            changed = mutate_octets(rng, value)
        else:
            changed = rng.choice((b"[" * 5000, b'{"a":' * 5000, b"", b"null", b"x" * 70_000, b"\xff\xfe{\0}\0"))
        found = mutate_text(rng, key) if rng.random() < 0.2 else key
        yield found.encode("utf-8", "surrogatepass") + b"\n" + changed


def _json(rng: random.Random, fields: dict[str, object]) -> bytes:
    return json.dumps(fields, ensure_ascii=rng.random() < 0.8).encode("utf-8", "surrogatepass")


def take(data: bytes) -> bool:
    """Read a key and its value by all who read it; whether it is one of ours."""
    name, _, value = data.partition(b"\n")
    key = name.decode("utf-8", "replace")
    RouterSecrets().load([Stored(key, value, 1, 2, 0)])
    try:
        if key == CLUSTER_KEY:
            decode_life(value)
        elif key.startswith(SERVICES):
            return decode_service(value) is not None
        change_of_event(WatchEvent(EventKind.PUT, key, value, 1, 2))
        return change_of_stored(Stored(key, value, 1, 2, 0)) is not None
    except MalformedValue:
        return False


ETCD_VALUES = InputTarget(
    "etcd-values",
    "keys and values of etcd, mutated, into all that reads them: attachments, routers and their secrets, the nonce, "
    "services; a record, nothing, or `MalformedValue`",
    (
        "topology.keys.attachments",
        "topology.keys.router_secrets",
        "topology.keys.services",
        "delivery_records.model.view",
    ),
    _inputs,
    take,
)
