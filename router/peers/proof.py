"""How a router proves to a neighbour that it is the incarnation it names (K-1b), by HMAC (RFC 2104) over challenges.

The secret itself never crosses the link.
"""

from __future__ import annotations

import hmac
import struct
from dataclasses import dataclass
from enum import Enum

from topology.keys.router_secrets import RouterSecrets

CHALLENGE_BYTES = 32
"""Nobody draws one twice."""
_LABEL = b"oncewire router proof 1\0"
_INCARNATIONS = struct.Struct("!QQ")


class Verdict(Enum):
    """What is known of a neighbour's proof."""

    PROVEN = "proven"
    NOT_KNOWN = "etcd does not know this incarnation"
    """Or this router's watch has not shown it yet: it is asked again with every change of the view."""
    WRONG = "this incarnation has another secret in etcd"


@dataclass(frozen=True, slots=True)
class Handshake:
    """What both sides of one connection said."""

    own: int
    """This router's incarnation."""
    own_challenge: bytes
    other: int
    """The incarnation that the neighbour names."""
    other_challenge: bytes
    """Empty: its release asks for no proof."""

    def prove(self, secrets: RouterSecrets) -> bytes:
        """What this router shows to the neighbour."""
        return _proof(secrets.own, self.own, self.other, self.own_challenge, self.other_challenge)

    def judge(self, secrets: RouterSecrets, shown: object) -> Verdict:
        """Whether the neighbour has shown that it knows the secret in the key of its incarnation.

        Args:
            secrets: as etcd has them.
            shown: what the neighbour sent as proof, None for nothing.
        """
        if not secrets.knows(self.other):
            return Verdict.NOT_KNOWN
        secret = secrets.of(self.other)
        if secret is None:
            return Verdict.PROVEN  # a release without secrets wrote that key
        expected = _proof(secret, self.other, self.own, self.other_challenge, self.own_challenge)
        if isinstance(shown, bytes) and hmac.compare_digest(shown, expected):
            return Verdict.PROVEN
        return Verdict.WRONG


def _proof(secret: bytes, prover: int, verifier: int, of_prover: bytes, of_verifier: bytes) -> bytes:
    # Who proves stands first: what one side shows is no proof of the other one.
    text = b"".join((_LABEL, _INCARNATIONS.pack(prover, verifier), _sized(of_prover), _sized(of_verifier)))
    return hmac.digest(secret, text, "sha256")


def _sized(challenge: bytes) -> bytes:
    return len(challenge).to_bytes(2) + challenge
