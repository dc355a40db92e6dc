"""Checks of passwords, which tell nobody by their time who there is, and do not let anybody guess on and on."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable

MAX_GUESSES = 5
"""Different wrong passwords for one user from one address within `GUESS_WINDOW_S`; see `Logins`."""
GUESS_WINDOW_S = 60.0
MAX_GUESSERS = 1_000
"""Users at addresses whose wrong passwords are remembered; the oldest is forgotten first."""


def password_check(users: dict[str, str]) -> Callable[[str, str], bool]:
    """A check that takes as long for an unknown user as for a wrong password."""

    def verify(user: str, password: str) -> bool:
        known = users.get(user)
        expected = hashlib.sha256((known or "").encode()).digest()
        given = hashlib.sha256(password.encode()).digest()
        return hmac.compare_digest(expected, given) and known is not None

    return verify


class Logins:
    """Logins of AMQP clients, which connect again and again by themselves.

    Only different passwords count, and only for one user at one address: a client whose password is out of date says
    the same one for ever, and must not lock its neighbours out.
    """

    def __init__(self, users: dict[str, str], guessed: Callable[[str, str, int], None]) -> None:
        """Check logins of `users`; `guessed` is told user, address and number of each wrong password that counts."""
        self._guessed = guessed
        self._wrong: dict[tuple[str, str], dict[bytes, float]] = {}
        self.use(users)

    def use(self, users: dict[str, str]) -> None:
        """Check by these passwords from now on."""
        self._known = frozenset(users)
        self._verify = password_check(users)

    def is_guessed(self, user: str, host: str, now: float) -> bool:
        """Whether somebody at `host` guesses the password of `user`, who must get no answer there for a while.

        No answer: told that its password is wrong, a client that has the right one would give up for good.
        """
        return len(self._recent(user, host, now)) >= MAX_GUESSES

    def check(self, user: str, password: str, host: str, now: float) -> bool:
        """Whether somebody at `host` may log in; to be asked only while nobody guesses."""
        is_right = self._verify(user, password)
        if is_right or user not in self._known:  # names that somebody makes up must not fill the table
            return is_right
        wrong = self._recent(user, host, now)
        guess = hashlib.sha256(password.encode()).digest()
        if guess not in wrong:
            wrong[guess] = now
            self._guessed(user, host, len(wrong))
        self._wrong.pop((user, host), None)
        self._wrong[user, host] = wrong
        while len(self._wrong) > MAX_GUESSERS:
            self._wrong.pop(next(iter(self._wrong)))
        return False

    def _recent(self, user: str, host: str, now: float) -> dict[bytes, float]:
        guesses = self._wrong.get((user, host), {})
        return {guess: at for guess, at in guesses.items() if now - at < GUESS_WINDOW_S}
