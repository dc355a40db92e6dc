"""Who may do what: roles of users, of this machine and of everybody, over HTTP and at `$management`.

A role is that of the user who logs in; without a login it depends on where a request comes from. A web page must not be
able to use the place of its reader: see `from_another_site`.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import TypeAlias
from urllib.parse import urlsplit

from aiohttp import BasicAuth, web

from oncewire.cli.users import Users
from oncewire.transport import login_work
from oncewire.transport.guarded_logins import GuardedLogins, TooManyLogins
from oncewire.transport.hosts import is_loopback
from oncewire.wire import PLAIN, Deferred
from oncewire.wire.bearer import OAUTHBEARER
from router.authentication.authenticators import Checks, Login, LoginRefused, LoginUndecided
from router.authentication.users import load_users
from router.operator.stated_callers import STATED_CALLER, StatedCallers, StatementRefused
from router.process.logs import EventLog, RouterEvent
from router.settings.certificate_users import certificate_of, user_of
from router.settings.config import RouterConfig, anonymous_is_allowed
from router.settings.groups import MARK, groups_of
from topology.inspector.schema.model import Role

READING = frozenset({"GET", "HEAD"})
PROXY_HEADERS = frozenset(
    {"cf-connecting-ip", "client-ip", "forwarded", "true-client-ip", "via", "x-client-ip", "x-real-ip"}
)
"""What proxies add to requests they pass on (RFC 7239; RFC 9110, 7.6.3; customs), beside those with `PROXY_PREFIX`."""
PROXY_PREFIX = "x-forwarded"
CALLER = "Oncewire-Caller"
"""A header by which the first worker states who asks; it counts on the Unix socket between workers alone."""
JSON = "application/json"
REALM = 'Basic realm="oncewire", charset="UTF-8"'


def role_named(word: str) -> Role:
    """The role of that name; the settings know no other names."""
    return Role[word.upper()]


@dataclass(frozen=True, slots=True)
class Caller:
    """Who a request is from."""

    role: Role
    user: str = ""
    """Empty without a login."""
    peer: str = ""
    misnamed: str = ""
    """The name it called this router by, where that is none of its names."""

    @property
    def shown(self) -> str:
        """For logs and errors."""
        return f"user {self.user}" if self.user else f"a client at {self.peer or 'an unknown address'} without login"


class AccessDenied(Exception):
    """A request that is refused before anything is done.

    Attributes:
        status: HTTP's number for it.
        fix: what the caller can do.
    """

    def __init__(self, status: int, error: str, fix: str) -> None:
        super().__init__(error)
        self.status = status
        self.fix = fix


class Access:
    """The roles that hold now; `use` puts others in force."""

    def __init__(
        self, config: RouterConfig, log: EventLog, users: Users | None = None, checks: Checks | None = None
    ) -> None:
        """Begin with the roles of `config`, and with its users where none are given; `checks` knows who else may."""
        self.stated = StatedCallers()
        self._log = log
        self._checks = checks
        self._logins = GuardedLogins()
        self._users = users or load_users(config)
        self.use(config)

    def use(self, config: RouterConfig, users: Users | None = None) -> None:
        """Put the roles of `config` in force, and these users."""
        self._users = users or self._users
        self._has_users = self._users.is_set or self._checks is not None
        self._rules = config.external_rules
        self._is_private = config.http_tls or anonymous_is_allowed(config.allow_plain, config.http_host)
        roles = {user: role_named(word) for user, word in config.roles}
        self._roles = {user: role for user, role in roles.items() if not user.startswith(MARK)}
        self._group_roles = {user.removeprefix(MARK): role for user, role in roles.items() if user.startswith(MARK)}
        self._groups = config.groups
        self._anonymous = role_named(config.http_anonymous_role)
        # What everybody may do, programs on this machine may, too.
        self._loopback = max(self._anonymous, role_named(config.http_loopback_role))
        self._names = _own_names(config)

    def role_of_user(self, user: str) -> Role:
        """The role of somebody who has logged in: his own, else the highest of his groups, else that of anybody."""
        own = self._roles.get(user)
        if own is not None or not self._group_roles:
            return self._anonymous if own is None else own
        found = [self._group_roles[name] for name in groups_of(self._groups, user) if name in self._group_roles]
        return max(found, default=self._anonymous)

    def caller_at(self, host: str, user: str | None) -> Caller:
        """Who an AMQP client is: its SASL user, or where it connects from.

        Args:
            host: the client's address.
            user: who it has logged in as, None without a login.
        """
        if user:
            return Caller(self.role_of_user(user), user, host)
        return Caller(self._loopback if is_loopback(host) else self._anonymous, "", host)

    # --- HTTP ---------------------------------------------------------------------------------------------------------

    async def caller_of(self, request: web.Request) -> Caller:
        """Who an HTTP request is from.

        Raises:
            AccessDenied: it comes from a page of another site, or its login is wrong.
        """
        stated = request.headers.get(STATED_CALLER)
        if stated is not None:
            return self._stated_by_router(stated, request)
        if is_from_worker(request):
            return _caller_in(request.headers[CALLER])
        reason = from_another_site(request)
        if reason is not None:
            raise AccessDenied(403, reason, "open the router's own address, or use a program that is no web page")
        peer = request.remote or ""
        given = request.headers.get("Authorization")
        if given is not None:
            user = await self._logged_in(given, peer)
            return Caller(self.role_of_user(user), user, peer)
        if not self._is_own_name(request.host):
            # DNS rebinding: a page of another site whose name was made to point here. It cannot log in.
            return Caller(Role.NONE, "", peer, request.host)
        shown = self._shown_by(request)
        if shown is not None:
            return Caller(self.role_of_user(shown), shown, peer)
        is_near = is_loopback(peer) and not is_forwarded(request)
        return Caller(self._loopback if is_near else self._anonymous, "", peer)

    def _stated_by_router(self, stated: str, request: web.Request) -> Caller:
        try:
            user = self.stated.user_in(stated, request.method, request.raw_path)
        except StatementRefused as refused:
            raise AccessDenied(
                403, f"the header {STATED_CALLER} is refused: {refused}", "log in: routers alone send that header"
            ) from None
        return Caller(self.role_of_user(user), user, request.remote or "")

    def check_page(self, request: web.Request, origins: Collection[str]) -> None:
        """Refuse a WebSocket of a web page, unless it is a page of this router or of one of these origins.

        Browsers let every page open WebSockets, and say of which site it is; other programs say nothing.

        Raises:
            AccessDenied: the page is another site's.
        """
        origin = request.headers.get("Origin")
        if origin is None or origin.lower() in origins:
            return
        if _host_of(origin) != request.host.lower():
            fix = "add it to the setting http.origins, if its pages may use this router"
            raise AccessDenied(403, f"pages of {origin} may not connect", fix)
        if not self._is_own_name(request.host):  # DNS rebinding, as above
            raise AccessDenied(
                403, f"{request.host!r} is no name of this router", "use its address, or add the name to http.names"
            )

    def _shown_by(self, request: web.Request) -> str | None:
        """The user whom the certificate of the connection names."""
        tls = None if request.transport is None or not self._rules else request.transport.get_extra_info("ssl_object")
        certificate = certificate_of(tls)
        return None if certificate is None else user_of(self._rules, certificate)

    def require(self, caller: Caller, minimum: Role) -> None:
        """Refuse who may not.

        Raises:
            AccessDenied: 401 if a login could help, else 403.
        """
        if caller.role >= minimum:
            return
        needs = f"this needs the role {minimum.word}"
        if caller.user:
            raise AccessDenied(
                403,
                f"{needs}; {caller.user} is {caller.role.word}",
                f"log in as another user, or set roles.{caller.user}",
            )
        if caller.misnamed:
            raise AccessDenied(
                403,
                f"{needs}, and {caller.misnamed!r} is no name of this router",
                "use its address, log in, or add the name to the setting http.names",
            )
        if self._has_users:
            raise AccessDenied(401, needs, "log in with a user whose role in the setting roles allows it")
        raise AccessDenied(
            403,
            f"{needs}; without login you are {caller.role.word}",
            "set users and roles, or the role of those without login: http.loopback_role on this machine, "
            "http.anonymous_role elsewhere",
        )

    async def _logged_in(self, given: str, peer: str) -> str:
        """The user, after a wait for PBKDF2 where the password was not right before."""
        login = self._login(given, peer)
        try:
            user = await self._logins.check(peer, lambda failures: self._user_of(login, failures))
        except TooManyLogins as many:
            raise AccessDenied(429, str(many), many.fix) from None
        if user is not None:
            return user
        fix = "check user and password: see the settings users and users_file"
        if login.mechanism != PLAIN:
            fix = "get a new token; the router's log has the reason"
        raise AccessDenied(401, "login failed", fix)

    def _login(self, given: str, peer: str) -> Login:
        """What an Authorization header holds: Basic (RFC 7617) or Bearer (RFC 6750)."""
        scheme, _, rest = given.partition(" ")
        if scheme.lower() != "bearer" or self._checks is None or OAUTHBEARER not in self._checks.mechanisms:
            user, password = _basic(given)
            return Login(PLAIN, user, password, peer)
        if not self._is_private:
            fix = "call with https: set http.tls, or listen.allow_plain"
            raise AccessDenied(401, "tokens are not taken without TLS", fix)
        return Login(OAUTHBEARER, "", rest.strip(), peer)

    async def _user_of(self, login: Login, failures: int) -> str | None:
        """Who logs in; None = nobody who may, as the log states."""
        if self._checks is not None and login.mechanism in self._checks.mechanisms:
            try:
                return (await self._checks.check(login)).user
            except LoginRefused:
                return None
            except LoginUndecided:
                raise AccessDenied(503, "logins cannot be checked just now", "try again; see the log") from None
        checked = self._users.check(login.user, login.secret)
        if isinstance(checked, Deferred):
            checked = checked.then(await _computed(checked))
        if checked:
            return login.user
        self._log.event(RouterEvent.LOGIN_FAILED, user=login.user, peer=login.host, failures=failures)
        return None

    def _is_own_name(self, host: str) -> bool:
        """An address, or a name that is ours: another site cannot make those stand for its own pages."""
        name = _name_of(host)
        if name in self._names:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


def from_another_site(request: web.Request) -> str | None:
    """Why a request is one that a page of another site made in somebody's browser; None if it is not."""
    origin = request.headers.get("Origin")
    if origin is not None and _host_of(origin) != request.host.lower():
        return f"requests of pages of {origin} are not taken"
    site = request.headers.get("Sec-Fetch-Site")
    if site not in (None, "same-origin", "none") and request.method not in READING:
        return "changes by pages of another site are not taken"
    return None


def is_from_worker(request: web.Request) -> bool:
    """Whether it came by the Unix socket, in a folder that nobody but the workers may enter."""
    accepted = None if request.transport is None else request.transport.get_extra_info("socket")
    return accepted is not None and accepted.family == socket.AF_UNIX


def stated(caller: Caller) -> str:
    """A caller for the header `CALLER`."""
    return json.dumps({**asdict(caller), "role": caller.role.word})


def _caller_in(stated: str) -> Caller:
    found = json.loads(stated)
    return Caller(**{**found, "role": role_named(found["role"])})


def _host_of(origin: str) -> str | None:
    """Host and port of an Origin header; None where it has none that can be read."""
    try:
        return urlsplit(origin).netloc.lower() or None
    except ValueError:
        return None


def _basic(given: str) -> tuple[str, str]:
    """User and password of an Authorization header (RFC 7617)."""
    try:
        login = BasicAuth.decode(given, "utf-8")
    except ValueError:
        raise AccessDenied(401, "the login cannot be read", "log in with HTTP Basic: user:password in Base64") from None
    return login.login, login.password


async def _computed(deferred: Deferred[bool]) -> bytes:
    def take(found: bytes) -> None:
        if not result.done():
            result.set_result(found)

    loop = asyncio.get_running_loop()
    result: asyncio.Future[bytes] = loop.create_future()

    if not login_work.start(deferred.work, lambda found: loop.call_soon_threadsafe(take, found)):
        raise AccessDenied(429, "too many logins at once", "try again")
    return await result


def _own_names(config: RouterConfig) -> frozenset[str]:
    """Names by which this router is called, besides its addresses."""
    names = {"localhost", socket.gethostname(), config.node_id, config.http_host, *config.http_names}
    if config.worker is not None:
        names.add(config.worker.group)
    return frozenset(name.lower() for name in names if name)


def _name_of(host: str) -> str:
    """A Host header without its port, and an IPv6 address without its brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()


def is_forwarded(request: web.Request) -> bool:
    """A proxy on this machine speaks for somebody who may be anywhere. One without such a header is not recognised."""
    names = {name.lower() for name in request.headers}
    return not PROXY_HEADERS.isdisjoint(names) or any(name.startswith(PROXY_PREFIX) for name in names)


# --- routes with a role -----------------------------------------------------------------------------------------------

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
_CALLER: ContextVar[Caller] = ContextVar("oncewire_caller")
"""Set before each handler. Requests have storage of their own, whose kind of key changes with aiohttp's releases."""


def caller_of(request: web.Request) -> Caller:
    """Who a request is from, inside a handler that `guard` has wrapped."""
    return _CALLER.get()


@dataclass(frozen=True, slots=True)
class Route:
    """One route of a router's HTTP side."""

    method: str
    path: str
    handler: Handler
    minimum: Role | None
    """The role it needs; None = it is open, whoever asks and by whatever name."""
    asks_again: bool = False
    """Who has logged in with too small a role is asked for another login: a browser sends the old one until then."""


def add_routes(app: web.Application, access: Access, routes: Iterable[Route]) -> None:
    """Serve these routes to those who may."""
    for route in routes:
        handler = route.handler
        if route.minimum is not None:
            handler = guard(access, route.minimum, handler, asks_again=route.asks_again)
        app.router.add_route(route.method, route.path, handler, expect_handler=_on_expect)


async def _on_expect(request: web.Request) -> None:
    """Go on with whoever waits for that. aiohttp's own fails at what is no UTF-8, and logs it each time."""
    if request.headers.get("Expect", "").lower() != "100-continue":
        raise web.HTTPExpectationFailed(text="only 100-continue can be expected")
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    request.writer.output_size = 0  # the answer has not begun


def guard(access: Access, minimum: Role, handler: Handler, *, asks_again: bool = False) -> Handler:
    """A handler that only callers with this role get to; all others get an error as JSON."""

    async def guarded(request: web.Request) -> web.StreamResponse:
        caller = None
        try:
            caller = await access.caller_of(request)
            if request.method not in READING and request.content_type != JSON:
                reported = f"changes are sent as JSON, not {request.content_type}"
                raise AccessDenied(415, reported, f"send Content-Type: {JSON}")
            access.require(caller, minimum)
        except AccessDenied as denied:
            has_too_small_a_role = asks_again and caller is not None and caller.user
            return refusal(401 if has_too_small_a_role else denied.status, str(denied), denied.fix)
        _CALLER.set(caller)
        return await handler(request)

    return guarded


def refusal(status: int, error: str, fix: str) -> web.Response:
    """An error as every route returns it: what, and what to do."""
    headers = {"WWW-Authenticate": REALM} if status == 401 else {}
    return web.json_response({"error": error, "fix": fix}, status=status, headers=headers)
