"""Logins of operators at a node's HTTP side: users of a file, by HTTP Basic."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aiohttp import BasicAuth

from bridges.node.door import Doors
from oncewire.cli import users_file
from oncewire.cli.errors import CliError
from oncewire.cli.users import Users
from oncewire.transport.file_watch import FileWatch
from oncewire.transport.guarded_logins import GuardedLogins, TooManyLogins
from oncewire.wire import Deferred


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
    """The users of a file; one that was replaced is read before the next login."""

    def __init__(self, path: Path, doors: Doors) -> None:
        """Read the file.

        Raises:
            CliError: it cannot be used.
        """
        self._path = path
        self._doors = doors
        self._watch = FileWatch([path])
        self._users = self._read()
        self._logins = GuardedLogins()

    def _read(self) -> Users:
        return Users({}, users_file.read(str(self._path)))

    async def check(self, given: str | None, peer: str) -> None:
        """Take the `Authorization` of a request from this address.

        Raises:
            LoginRefused: it has none, or a wrong one.
        """
        if given is None:
            raise LoginRefused(401, "this needs a login", "log in with HTTP Basic as a user of the setting users_file")
        try:
            user = await self._logins.check(peer, lambda _: self._user_of(given))
        except TooManyLogins as many:
            raise LoginRefused(429, str(many), many.fix) from None
        if user is None:
            self._doors.login_failed("http", peer, "a wrong user or password")
            raise LoginRefused(401, "login failed", "check user and password: see the setting users_file")

    async def _user_of(self, given: str) -> str | None:
        """Who logs in; None: the user or the password is wrong."""
        if self._watch.differ():
            self._watch.note()
            try:
                self._users = self._read()
            except CliError as error:  # those read before stay
                self._doors.connection_refused("http", "changed users", str(error))
        try:
            login = BasicAuth.decode(given, "utf-8")
        except ValueError:
            return None
        checked = self._users.check(login.login, login.password)
        if isinstance(checked, Deferred):
            assert callable(checked.work)
            checked = checked.then(await asyncio.to_thread(checked.work))
        return login.login if checked else None
