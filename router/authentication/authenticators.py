"""Who checks passwords and tokens in the place of a table of users: an authenticator, and limits around it.

The one that is built in checks JSON Web Tokens (`json_web_tokens`). A package adds others: an entry point of the group
`oncewire.authenticators`, whose name the setting `authenticator` has, is a function without arguments that returns an
`Authenticator`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Protocol

from oncewire.cli.errors import CliError
from oncewire.cli.users import token as remembered
from oncewire.transport.login_work import Asking
from oncewire.wire import (
    PLAIN,
    Deferred,
    Failure,
    LocalProtocolError,
    PlainServer,
    SaslCode,
    ServerMechanism,
    Step,
    Success,
)
from oncewire.wire.bearer import OAUTHBEARER, XOAUTH2, Ask, BearerServer
from oncewire.wire.saslprep import verified_name
from router.authentication.passwords import PROOFS_PER_GUESS, Caller, Guesses
from router.process.logs import EventLog, RouterEvent

GROUP = "oncewire.authenticators"
MECHANISMS = (OAUTHBEARER, XOAUTH2, PLAIN)
"""What an authenticator may check, in the order in which it is offered."""
CHECK_S = 5.0
"""Longest check; a connection may take 10 s to open."""
MAX_CHECKS = 64
"""Checks at once. Further logins get the reply to try again: clients that all come back do not overrun who is asked."""


@dataclass(frozen=True, slots=True)
class Login:
    """What somebody logs in with.

    Attributes:
        mechanism: PLAIN (also HTTP Basic), OAUTHBEARER (also HTTP Bearer) or XOAUTH2.
        user: whom it names; may be empty with a token.
        secret: the password or the token.
        host: the address it comes from.
    """

    mechanism: str
    user: str
    secret: str = field(repr=False)
    host: str


@dataclass(frozen=True, slots=True)
class Identity:
    """Who it is.

    Attributes:
        user: the name that the setting `roles` and the inspector know.
        valid_for_s: the connection is closed after this time; None = it stays.
    """

    user: str
    valid_for_s: float | None = None


class ExpiringCaller(Caller, Protocol):
    """The connection that somebody logs in by."""

    def expire_after(self, seconds: float) -> None:
        """Close it when what it logs in with has expired."""


class LoginRefused(Exception):
    """The login is wrong. The text is for the router's log: it names the reason, and no secret."""


class LoginUndecided(Exception):
    """It cannot be known just now: the client should try again. The text is for the router's log."""


class Authenticator(Protocol):
    """Knows who may log in."""

    @property
    def mechanisms(self) -> frozenset[str]:
        """Which of `MECHANISMS` it checks; the router offers no others of them."""

    async def check(self, login: Login, /) -> Identity:
        """Return who it is. It must not block the event loop.

        It is cancelled after `CHECK_S`. What it raises beside these two counts as undecided.

        Raises:
            LoginRefused: it is nobody who may log in.
            LoginUndecided: whoever knows cannot be asked.
        """
        ...


class Checks:
    """Asks an authenticator, with limits. One for all listeners of a router."""

    def __init__(self, authenticator: Authenticator, log: EventLog, load: Callable[[], None] | None = None) -> None:
        """Nothing is asked yet; `load` reads the authenticator's files again, and raises CliError."""
        self.load = load
        self._authenticator = authenticator
        self._log = log
        self._running = 0
        self._guesses = Guesses(lambda _user, _host, _failures: None)  # each refusal is logged
        self.mechanisms = tuple(name for name in MECHANISMS if name in authenticator.mechanisms)

    async def check(self, login: Login) -> Identity:
        """Who it is; refusals are logged.

        Raises:
            LoginRefused: it is nobody, or somebody else than it names.
            LoginUndecided: it cannot be known just now.
        """
        try:
            if self._running >= MAX_CHECKS:
                raise LoginUndecided(f"{MAX_CHECKS} logins are checked already")
            self._running += 1
            try:
                return await self._ask(login)
            finally:
                self._running -= 1
        except LoginRefused as refused:
            self._notify(RouterEvent.LOGIN_FAILED, login, str(refused))
            raise
        except LoginUndecided as undecided:
            self._notify(RouterEvent.LOGIN_UNDECIDED, login, str(undecided))
            raise

    async def _ask(self, login: Login) -> Identity:
        try:
            async with asyncio.timeout(CHECK_S):
                found = await self._authenticator.check(login)
            user = verified_name(found.user, "user name")
        except (LoginRefused, LoginUndecided):
            raise
        except TimeoutError:
            raise LoginUndecided(f"no answer within {CHECK_S:g} s") from None
        except LocalProtocolError as error:
            raise LoginRefused(str(error)) from None
        except Exception as error:  # noqa: BLE001  (its text may hold the secret)
            raise LoginUndecided(f"the authenticator has failed: {type(error).__name__}") from None
        if login.user and login.user != user:
            raise LoginRefused(f"user {user!r} asks to act for somebody else")
        return Identity(user, found.valid_for_s)

    def _notify(self, event: RouterEvent, login: Login, why: str) -> None:
        self._log.event(event, user=login.user, peer=login.host, mechanism=login.mechanism, why=why)

    # --- of one connection --------------------------------------------------------------------------------------------

    def mechanism(self, name: str, caller: Callable[[], ExpiringCaller]) -> ServerMechanism:
        """A mechanism for an AMQP connection."""
        ask = self._asks(name, caller)
        return PlainServer(ask) if name == PLAIN else BearerServer(name, ask)

    def _asks(self, mechanism: str, caller: Callable[[], ExpiringCaller]) -> Ask:

        def ask(user: str, secret: str) -> Step | Deferred[Step]:
            login = Login(mechanism, user, secret, caller().peer_host)
            steps: list[Step] = []

            async def work() -> bytes:
                steps.append(await self._step(login, caller()))
                return b""

            return Deferred(Asking(work), lambda _result: steps[0])

        return ask

    async def _step(self, login: Login, caller: ExpiringCaller) -> Step:
        is_password, guess = login.mechanism == PLAIN, remembered(login.user, login.secret)
        if is_password and self._guesses.is_guessed(login.user, login.host, time.monotonic()):
            caller.abort()
            return Failure("somebody guesses there")
        try:
            identity = await self.check(login)
        except LoginRefused as refused:
            if is_password:
                self._guesses.note(login.user, guess, PROOFS_PER_GUESS, login.host, time.monotonic())
            return Failure(str(refused))
        except LoginUndecided as undecided:
            return Failure(str(undecided), SaslCode.SYS_TEMP)
        if identity.valid_for_s is not None:
            caller.expire_after(identity.valid_for_s)
        return Success(identity.user)


def load_authenticator(name: str) -> Authenticator:
    """The one that an installed package has under this name.

    Raises:
        CliError: there is none, or it cannot be made.
    """
    found = entry_points(group=GROUP, name=name)
    if not found:
        others = ", ".join(sorted(each.name for each in entry_points(group=GROUP)))
        raise CliError(
            f"the authenticator {name!r} cannot be used",
            f"no installed package has the entry point {name!r} of the group {GROUP!r}",
            f"install it, or set authenticator to one of: {others}" if others else "install the package that has it",
        )
    try:
        make: Callable[[], Authenticator] = next(iter(found)).load()
        return make()
    except CliError:
        raise
    except Exception as error:  # noqa: BLE001  (somebody else's code)
        raise CliError(
            f"the authenticator {name!r} cannot be used", f"{type(error).__name__}: {error}", "see to its package"
        ) from None
