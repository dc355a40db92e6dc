"""Checks of passwords, which tell nobody by their time who there is."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable


def password_check(users: dict[str, str]) -> Callable[[str, str], bool]:
    """A check that takes as long for an unknown user as for a wrong password."""

    def verify(user: str, password: str) -> bool:
        known = users.get(user)
        expected = hashlib.sha256((known or "").encode()).digest()
        given = hashlib.sha256(password.encode()).digest()
        return hmac.compare_digest(expected, given) and known is not None

    return verify
