"""What node and client say to each other: frames of a JSON header and a body, after both have proved the secret.

    frame   = "OWN1" header-size(4) body-size(4) header body          sizes big endian
    hello   : server {"node", "nonce"}   client {"nonce", "proof"}   server {"ok", "proof"}
    request : {"op": ..., ...} and a body; answers: {"ok": true, ...} and a body, several while "more" is true,
              or {"ok": false, "code", "what", "why", "fix"}

The proof is an HMAC over both nonces and the prover's side, so neither end can be played back or reflected. What
follows is neither encrypted nor signed, unless TLS is around it (`listen.tls`, tls://): use it across machines.
"""

from __future__ import annotations

import hmac
import json
import struct
from collections.abc import Mapping
from typing import Any

from bridges.node.errors import BadRequest, NodeError, NotAuthenticated, TooLarge, error_of

MAGIC = b"OWN1"
HEAD = struct.Struct(">4sII")
TLS_HANDSHAKE = b"\x16\x03"
"""How a client of TLS begins (RFC 8446, 5.1)."""
MAX_HEADER_BYTES = 4 << 20
"""The commit of a batch names each part: some 60 bytes for each of 50,000 tasks."""
MAX_BODY_BYTES = 64 << 20
"""Rows in one body; larger parts and ranges are several bodies."""
MAX_HELLO_BYTES = 4096
"""Of a header before the other end has proved anything."""
NONCE_BYTES = 32
MIN_SECRET_BYTES = 16
"""A shorter secret could be guessed from one exchange that was overheard."""


def encode_frame(header: Mapping[str, object], body: bytes = b"") -> bytes:
    """A frame.

    Raises:
        TooLarge: header or body are over the limit.
    """
    encoded = json.dumps(header, separators=(",", ":")).encode()
    check_sizes(len(encoded), len(body))
    return HEAD.pack(MAGIC, len(encoded), len(body)) + encoded + body


def decode_head(head: bytes, *, max_header: int = MAX_HEADER_BYTES) -> tuple[int, int]:
    """Sizes of header and body from the first bytes of a frame.

    Raises:
        BadRequest: this is no frame.
        TooLarge: header or body are over the limit.
    """
    magic, header_size, body_size = HEAD.unpack(head)
    if magic.startswith(TLS_HANDSHAKE):
        raise BadRequest(
            "the bytes that came make no sense",
            "they begin a TLS handshake, and this door is without TLS",
            "write tcp:// in the place of tls://, or set listen.tls at the node",
        )
    if magic != MAGIC:
        raise BadRequest(
            "the bytes that came make no sense",
            f"they begin with {magic!r}",
            "check that the address is a bridge node's, not its HTTP port or a router",
        )
    check_sizes(header_size, body_size, max_header=max_header)
    return header_size, body_size


def check_sizes(header_size: int, body_size: int, *, max_header: int = MAX_HEADER_BYTES) -> None:
    """Refuse what is over the limits.

    Raises:
        TooLarge: it is.
    """
    for what, size, limit in (("header", header_size, max_header), ("body", body_size, MAX_BODY_BYTES)):
        if size > limit:
            raise TooLarge(f"a {what} of {size} bytes cannot be sent", f"{limit} are allowed", "send less at once")


def decode_header(encoded: bytes) -> dict[str, Any]:
    """The header of a frame.

    Raises:
        BadRequest: it is no JSON object.
    """
    try:
        header = json.loads(encoded)
    except (ValueError, RecursionError) as error:
        raise BadRequest(
            "a header cannot be read", f"it is no JSON: {error}", "use the client that belongs to this node"
        ) from None
    if not isinstance(header, dict):
        raise BadRequest("a header cannot be read", "it is no JSON object", "use the client that belongs to this node")
    return header


def proof(secret: bytes, side: str, server_nonce: str, client_nonce: str) -> str:
    """What `side` (`client` or `server`) shows to prove that it has the secret."""
    text = f"{side}|{server_nonce}|{client_nonce}".encode()
    return hmac.new(secret, text, "sha256").hexdigest()


def check_proof(secret: bytes, side: str, server_nonce: str, client_nonce: str, shown: object) -> None:
    """Compare what the other side showed.

    Raises:
        NotAuthenticated: it does not have the secret.
    """
    expected = proof(secret, side, server_nonce, client_nonce)
    if not isinstance(shown, str) or not hmac.compare_digest(expected, shown):
        other = "client" if side == "client" else "node"
        raise NotAuthenticated(
            f"the {other} is not who it should be",
            "it has another secret, or none",
            "give node and client the same secret (option bridgeSecretFile; `secret_file` of the node)",
        )


def error_header(error: NodeError) -> dict[str, object]:
    """An error as an answer."""
    return {"ok": False, "code": error.code, "what": error.what, "why": error.why, "fix": error.fix}


def raise_error(header: Mapping[str, Any]) -> None:
    """Raise the error that an answer holds, if it holds one."""
    if header.get("ok") is not True:
        texts = [str(header.get(key, "")) for key in ("code", "what", "why", "fix")]
        raise error_of(*texts)
