"""The SASL dialogue in front of a connection (AMQP 1.0 part 5.3), sans-IO, both sides.

``SaslServer`` and ``SaslClient`` take decoded SASL frames and return the bytes to send; the connection exchanges the
protocol headers, cuts the frames and looks at ``result`` after each step. A mechanism is an object of a few lines
(``ServerMechanism``, ``ClientMechanism``), so that others than ANONYMOUS, PLAIN and EXTERNAL can be added from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from oncewire.wire.errors import ILLEGAL_STATE, LocalProtocolError, RemoteProtocolError
from oncewire.wire.frames import FRAME_HEADER_SIZE, MAX_SASL_FRAME_SIZE, SASL_FRAME, encode_frame
from oncewire.wire.performative_codec import encode_performative
from oncewire.wire.performatives import (
    SaslChallenge,
    SaslCode,
    SaslFrame,
    SaslInit,
    SaslMechanisms,
    SaslOutcomeFrame,
    SaslResponse,
)
from oncewire.wire.types import Symbol

ANONYMOUS = "ANONYMOUS"
PLAIN = "PLAIN"
EXTERNAL = "EXTERNAL"

# SCRAM needs 2 challenges; a peer that wants many more keeps a socket busy without ever saying who it is.
MAX_CHALLENGES = 8

T = TypeVar("T")


class Deferred(NamedTuple, Generic[T]):
    """Something that takes long before it is known, as PBKDF2 does.

    Attributes:
        work: the computation; safe in another thread.
        then: what comes of its result; called where the dialogue is.
    """

    work: Callable[[], bytes]
    then: Callable[[bytes], T]


# Checks a user name and a password. It must compare in constant time (hmac.compare_digest, on bytes: both may hold any
# Unicode character), take as long for an unknown user as for a known one, and raise nothing: nothing here hides it.
# A step in the place of a yes or no is taken as it is.
Verify: TypeAlias = "Callable[[str, str], bool | Step | Deferred[bool] | Deferred[Step]]"


class SaslResult(NamedTuple):
    """How the dialogue ended.

    Attributes:
        ok: True if the server takes this client.
        mechanism: the mechanism used; empty if none was agreed on.
        user: the authenticated user; None for ANONYMOUS and on failure.
        code: the outcome code on the wire.
        description: for the log: why it failed.
    """

    ok: bool
    mechanism: str
    user: str | None
    code: int
    description: str = ""


class Challenge(NamedTuple):
    """The server wants another response."""

    data: bytes


class Success(NamedTuple):
    """The client is authenticated, as ``user`` or anonymously (None)."""

    user: str | None


class Failure(NamedTuple):
    """The client is refused; ``reason`` is for our log and is not sent.

    Attributes:
        code: what the client gets: AUTH, or SYS_TEMP where it cannot be known just now who it is.
    """

    reason: str
    code: SaslCode = SaslCode.AUTH


Step: TypeAlias = Challenge | Success | Failure


class ServerMechanism(Protocol):
    """The server's side of one SASL mechanism, made anew for each connection."""

    def step(self, response: bytes | None, /) -> Step | Deferred[Step]:
        """Judge a response of the client; None: its init frame carried no initial response."""


class ClientMechanism(Protocol):
    """The client's side of one SASL mechanism, made anew for each connection."""

    @property
    def name(self) -> str:
        """The registered name of the mechanism."""

    @property
    def user(self) -> str | None:
        """The user it authenticates; None if anonymous."""

    def initial_response(self) -> bytes | None:
        """Return what goes into the init frame."""

    def respond(self, challenge: bytes, /) -> bytes | Deferred[bytes]:
        """Answer a challenge of the server; RemoteProtocolError if the mechanism has none to expect."""

    def complete(self, data: bytes | None, /) -> None:
        """The server takes the client; `data` came with that. RemoteProtocolError if the server has more to prove."""


# --- ANONYMOUS (RFC 4505) and PLAIN (RFC 4616) ------------------------------------------------------------------------


class AnonymousServer:
    """Takes everybody; the trace information that a client may send is ignored."""

    def step(self, _response: bytes | None, /) -> Step:
        """Take the client."""
        return Success(None)


class PlainServer:
    """Takes whom ``verify`` takes. Acting for somebody else (an authorization identity) is not offered."""

    def __init__(self, verify: Verify) -> None:
        self._verify = verify

    def step(self, response: bytes | None, /) -> Step | Deferred[Step]:
        """Judge the client's one response."""
        if response is None:
            return Challenge(b"")  # RFC 4422, 3.3: the client was to speak first, so it is asked to
        parts = response.split(b"\x00")
        if len(parts) != 3:
            return Failure("the PLAIN response does not have three parts")
        try:
            acts_for, user, password = (part.decode("utf-8") for part in parts)
        except UnicodeDecodeError:
            return Failure("the PLAIN response is not UTF-8")
        if not user or not password:
            return Failure("the PLAIN response lacks a user name or a password")
        if acts_for and acts_for != user:
            return Failure(f"user {user!r} asks to act for {acts_for!r}")
        verdict = self._verify(user, password)
        if isinstance(verdict, Deferred):
            then: Callable[[bytes], bool | Step] = verdict.then
            return Deferred(verdict.work, lambda result: _judged(user, then(result)))
        return _judged(user, verdict)


def _judged(user: str, is_right: bool | Step) -> Step:
    if not isinstance(is_right, bool):
        return is_right
    return Success(user) if is_right else Failure(f"wrong user name or password for user {user!r}")


class _OneResponse:
    """A mechanism in which the client speaks once."""

    name: str

    def respond(self, _challenge: bytes, /) -> bytes:
        """Raise RemoteProtocolError: there are no challenges."""
        raise RemoteProtocolError(ILLEGAL_STATE, f"the server sent a challenge to {self.name}, which has none")


class AnonymousClient(_OneResponse):
    """Says nothing about the client."""

    def __init__(self) -> None:
        self.name = ANONYMOUS
        self.user: str | None = None

    def initial_response(self) -> bytes | None:
        """Return an empty trace information."""
        return b""

    def complete(self, _data: bytes | None, /) -> None:
        """Nothing is left to prove."""


class PlainClient(_OneResponse):
    """Sends user name and password as they are: use it inside TLS or on loopback only."""

    def __init__(self, user: str, password: str) -> None:
        if not user or not password or "\x00" in user + password:
            raise LocalProtocolError("PLAIN needs a user name and a password, both without NUL")
        self.name = PLAIN
        self.user: str | None = user
        try:
            self._response = b"\x00" + user.encode("utf-8") + b"\x00" + password.encode("utf-8")
        except UnicodeEncodeError:
            raise LocalProtocolError("user name or password cannot be written as UTF-8") from None

    def initial_response(self) -> bytes | None:
        """Return user name and password."""
        return self._response

    def complete(self, _data: bytes | None, /) -> None:
        """The server proves nothing: that is what TLS is for."""


# --- EXTERNAL (RFC 4422, appendix A) ----------------------------------------------------------------------------------


class ExternalServer:
    """Takes whom the layer below knows already. Acting for somebody else is not offered.

    Args:
        user: who shows the certificate of this connection; None = somebody who is refused.
    """

    def __init__(self, user: str | None) -> None:
        self._user = user

    def step(self, response: bytes | None, /) -> Step:
        """Judge the client's one response: empty, or its own name."""
        if response is None:
            return Challenge(b"")
        if self._user is None:
            return Failure("no rule makes a user of what the client has shown")
        if response and response != self._user.encode("utf-8"):
            return Failure(f"user {self._user!r} asks to act for somebody else")
        return Success(self._user)


class ExternalClient(_OneResponse):
    """Lets the certificate that was shown in TLS speak for the client."""

    def __init__(self) -> None:
        self.name = EXTERNAL
        self.user: str | None = None

    def initial_response(self) -> bytes | None:
        """Return nothing: the client acts for nobody else."""
        return b""

    def complete(self, _data: bytes | None, /) -> None:
        """TLS has proved what there is to prove."""


# --- the two sides ----------------------------------------------------------------------------------------------------


def _frame(body: SaslFrame) -> bytes:
    octets = encode_performative(body)
    if FRAME_HEADER_SIZE + len(octets) > MAX_SASL_FRAME_SIZE:
        raise LocalProtocolError(f"a SASL frame may not be longer than {MAX_SASL_FRAME_SIZE} bytes")
    return encode_frame(0, octets, frame_type=SASL_FRAME)


_REFUSED: Mapping[int, str] = {
    SaslCode.AUTH: "wrong user name, password, certificate or token",
    SaslCode.SYS_TEMP: "the server cannot check logins just now",
}


def _unexpected(frame: SaslFrame) -> RemoteProtocolError:
    return RemoteProtocolError(ILLEGAL_STATE, f"{type(frame).__name__} does not belong here in the SASL dialogue")


class SaslServer:
    """The server's side of the dialogue.

    Args:
        mechanisms: names to offer, strongest first if ordered; ANONYMOUS and PLAIN are built in.
        verify: checks user name and password; needed for PLAIN.
        allow_no_sasl: the connection may accept a client that starts with the AMQP header.
        extra: further mechanisms, name -> function that makes a ``ServerMechanism``.

    Raises:
        LocalProtocolError: a name without a mechanism, no name at all, or PLAIN without ``verify``.
    """

    def __init__(
        self,
        mechanisms: Iterable[str] = (ANONYMOUS,),
        verify: Verify | None = None,
        allow_no_sasl: bool = False,
        extra: Mapping[str, Callable[[], ServerMechanism]] | None = None,
    ) -> None:
        known: dict[str, Callable[[], ServerMechanism]] = {ANONYMOUS: AnonymousServer}
        if verify is not None:
            check = verify
            known[PLAIN] = lambda: PlainServer(check)
        known.update(extra or {})
        # a set has no order: sort it, so that the same configuration always sends the same bytes
        names = sorted(mechanisms) if isinstance(mechanisms, (set, frozenset)) else list(mechanisms)
        if not names:
            raise LocalProtocolError("a SASL server needs at least one mechanism")
        for name in names:
            if name not in known:
                why = "PLAIN needs a verify function" if name == PLAIN else "it is neither built in nor in extra"
                raise LocalProtocolError(f"SASL mechanism {name!r} cannot be offered: {why}")
        self.allow_no_sasl = allow_no_sasl
        self.result: SaslResult | None = None
        self._offered = {name: known[name] for name in names}
        self._name = ""
        self._mechanism: ServerMechanism | None = None
        self._deferred: Deferred[Step] | None = None
        self._challenges = 0

    @property
    def work(self) -> Callable[[], bytes] | None:
        """What the dialogue waits for; `resume` takes its result. No frame is taken before that."""
        return None if self._deferred is None else self._deferred.work

    def resume(self, result: bytes) -> bytes:
        """Take the result of `work` and return the bytes to send. Look at ``result`` and ``work`` afterwards."""
        assert self._deferred is not None
        then, self._deferred = self._deferred.then, None
        return self._judge(then(result))

    def offer_first(self, name: str, make: Callable[[], ServerMechanism]) -> None:
        """Offer this mechanism before all others, in the place of one of its name; not after `start`."""
        assert self._mechanism is None
        self._offered = {name: make} | self._offered | {name: make}

    def start(self) -> bytes:
        """Return what to send behind our SASL header: the mechanisms frame."""
        return _frame(SaslMechanisms(tuple(Symbol(name) for name in self._offered)))

    def receive(self, frame: SaslFrame) -> bytes:
        """Take a frame of the client and return the bytes to send. Look at ``result`` afterwards.

        If ``result`` is not ok, send the bytes and close the transport (5.3.2).

        Raises:
            RemoteProtocolError: the frame does not belong here; close the transport.
        """
        if self.result is not None or self._deferred is not None:
            raise _unexpected(frame)
        if isinstance(frame, SaslInit) and self._mechanism is None:
            make = self._offered.get(frame.mechanism)
            if make is None:  # 5.3.3.2: not a mechanism of ours: outcome auth
                return self._refuse(f"the client chose {frame.mechanism!r}, which was not offered")
            self._name = str(frame.mechanism)
            self._mechanism = make()
            return self._judge(self._mechanism.step(frame.initial_response))
        if isinstance(frame, SaslResponse) and self._mechanism is not None:
            return self._judge(self._mechanism.step(frame.response))
        raise _unexpected(frame)

    def _judge(self, step: Step | Deferred[Step]) -> bytes:
        if isinstance(step, Deferred):
            self._deferred = step
            return b""
        if isinstance(step, Challenge):
            self._challenges += 1
            if self._challenges > MAX_CHALLENGES:
                return self._refuse(f"no result after {MAX_CHALLENGES} challenges")
            return _frame(SaslChallenge(step.data))
        if isinstance(step, Failure):
            return self._refuse(step.reason, step.code)
        self.result = SaslResult(True, self._name, step.user, SaslCode.OK)
        return _frame(SaslOutcomeFrame(SaslCode.OK))

    def _refuse(self, reason: str, code: SaslCode = SaslCode.AUTH) -> bytes:
        self.result = SaslResult(False, self._name, None, code, reason)
        return _frame(SaslOutcomeFrame(code))


class SaslClient:
    """The client's side of the dialogue.

    Args:
        mechanism: ``"ANONYMOUS"``, ``"PLAIN"``, or the client's side of another one; of several the first is used that
            the server offers.
        user, password: for PLAIN.
        hostname: the virtual host for the init frame; the same as in open.

    Raises:
        LocalProtocolError: an unknown mechanism, or no user name or password for PLAIN.
    """

    def __init__(
        self,
        mechanism: str | ClientMechanism | Sequence[ClientMechanism] = ANONYMOUS,
        user: str | None = None,
        password: str | None = None,
        hostname: str | None = None,
    ) -> None:
        self._choice: list[ClientMechanism]
        if isinstance(mechanism, Sequence) and not isinstance(mechanism, str):
            self._choice = list(mechanism)
        elif not isinstance(mechanism, str):
            self._choice = [mechanism]
        elif mechanism == ANONYMOUS:
            self._choice = [AnonymousClient()]
        elif mechanism == PLAIN:
            self._choice = [PlainClient(user or "", password or "")]
        else:
            raise LocalProtocolError(f"SASL mechanism {mechanism!r} is not built in: pass an object for it")
        self.result: SaslResult | None = None
        self._hostname = hostname
        self._mechanism: ClientMechanism | None = None
        self._deferred: Deferred[bytes] | None = None
        self._challenges = 0

    @property
    def has_chosen(self) -> bool:
        """Whether it has named a mechanism."""
        return self._mechanism is not None

    @property
    def work(self) -> Callable[[], bytes] | None:
        """What the dialogue waits for; `resume` takes its result. No frame is taken before that."""
        return None if self._deferred is None else self._deferred.work

    def resume(self, result: bytes) -> bytes:
        """Take the result of `work` and return the bytes to send."""
        assert self._deferred is not None
        then, self._deferred = self._deferred.then, None
        return _frame(SaslResponse(then(result)))

    def start(self) -> bytes:
        """Return what to send behind our SASL header: nothing, the server speaks first."""
        return b""

    def receive(self, frame: SaslFrame) -> bytes:
        """Take a frame of the server and return the bytes to send. Look at ``result`` afterwards.

        If ``result`` is not ok, close the transport: the server refused us or offers nothing we can use.

        Raises:
            RemoteProtocolError: the frame does not belong here; close the transport.
        """
        if self.result is not None or self._deferred is not None:
            raise _unexpected(frame)
        mechanism = self._mechanism
        if isinstance(frame, SaslMechanisms) and mechanism is None:
            return self._choose(frame.sasl_server_mechanisms)
        if mechanism is None:
            raise _unexpected(frame)
        if isinstance(frame, SaslChallenge) and self._challenges < MAX_CHALLENGES:
            self._challenges += 1
            response = mechanism.respond(frame.challenge)
            if isinstance(response, Deferred):
                self._deferred = response
                return b""
            return _frame(SaslResponse(response))
        if isinstance(frame, SaslOutcomeFrame):
            self._finish(mechanism, frame)
            return b""
        raise _unexpected(frame)

    def _choose(self, offered: Sequence[str]) -> bytes:
        for mechanism in self._choice:
            if mechanism.name in offered:
                self._mechanism = mechanism
                return _frame(SaslInit(Symbol(mechanism.name), mechanism.initial_response(), self._hostname))
        ours = " or ".join(mechanism.name for mechanism in self._choice)
        why = f"the server does not offer {ours}, only {', '.join(offered) or 'nothing'}"
        self.result = SaslResult(False, "", None, SaslCode.AUTH, why)
        return b""

    def _finish(self, mechanism: ClientMechanism, frame: SaslOutcomeFrame) -> None:
        name = mechanism.name
        if frame.code == SaslCode.OK:
            mechanism.complete(frame.additional_data)
            self.result = SaslResult(True, name, mechanism.user, SaslCode.OK)
            return
        why = _REFUSED.get(frame.code, "the server has a system error")
        self.result = SaslResult(False, name, None, frame.code, f"{name} was refused: {why} (code {frame.code})")
