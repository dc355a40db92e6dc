"""Users and what their logins are checked by, be they a table of passwords or a file of keys.

A check costs the event loop some HMACs. PBKDF2 is a `Deferred`, for the thread of `oncewire.transport.login_work`.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
from collections.abc import Mapping

from oncewire.cli.users_file import UserKeys
from oncewire.transport import login_work
from oncewire.wire import Deferred, LocalProtocolError
from oncewire.wire.saslprep import saslprep
from oncewire.wire.scram import SALT_BYTES, SCRAM_HASHES, ScramHash, ScramKeys, derive_keys, keys_of

TABLE_ITERATIONS = 20_000
"""PBKDF2 for users of the table, whose keys are made anew at each start: 20 ms for each user."""
_SECRET = secrets.token_bytes(32)
"""Of this process: what it hashes fits no other one."""


class Users:
    """Who may log in, from one reading of the settings."""

    def __init__(self, table: Mapping[str, str], keys: Mapping[str, UserKeys] | None = None) -> None:
        """Know the users of a table, or those of a file.

        Args:
            table: passwords by name; their keys are computed in the thread for logins.
            keys: of the users of a file; None = there is no file.

        Raises:
            LocalProtocolError: a name or password cannot be used with SCRAM.
        """
        self._passwords = {saslprep(name, "user name"): saslprep(word, "password") for name, word in table.items()}
        self._keys = dict(keys or {})
        self.is_set = bool(table) or keys is not None
        """Whether there are users to log in, be it an empty file of them."""
        self._table: dict[str, dict[str, ScramKeys]] = {}
        self._is_ready = threading.Event()
        self._proved: dict[str, bytes] = {}
        self.names = frozenset(self._passwords) | frozenset(self._keys)
        if self._passwords and not login_work.start(self._derive_table, lambda _result: None):
            self._derive_table()
        elif not self._passwords:
            self._is_ready.set()

    @property
    def mechanisms(self) -> tuple[ScramHash, ...]:
        """Those for which every user has keys; none where no users are set."""
        if self._passwords or not self.is_set:
            return SCRAM_HASHES if self.is_set else ()
        keys = self._keys.values()
        return tuple(scram for scram in SCRAM_HASHES if all(scram.mechanism in each for each in keys))

    def find(self, scram: ScramHash, user: str) -> ScramKeys | Deferred[ScramKeys]:
        """The keys of a user; for an unknown one such as fit no password, with a salt that stays the same."""
        if self._is_ready.is_set():
            return self._find(scram, user)
        return Deferred(self._wait, lambda _result: self._find(scram, user))

    def check(self, user: str, password: str) -> bool | Deferred[bool]:
        """Whether this is the password of the user; takes as long for an unknown one."""
        try:
            user, password = saslprep(user, "user name"), saslprep(password, "password")
        except LocalProtocolError:
            return False
        given = token(user, password)
        if self._passwords or not self.is_set:
            expected = token(user, self._passwords.get(user, ""))
            return hmac.compare_digest(given, expected) and user in self._passwords
        proved = self._proved.get(user)
        if proved is not None and hmac.compare_digest(given, proved):
            return True
        scram = SCRAM_HASHES[0]
        keys = self._find(scram, user)

        def then(salted: bytes) -> bool:
            found = keys_of(scram, salted, keys.salt, keys.iterations)
            is_right = hmac.compare_digest(found.stored_key, keys.stored_key) and user in self._keys
            if is_right:
                self._proved[user] = given
            return is_right

        return Deferred(lambda: scram.salted(password.encode(), keys.salt, keys.iterations), then)

    def _find(self, scram: ScramHash, user: str) -> ScramKeys:
        found = (self._table if self._passwords else self._keys).get(user)
        return self._believable(scram, user) if found is None else found[scram.mechanism]

    def _believable(self, scram: ScramHash, user: str) -> ScramKeys:
        """Salt and iterations as some user has them, always the same for the same name."""
        name = f"{scram.mechanism} {user}".encode()
        chance = hmac.digest(_SECRET, name, "sha512")
        models = list(self._keys.values())
        model = models[int.from_bytes(chance[:8]) % len(models)][scram.mechanism] if models else None
        salt = chance[-SALT_BYTES if model is None else -len(model.salt) :]
        iterations = TABLE_ITERATIONS if model is None else model.iterations
        stored = hmac.digest(_SECRET, b"no key " + name, scram.algorithm)
        return ScramKeys(salt, iterations, stored, stored)

    def _derive_table(self) -> bytes:
        """In the thread: the keys of the table's users."""
        self._table = {
            user: {
                scram.mechanism: derive_keys(scram, password, self._believable(scram, user).salt, TABLE_ITERATIONS)
                for scram in SCRAM_HASHES
            }
            for user, password in self._passwords.items()
        }
        self._is_ready.set()
        return b""

    def _wait(self) -> bytes:
        self._is_ready.wait()  # the thread took up the table before this
        return b""


def token(user: str, password: str) -> bytes:
    """What a password is remembered as in this process: nobody else can check a guess by it."""
    return hmac.digest(_SECRET, hashlib.sha256(user.encode()).digest() + password.encode("utf-8", "replace"), "sha256")
