"""The secrets of router incarnations, which lie in their keys in etcd (K-1b): a neighbour that knows one is in etcd.

The record core has no use for them and never sees them; nor does an operator.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable

from delivery_records.model.view import Kind, RouterRecord, rid_of_key
from topology.etcd.store import PREFIX, EventKind, Stored, WatchEvent
from topology.keys.attachments import MAX_VALUE_BYTES, encode_record

SECRET_BYTES = 32
"""As long as the output of the hash that it is a key of (RFC 2104, section 3)."""
_FIELD = "secret"
_ROUTERS = f"{PREFIX}{Kind.ROUTER.value}/"


class RouterSecrets:
    """What etcd says of all incarnations, and the secret of this one."""

    __slots__ = ("_known", "own")

    def __init__(self) -> None:
        """Draw a secret; it ends with the incarnation."""
        self.own = secrets.token_bytes(SECRET_BYTES)
        self._known: dict[int, bytes | None] = {}

    def encode(self, record: RouterRecord) -> bytes:
        """The value of this router's own key."""
        return json.dumps(json.loads(encode_record(record)) | {_FIELD: self.own.hex()}, separators=(",", ":")).encode()

    def knows(self, rid: int) -> bool:
        """Whether this incarnation has a key, as far as the watch has reported."""
        return rid in self._known

    def of(self, rid: int) -> bytes | None:
        """The secret of a known incarnation; None: its release has none."""
        return self._known[rid]

    def load(self, stored: Iterable[Stored]) -> None:
        """Take a snapshot in the place of what was known."""
        self._known.clear()
        for found in stored:
            self._note(found.key, found.value)

    def apply(self, events: Iterable[WatchEvent]) -> None:
        """Take what the watch reports."""
        for event in events:
            self._note(event.key, None if event.kind is EventKind.DELETE else event.value)

    def _note(self, key: str, value: bytes | None) -> None:
        if not key.startswith(_ROUTERS):
            return
        try:
            rid = rid_of_key(key.removeprefix(_ROUTERS))
        except ValueError:
            return  # not ours: `readable_changes` logs it
        if value is None:
            self._known.pop(rid, None)
            return
        try:
            self._known[rid] = _secret_in(value)
        except (ValueError, TypeError, AttributeError, RecursionError):
            self._known.pop(rid, None)  # a value that makes no sense vouches for nobody


def _secret_in(value: bytes) -> bytes | None:
    if len(value) > MAX_VALUE_BYTES:
        raise ValueError("too long")
    text = json.loads(value).get(_FIELD)
    if text is None:
        return None
    secret = bytes.fromhex(text)
    if len(secret) != SECRET_BYTES:
        raise ValueError(f"a secret has {SECRET_BYTES} bytes")
    return secret
