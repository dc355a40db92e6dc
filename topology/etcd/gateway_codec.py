"""The JSON of etcd's gateway (`/v3/`), as pure functions.

The gateway writes protobuf as JSON: 64-bit integers are strings, bytes are base64, fields with the value zero are left
out. Its errors are HTTP errors whose body names a gRPC code.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from topology.etcd.store import Beside, EventKind, Stored, WatchEvent, Write

JsonObject: TypeAlias = Mapping[str, Any]


class GatewayFormatError(Exception):
    """The answer is not what etcd's gateway sends: most likely something else listens at that address."""


class ErrorClass(Enum):
    """What an error answer says about the request it answers."""

    LOGIN = "login"
    """Not looked at, for its login token is missing or too old: log in and send it again."""
    AUTH = "auth"
    """Refused: wrong password or no permission."""
    FULL = "full"
    """Refused, for the database has reached its quota; every member refuses (alarm NOSPACE)."""
    NOT_APPLIED = "not-applied"
    """Refused before it was proposed: safe to send again, best to another member."""
    UNKNOWN = "unknown"
    """Given up on after it may have been proposed."""
    LEASE = "lease"
    """Its lease does not exist."""
    REJECTED = "rejected"
    """Wrong in itself."""


@dataclass(frozen=True, slots=True)
class Header:
    """The part of each answer that states which cluster it speaks for, and its revision."""

    cluster_id: int
    revision: int


# gRPC status codes (google.rpc.Code), as they stand in the field `code` of an error.
_INVALID_ARGUMENT, _NOT_FOUND, _PERMISSION_DENIED, _RESOURCE_EXHAUSTED = 3, 5, 7, 8
_FAILED_PRECONDITION, _OUT_OF_RANGE, _UNIMPLEMENTED, _UNAVAILABLE, _UNAUTHENTICATED = 9, 11, 12, 14, 16

_TOKEN_TEXTS = ("invalid auth token", "user name is empty", "revision in header is old")
"""etcd's texts for a missing or outdated login token; their codes are shared with other errors."""
_LEASE_TEXT = "requested lease not found"
_FULL_TEXT = "database space exceeded"
_NO_LEADER_TEXT = "no leader"
_REJECTED_CODES = frozenset({_INVALID_ARGUMENT, _NOT_FOUND, _FAILED_PRECONDITION, _OUT_OF_RANGE, _UNIMPLEMENTED})


def classify_error(code: int, text: str) -> ErrorClass:
    """What an error with this gRPC code and text means for the request; when in doubt, UNKNOWN."""
    if code == _UNAUTHENTICATED or is_about_token(text):
        return ErrorClass.LOGIN
    if code == _PERMISSION_DENIED or "authentication failed" in text:
        return ErrorClass.AUTH
    if _LEASE_TEXT in text:
        return ErrorClass.LEASE
    if _FULL_TEXT in text:
        return ErrorClass.FULL
    if code == _RESOURCE_EXHAUSTED or (code == _UNAVAILABLE and text.endswith(_NO_LEADER_TEXT)):
        return ErrorClass.NOT_APPLIED
    return ErrorClass.REJECTED if code in _REJECTED_CODES else ErrorClass.UNKNOWN


def is_about_token(text: str) -> bool:
    """Whether etcd says with this that a login token is missing or too old."""
    return any(part in text for part in _TOKEN_TEXTS)


def parse_object(data: bytes) -> JsonObject:
    """One JSON object."""
    try:
        found = json.loads(data)
    except ValueError:
        raise GatewayFormatError(f"not JSON: {data[:80]!r}") from None
    if not isinstance(found, dict):
        raise GatewayFormatError(f"not a JSON object: {data[:80]!r}")
    return found


def parse_error(answer: JsonObject) -> tuple[int, str]:
    """(gRPC code, text) of an error answer; a stream wraps the same fields in `error`."""
    inner = answer.get("error")
    fields = inner if isinstance(inner, dict) else answer
    text = fields.get("message") or fields.get("error") or "no reason given"
    return integer(fields, "code") or integer(fields, "grpc_code"), str(text)


def integer(fields: JsonObject, name: str) -> int:
    """A number that may be a string, or be left out because it is zero."""
    try:
        return int(fields.get(name, 0))
    except (TypeError, ValueError):
        raise GatewayFormatError(f"{name} is not a number: {fields.get(name)!r}") from None


def header(answer: JsonObject) -> Header:
    """The answer's header."""
    fields = answer.get("header")
    if not isinstance(fields, dict):
        raise GatewayFormatError("an answer without header")
    return Header(integer(fields, "cluster_id"), integer(fields, "revision"))


def put_body(key: str, value: bytes, lease_id: int) -> JsonObject:
    """PutRequest."""
    return {"key": _key(key), "value": _base64(value), "lease": str(lease_id)}


def compare_and_put_body(
    key: str, value: bytes, expect_mod_revision: int, lease_id: int, beside: Beside | None = None
) -> JsonObject:
    """TxnRequest: put if the key's mod revision is the expected one; etcd takes 0 for an absent key."""
    body = _transaction(key, expect_mod_revision, {"request_put": put_body(key, value, lease_id)})
    if beside is not None:
        created = {
            "key": _key(beside.key),
            "target": "CREATE",
            "result": "EQUAL",
            "create_revision": str(beside.expect_create_revision),
        }
        body["compare"].append(created)
        body["success"].insert(0, {"request_put": put_body(beside.key, beside.value, 0)})
    return body


def compare_and_delete_body(key: str, expect_mod_revision: int) -> JsonObject:
    """TxnRequest: delete if the key's mod revision is the expected one."""
    return _transaction(key, expect_mod_revision, {"request_delete_range": {"key": _key(key)}})


def write_each_body(writes: Sequence[Write]) -> JsonObject:
    """TxnRequest whose operations are transactions, each with a compare of its own."""
    return {"success": [{"request_txn": _write(each)} for each in writes]}


def _write(write: Write) -> JsonObject:
    if write.value is None:
        return compare_and_delete_body(write.key, write.expect_mod_revision)
    return compare_and_put_body(write.key, write.value, write.expect_mod_revision, 0)


def get_each_body(keys: Sequence[str]) -> JsonObject:
    """TxnRequest that only reads."""
    return {"success": [{"request_range": range_body(key)} for key in keys]}


def responses(answer: JsonObject, name: str, count: int) -> list[JsonObject]:
    """What a transaction's operations of one kind were answered, in their order."""
    found = [each.get(name) for each in answer.get("responses", ())]
    if len(found) != count or not all(isinstance(each, dict) for each in found):
        raise GatewayFormatError(f"a transaction of {count} operations without {count} answers")
    return found


def succeeded(answer: JsonObject) -> bool:
    """Whether the compare of a transaction held."""
    return answer.get("succeeded") is True


def range_body(key: str) -> JsonObject:
    """RangeRequest for one key; linearizable, which is etcd's default."""
    return {"key": _key(key)}


def prefix_body(prefix: str) -> JsonObject:
    """RangeRequest for all keys under a prefix, in key order."""
    return {"key": _key(prefix), "range_end": _prefix_end(prefix), "sort_target": "KEY", "sort_order": "ASCEND"}


def stored_keys(answer: JsonObject) -> list[Stored]:
    """The keys of a RangeResponse."""
    return [
        Stored(
            key=_text(fields),
            value=_bytes(fields, "value"),
            create_revision=integer(fields, "create_revision"),
            mod_revision=integer(fields, "mod_revision"),
            lease=integer(fields, "lease"),
        )
        for fields in answer.get("kvs", ())
    ]


def watch_body(prefix: str, from_revision: int) -> JsonObject:
    """WatchRequest; large revisions may come in fragments."""
    request = {
        "key": _key(prefix),
        "range_end": _prefix_end(prefix),
        "start_revision": str(from_revision),
        "fragment": True,
    }
    return {"create_request": request}


def watch_events(answer: JsonObject) -> list[WatchEvent]:
    """The events of a WatchResponse. PUT is the event type zero, and so left out."""
    events = []
    for fields in answer.get("events", ()):
        pair = fields.get("kv", {})
        kind = EventKind.DELETE if fields.get("type") == "DELETE" else EventKind.PUT
        created, modified = integer(pair, "create_revision"), integer(pair, "mod_revision")
        events.append(WatchEvent(kind, _text(pair), _bytes(pair, "value"), created, modified))
    return events


def _transaction(key: str, expect_mod_revision: int, request: JsonObject) -> JsonObject:
    compare = {"key": _key(key), "target": "MOD", "result": "EQUAL", "mod_revision": str(expect_mod_revision)}
    return {"compare": [compare], "success": [request]}


def _key(key: str) -> str:
    return _base64(key.encode())


def _prefix_end(prefix: str) -> str:
    # The first key behind the prefix: its last byte plus one. Prefixes are ASCII, so that never overflows.
    encoded = prefix.encode("ascii")
    return _base64(encoded[:-1] + bytes([encoded[-1] + 1]))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(fields: JsonObject, name: str) -> bytes:
    try:
        return base64.b64decode(fields.get(name, ""), validate=True)
    except (TypeError, ValueError):
        raise GatewayFormatError(f"{name} is not base64") from None


def _text(fields: JsonObject) -> str:
    # A foreign key may hold any bytes; ours are ASCII. Such a key stays distinct and is skipped later as malformed.
    return _bytes(fields, "key").decode("utf-8", "backslashreplace")
