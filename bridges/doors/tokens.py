"""Settings for JSON Web Tokens, which operators may log in with over HTTP; a router has the same ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from oncewire.settings.parsers import number, text
from oncewire.settings.schema import Setting
from oncewire.settings.tokens import (
    ALGORITHMS_ALLOWED,
    DEFAULT_ALGORITHMS,
    DEFAULT_LEEWAY_S,
    DEFAULT_REFETCH_S,
    KEYS_URL_ALLOWED,
    algorithms,
    keys_url,
)


def _users(value: object) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) and item for item in value):
        raise ValueError
    return tuple(value)


OF_TOKENS = (
    Setting(
        "jwt.jwks_url",
        keys_url,
        "",
        KEYS_URL_ALLOWED,
        "Public keys of whoever issues the tokens that operators log in with over HTTP; needs the extra oncewire[jwt].",
    ),
    Setting(
        "jwt.jwks_file",
        text(),
        "",
        "path of a JSON Web Key Set, or empty",
        "The same keys in a file, in the place of jwt.jwks_url. It is read again when it changes.",
    ),
    Setting("jwt.issuer", text(), "", "text; needed for tokens", "A token's `iss` must be this text."),
    Setting("jwt.audience", text(), "", "text; needed for tokens", "A token's `aud` must be this text, or contain it."),
    Setting("jwt.user_claim", text(r".+"), "sub", "name of a claim", "The claim of a token that names the user."),
    Setting(
        "jwt.users",
        _users,
        (),
        "a list of users; empty = all",
        "Users whose tokens are taken. Empty = whoever has a token for jwt.audience.",
    ),
    Setting(
        "jwt.algorithms",
        algorithms,
        DEFAULT_ALGORITHMS,
        ALGORITHMS_ALLOWED,
        "Algorithms of signatures that are accepted.",
    ),
    Setting(
        "jwt.leeway_s",
        number(0, 300),
        DEFAULT_LEEWAY_S,
        "0 to 300 seconds",
        "Difference of clocks: a token is accepted so long before its beginning and after its end.",
    ),
    Setting(
        "jwt.refetch_s",
        number(1, 3600),
        DEFAULT_REFETCH_S,
        "1 to 3600 seconds",
        "Shortest time between two requests to jwt.jwks_url. A token with an unknown key causes one.",
    ),
)


@dataclass(frozen=True, slots=True)
class DoorTokens:
    """Whose tokens are taken; see `oncewire.cli.json_web_tokens.TokenSettings`.

    Attributes:
        users: who may log in; empty = whoever has a token.
    """

    jwks_url: str
    jwks_file: str
    jwt_issuer: str
    jwt_audience: str
    jwt_user_claim: str
    jwt_algorithms: tuple[str, ...]
    jwt_leeway_s: float
    jwt_refetch_s: float
    users: tuple[str, ...]


def tokens_of(values: Mapping[str, Any], refuse: Callable[[str, str, str], Exception]) -> DoorTokens | None:
    """The tokens that these values ask for; None = tokens are not taken.

    Args:
        values: by the settings' keys.
        refuse: makes the error of a setting, of why and what to do.

    Raises:
        CliError: they do not go together; `refuse` makes it.
    """
    if not values["jwt.jwks_url"] and not values["jwt.jwks_file"]:
        return None
    if values["jwt.jwks_url"] and values["jwt.jwks_file"]:
        raise refuse("jwt.jwks_file", "jwt.jwks_url is set, too", "keep one of them")
    for key in ("jwt.issuer", "jwt.audience"):
        if not values[key]:
            raise refuse(
                key, "tokens of all others would be accepted, too", "set it to what your issuer writes into tokens"
            )
    return DoorTokens(
        jwks_url=values["jwt.jwks_url"],
        jwks_file=values["jwt.jwks_file"],
        jwt_issuer=values["jwt.issuer"],
        jwt_audience=values["jwt.audience"],
        jwt_user_claim=values["jwt.user_claim"],
        jwt_algorithms=values["jwt.algorithms"],
        jwt_leeway_s=values["jwt.leeway_s"],
        jwt_refetch_s=values["jwt.refetch_s"],
        users=values["jwt.users"],
    )
