"""Logins of operators over HTTP: users of a file by HTTP Basic, and JSON Web Tokens by HTTP Bearer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import BasicAuth

from bridges.doors.gates import HTTP, Doors
from bridges.doors.tokens import DoorTokens
from oncewire.cli import users_file
from oncewire.cli.errors import CliError
from oncewire.cli.users import Users
from oncewire.transport.file_watch import FileWatch
from oncewire.transport.guarded_logins import GuardedLogins, TooManyLogins
from oncewire.wire import Deferred, LocalProtocolError
from oncewire.wire.saslprep import verified_name

if TYPE_CHECKING:
    from oncewire.cli.json_web_tokens import TokenChecker

BASIC, BEARER = 'Basic realm="oncewire", charset="UTF-8"', 'Bearer realm="oncewire"'
_CHANGED_FILE = "a changed file of the settings"
"""In the place of an address, in the log."""


class LoginRefused(Exception):
    """A request without a login that counts.

    Attributes:
        status: HTTP's number for it.
        fix: what the caller can do.
    """

    def __init__(self, status: int, error: str, fix: str) -> None:
        super().__init__(error)
        self.status = status
        self.fix = fix


class Logins:
    """Who may log in. A file of users or keys that was replaced is read before the next login."""

    def __init__(self, doors: Doors, users: Path | None = None, tokens: DoorTokens | None = None) -> None:
        """Read the files: users, tokens, or both.

        Raises:
            CliError: a file cannot be used, or the package for tokens is missing.
        """
        self._doors = doors
        self._users = None if users is None else FileUsers(doors, users)
        self._tokens = None if tokens is None else Tokens(doors, tokens)
        self._logins = GuardedLogins()
        self.challenges = tuple(
            challenge for challenge, is_taken in ((BASIC, users), (BEARER, tokens)) if is_taken is not None
        )
        """What may be logged in with, as HTTP writes it."""

    async def check(self, given: str | None, peer: str) -> str:
        """Take the `Authorization` of a request from this address; returns who logs in.

        Raises:
            LoginRefused: it has none, or a wrong one.
        """
        if given is None:
            raise LoginRefused(401, "this needs a login", f"log in with {self._what_is_taken()}")
        try:
            user = await self._logins.check(peer, lambda _: self._user_of(given, peer))
        except TooManyLogins as many:
            raise LoginRefused(429, str(many), many.fix) from None
        if user is None:
            raise LoginRefused(401, "login failed", f"log in with {self._what_is_taken()}; see the log")
        return user

    async def _user_of(self, given: str, peer: str) -> str | None:
        """Who logs in; None: nobody who may, which is logged and counted."""
        scheme, _, token = given.partition(" ")
        if scheme.lower() == "bearer" and self._tokens is not None:
            user, why = await self._tokens.user_of(token.strip(), peer)
        elif self._users is not None:
            user, why = await self._users.user_of(given), "a wrong user or password"
        else:
            user, why = None, "a login that is no token"
        if user is None:
            self._doors.login_failed(HTTP, peer, why)
        return user

    def _what_is_taken(self) -> str:
        ways = []
        if self._users is not None:
            ways.append("HTTP Basic as a user of the setting users_file")
        if self._tokens is not None:
            ways.append("a token of jwt.issuer as HTTP Bearer")
        return ", or ".join(ways)


class FileUsers:
    """The users of a file."""

    def __init__(self, doors: Doors, path: Path) -> None:
        """Read it.

        Raises:
            CliError: it cannot be used.
        """
        self._doors = doors
        self._path = path
        self._watch = FileWatch([path])
        self._users = self._read()

    def _read(self) -> Users:
        return Users({}, users_file.read(str(self._path)))

    async def user_of(self, given: str) -> str | None:
        """Who logs in by HTTP Basic; None: the user or the password is wrong."""
        if self._watch.differ():
            self._watch.note()
            try:
                self._users = self._read()
            except CliError as error:  # those read before stay
                self._doors.connection_refused(HTTP, _CHANGED_FILE, str(error))
        try:
            login = BasicAuth.decode(given, "utf-8")
        except ValueError:
            return None
        checked = self._users.check(login.login, login.password)
        if isinstance(checked, Deferred):
            assert callable(checked.work)
            checked = checked.then(await asyncio.to_thread(checked.work))
        return login.login if checked else None


class Tokens:
    """The tokens of one issuer."""

    def __init__(self, doors: Doors, settings: DoorTokens) -> None:
        """Read the file of keys, if there is one.

        Raises:
            CliError: it cannot be used, or the package for tokens is missing.
        """
        self._doors = doors
        self._allowed = settings.users
        self._watch = FileWatch([Path(settings.jwks_file)] if settings.jwks_file else [])
        self._checker = _checker(settings)

    async def user_of(self, token: str, peer: str) -> tuple[str | None, str]:
        """Who logs in, and "", or None and the reason.

        Raises:
            LoginRefused: it cannot be known just now.
        """
        from oncewire.cli.json_web_tokens import TokenRefused, TokenUndecided

        if self._watch.differ():
            self._watch.note()
            try:
                self._checker.load()
            except CliError as error:  # the keys read before stay
                self._doors.connection_refused(HTTP, _CHANGED_FILE, str(error))
        try:
            user = verified_name((await self._checker.check(token)).user, "user name")
        except (TokenRefused, LocalProtocolError) as refused:
            return None, str(refused)
        except TokenUndecided as undecided:
            self._doors.connection_refused(HTTP, peer, str(undecided))
            raise LoginRefused(503, "logins cannot be checked just now", "try again; see the log") from None
        if self._allowed and user not in self._allowed:
            return None, f"a token of user {user!r}, who is not in jwt.users"
        return user, ""


def _checker(settings: DoorTokens) -> TokenChecker:
    try:
        from oncewire.cli.json_web_tokens import TokenChecker
    except ImportError as error:
        raise CliError(
            "the settings jwt.* cannot be used", str(error), "install the extra: pip install 'oncewire[jwt]'"
        ) from None
    return TokenChecker(settings)
