"""Logins of operators at a node's HTTP side: users of a file, by HTTP Basic."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from aiohttp import BasicAuth

from bridges.node.door import Doors
from oncewire.cli import users_file
from oncewire.cli.errors import CliError
from oncewire.cli.users import Users
from oncewire.transport.file_watch import FileWatch
from oncewire.wire import Deferred

MAX_FAILURES = 5
"""Wrong passwords from one address within `FAILURE_WINDOW_S`, as at a router."""
FAILURE_WINDOW_S = 60.0
MAX_ADDRESSES = 1_000
"""Addresses whose failures are counted; the oldest is forgotten first."""
MAX_WAITING = 32
"""Logins that wait for each other: each wrong one takes 0.2 s of a thread."""


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
        self._failures: dict[str, list[float]] = {}
        self._one_at_a_time = asyncio.Lock()
        self._waiting = 0

    def _read(self) -> Users:
        return Users({}, users_file.read(str(self._path)))

    async def check(self, given: str | None, peer: str) -> None:
        """Take the `Authorization` of a request from this address.

        Raises:
            LoginRefused: it has none, or a wrong one.
        """
        if given is None:
            raise LoginRefused(401, "this needs a login", "log in with HTTP Basic as a user of the setting users_file")
        if self._waiting >= MAX_WAITING:
            raise LoginRefused(429, "too many logins at once", "try again")
        self._waiting += 1
        try:
            async with self._one_at_a_time:  # so that failures count before the next attempt
                await self._check(given, peer)
        finally:
            self._waiting -= 1

    async def _check(self, given: str, peer: str) -> None:
        now = time.monotonic()
        recent = [at for at in self._failures.get(peer, ()) if now - at < FAILURE_WINDOW_S]
        if len(recent) >= MAX_FAILURES:
            left = FAILURE_WINDOW_S - (now - recent[0])
            raise LoginRefused(429, "too many failed logins from your address", f"try again in {left:.0f} s")
        if await self._is_right(given):
            self._failures.pop(peer, None)
            return
        self._failures.pop(peer, None)
        self._failures[peer] = [*recent, now]
        while len(self._failures) > MAX_ADDRESSES:
            self._failures.pop(next(iter(self._failures)))
        self._doors.login_failed("http", peer, "a wrong user or password")
        raise LoginRefused(401, "login failed", "check user and password: see the setting users_file")

    async def _is_right(self, given: str) -> bool:
        if self._watch.differ():
            self._watch.note()
            try:
                self._users = self._read()
            except CliError as error:  # those read before stay
                self._doors.connection_refused("http", "changed users", str(error))
        try:
            login = BasicAuth.decode(given, "utf-8")
        except ValueError:
            return False
        checked = self._users.check(login.login, login.password)
        if isinstance(checked, Deferred):
            assert callable(checked.work)
            return checked.then(await asyncio.to_thread(checked.work))
        return checked
