"""Settings of tokens that routers and bridge nodes have in common."""

from __future__ import annotations

from oncewire.settings.parsers import Parser, text

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Of signatures of tokens: all have a public key. With others whoever can check a token could make one."""

keys_url: Parser = text(r"(?:https://|http://(?:127\.0\.0\.1|localhost)[:/])[^\s@]+|")
"""Where public keys are: nobody on the way may change them, and the address holds no login."""
KEYS_URL_ALLOWED = "URL https://host/path, or empty; http:// to this machine only"
ALGORITHMS_ALLOWED = f"a list of {', '.join(ALGORITHMS)}; in a text name,name"
DEFAULT_ALGORITHMS = ("RS256", "PS256", "ES256", "EdDSA")
DEFAULT_LEEWAY_S = 10.0
DEFAULT_REFETCH_S = 30.0


def algorithms(value: object) -> tuple[str, ...]:
    """A list of some of `ALGORITHMS`; in a text they are separated by commas."""
    items = [part.strip() for part in value.split(",")] if isinstance(value, str) else value
    if not isinstance(items, list | tuple) or not items or not set(items) <= set(ALGORITHMS):
        raise ValueError
    return tuple(dict.fromkeys(items))
