"""Logins of one listener, which do not let anybody guess on and on."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from typing import Protocol

from oncewire.cli.users import Users, token
from oncewire.wire import Deferred, ServerMechanism
from oncewire.wire.scram import ScramHash, ScramKeys, ScramServer

MAX_GUESSES = 5
"""Different wrong passwords for one user from one address within `GUESS_WINDOW_S`; see `Logins`."""
PROOFS_PER_GUESS = 4
"""Wrong proofs of SCRAM that count as one password: nothing shows whether they are of the same one, and a client with
an old password that connects again every 5 s must not lock its neighbours out."""
GUESS_WINDOW_S = 60.0
MAX_GUESSERS = 1_000
"""Users at addresses whose wrong passwords are remembered; the oldest is forgotten first."""
NONCE_BYTES = 18


def nonce() -> str:
    """A nonce for a dialogue of SCRAM."""
    return secrets.token_urlsafe(NONCE_BYTES)


class Caller(Protocol):
    """The connection that somebody logs in by."""

    peer_host: str

    def abort(self) -> None:
        """Drop it without an answer."""


class Guesses:
    """Wrong passwords of the last minute, by user and address.

    Of PLAIN only different passwords count, and only for one user at one address: a client whose password is out of
    date says the same one for ever, and must not lock its neighbours out.
    """

    def __init__(self, guessed: Callable[[str, str, int], None]) -> None:
        """There are none; `guessed` is called with user, address and number of each wrong password that counts."""
        self._guessed = guessed
        self._wrong: dict[tuple[str, str], dict[bytes, tuple[float, int]]] = {}

    def is_guessed(self, user: str, host: str, now: float) -> bool:
        """Whether somebody at `host` guesses the password of `user`, who must get no answer there for a while.

        No answer: a client with the right password that is refused would stop for good.
        """
        weights = sum(weight for _, weight in self.recent(user, host, now).values())
        return weights >= MAX_GUESSES * PROOFS_PER_GUESS

    def note(self, user: str, guess: bytes, weight: int, host: str, now: float) -> None:
        """A wrong password, or proof of one."""
        wrong = self.recent(user, host, now)
        if guess not in wrong:
            wrong[guess] = now, weight
            self._guessed(user, host, len(wrong))
        self._wrong.pop((user, host), None)
        self._wrong[user, host] = wrong
        while len(self._wrong) > MAX_GUESSERS:
            self._wrong.pop(next(iter(self._wrong)))

    def recent(self, user: str, host: str, now: float) -> dict[bytes, tuple[float, int]]:
        """When each counted wrong password came, and its weight."""
        guesses = self._wrong.get((user, host), {})
        return {guess: (at, weight) for guess, (at, weight) in guesses.items() if now - at < GUESS_WINDOW_S}


class Logins:
    """Logins of AMQP connections by passwords of users, which are made again and again by themselves."""

    def __init__(self, users: Users, guessed: Callable[[str, str, int], None]) -> None:
        """Check logins of `users`; see `Guesses`."""
        self.guesses = Guesses(guessed)
        """Gets each wrong password."""
        self.users = users
        """Logins are checked by these from now on."""

    def check(self, user: str, password: str, host: str, now: float) -> bool | Deferred[bool] | None:
        """Whether somebody at `host` may log in with this password; None = no answer: somebody guesses there."""
        if self.guesses.is_guessed(user, host, now):
            return None
        guess = token(user, password)
        if guess in self.guesses.recent(user, host, now):  # refused already
            return False
        return self.users.check(user, password)

    def judge(self, user: str, is_right: bool, guess: bytes, weight: int, host: str, now: float) -> bool | None:
        """The answer to a login that was checked; None = none, because somebody guesses there."""
        if self.guesses.is_guessed(user, host, now):  # it may have been begun before that
            return None
        is_right = is_right and user in self.users.names  # it may have been removed since the dialogue began
        if not is_right and user in self.users.names:  # names that somebody makes up must not fill the table
            self.guesses.note(user, guess, weight, host, now)
        return is_right

    # --- of one connection --------------------------------------------------------------------------------------------

    def verify_for(self, caller: Callable[[], Caller]) -> Callable[[str, str], bool | Deferred[bool]]:
        """What checks the passwords that a connection sends with PLAIN."""

        def answer(user: str, password: str, is_right: bool) -> bool:
            host = caller().peer_host
            return _reported(
                caller(), self.judge(user, is_right, token(user, password), PROOFS_PER_GUESS, host, _now())
            )

        def verify(user: str, password: str) -> bool | Deferred[bool]:
            checked = self.check(user, password, caller().peer_host, _now())
            if isinstance(checked, Deferred):
                then = checked.then
                return Deferred(checked.work, lambda result: answer(user, password, then(result)))
            return _reported(caller(), None) if checked is None else answer(user, password, checked)

        return verify

    def scram_for(self, caller: Callable[[], Caller]) -> dict[str, Callable[[], ServerMechanism]]:
        """The mechanisms of SCRAM for a connection, by name."""
        users = self.users

        def make(scram: ScramHash) -> ServerMechanism:
            def find(user: str) -> ScramKeys | Deferred[ScramKeys]:
                return users.find(scram, user)

            def decide(user: str, is_right: bool) -> bool:
                host = caller().peer_host
                return _reported(caller(), self.judge(user, is_right, secrets.token_bytes(16), 1, host, _now()))

            return ScramServer(scram, nonce(), find, decide)

        return {scram.mechanism: lambda scram=scram: make(scram) for scram in users.mechanisms}  # type: ignore[misc]


def _reported(caller: Caller, verdict: bool | None) -> bool:
    if verdict is None:
        caller.abort()
    return bool(verdict)


_now = time.monotonic
