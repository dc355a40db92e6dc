"""Whether what etcd holds goes on from what this router knows of it (K-9). Decides only; nothing is asked here."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from topology.etcd.store import EMPTIED_ADVICE, RESTORED_ADVICE, WatchEvent

KEPT_LIVES = 16
"""Nonces that are remembered; an operator draws a new one once in years."""


class MalformedMemory(Exception):
    """What was kept of a history cannot be read. The text says why."""


@dataclass(frozen=True, slots=True)
class Seen:
    """How far etcd had come under one nonce."""

    revision: int
    """The highest that was seen."""
    last_revision: int = 0
    """Of the last event that was seen; 0: none was."""
    last_digest: str = ""
    """Of that event. It stays true for ever, unless history is set back."""


class SeenHistory:
    """What a router remembers of etcd, over all its incarnations, and over restarts where it is kept in a file."""

    def __init__(self) -> None:
        """Nothing was seen."""
        self.lives: dict[bytes, Seen] = {}
        """By nonce; the last one is that of today."""
        self.changes = 0
        """Grows whenever there is something new to keep."""

    def note(self, nonce: bytes, revision: int, last: WatchEvent | None) -> None:
        """The view has come to this revision; `last` is the latest event of it that is known."""
        before = self.lives.pop(nonce, Seen(0))
        seen = Seen(max(revision, before.revision), before.last_revision, before.last_digest)
        if last is not None:
            seen = Seen(seen.revision, last.mod_revision, digest(last))
        self.lives[nonce] = seen
        if len(self.lives) > KEPT_LIVES:
            del self.lives[next(iter(self.lives))]
        self.changes += 1

    def last_event(self, nonce: bytes) -> Seen | None:
        """What must still stand at its revision; None: nothing is known of this nonce."""
        seen = self.lives.get(nonce)
        return seen if seen is not None and seen.last_revision else None

    def why_lost(self, nonce: bytes, revision: int) -> str:
        """Why a store with this nonce at this revision cannot go on from what was seen; empty: it may."""
        seen = self.lives.get(nonce)
        if seen is None:
            return ""
        if nonce != next(reversed(self.lives)):
            return f"etcd has the cluster nonce {nonce.hex()}, which was replaced: {RESTORED_ADVICE}"
        if revision < seen.revision:
            return f"etcd is at revision {revision} after it was at {seen.revision}: {RESTORED_ADVICE}"
        return ""

    def why_strange(self, nonce: bytes | None, is_confirmed: bool) -> str:
        """Why another life than the last one may not be joined; empty: it may.

        Args:
            nonce: of what etcd holds; None: it holds nothing.
            is_confirmed: an operator drew it.
        """
        if not self.lives or nonce in self.lives:
            return ""
        if nonce is None:
            return f"etcd holds nothing of the network that this router was a member of: {EMPTIED_ADVICE}"
        if not is_confirmed:
            return f"etcd holds another network than this router was a member of: {EMPTIED_ADVICE}"
        return ""

    def as_text(self) -> str:
        """All of it, for a file."""
        lives = [
            {"nonce": nonce.hex(), "revision": seen.revision, "last": seen.last_revision, "digest": seen.last_digest}
            for nonce, seen in self.lives.items()
        ]
        return json.dumps({"lives": lives})

    def load(self, text: str) -> None:
        """What a file kept.

        Raises:
            MalformedMemory: it makes no sense.
        """
        try:
            found: Mapping[str, Any] = json.loads(text)
            self.lives = {
                bytes.fromhex(life["nonce"]): Seen(int(life["revision"]), int(life["last"]), str(life["digest"]))
                for life in found["lives"]
            }
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise MalformedMemory(f"{type(error).__name__}: {error}") from None


def digest(event: WatchEvent) -> str:
    """Names an event without its value, which may hold a secret (K-1b)."""
    known = hashlib.sha256()
    for part in (event.kind.value.encode(), event.key.encode(), event.value):
        known.update(b"%d:" % len(part) + part)
    known.update(b"%d:%d" % (event.create_revision, event.mod_revision))
    return known.hexdigest()


def why_restored(lead: int | None, lead_now: int | None) -> str:
    """Why etcd's data came out of a snapshot; empty: nothing says so.

    Each revision takes at least one entry of etcd's log, so the log's index gains on the revision for ever. A snapshot
    keeps the revision and begins a new log.

    Args:
        lead: of the log's index over the revision, when the nonce was drawn; None: not known.
        lead_now: the same of today.
    """
    if lead is None or lead_now is None or lead_now >= lead:
        return ""
    return f"etcd's log is {lead - lead_now} entries shorter than its revisions ask for: {RESTORED_ADVICE}"
