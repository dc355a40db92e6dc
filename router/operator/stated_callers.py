"""Who asks, as one router states it to another: the login of an operator never goes from router to router.

A router that asks others for an operator names the user whom it has authenticated, and proves with the secret of its
own incarnation (K-1b) that it is a router of this network. Who gets such a request by a wrong address learns the name
of a user, and nothing to log in with.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from topology.keys.router_secrets import RouterSecrets

STATED_CALLER = "Oncewire-Stated-Caller"
"""The header: the incarnation that asks, the number of its request, the user, the proof."""
REMEMBERED = 1_024
"""Numbers of requests that are remembered of each incarnation: far more than it sends at a time."""
_LABEL = "oncewire stated caller 1"
_FORM = re.compile(r"([0-9a-f]{1,16}) ([0-9]{1,18}) ((?:[0-9a-f]{2})*) ([0-9a-f]{64})")


class StatementRefused(Exception):
    """A statement that proves nothing; the text says why."""


@dataclass(slots=True)
class _Heard:
    """Which requests of one incarnation were answered: each is answered once."""

    numbers: set[int] = field(default_factory=set)
    floor: int = 0
    """All numbers up to it count as answered."""

    def take(self, number: int) -> bool:
        """Whether this number is new."""
        if number <= self.floor or number in self.numbers:
            return False
        self.numbers.add(number)
        if len(self.numbers) > REMEMBERED:
            self.floor = min(self.numbers)
            self.numbers.discard(self.floor)
        return True


class StatedCallers:
    """States callers to other routers, and believes the statements of those that prove who they are."""

    def __init__(self) -> None:
        """There is no incarnation yet: nothing is stated, and nothing is believed."""
        self._secrets: RouterSecrets | None = None
        self._rid = 0
        self._sent = 0
        self._heard: dict[int, _Heard] = {}

    def begin(self, rid: int, secrets: RouterSecrets | None) -> None:
        """State and believe as this incarnation from now on; without secrets: there is none."""
        self._rid, self._secrets = rid, secrets
        self._sent = 0
        self._heard.clear()

    def headers(self, user: str, rid: int, target: str) -> Mapping[str, str]:
        """What states to another router who asks; empty for somebody without login.

        Args:
            user: whom this router has authenticated.
            rid: the incarnation that is asked, and no other one believes it.
            target: path and query of the request.
        """
        if not user or self._secrets is None:
            return {}
        self._sent += 1
        proof = _proof(self._secrets.own, self._rid, rid, self._sent, target, user)
        return {STATED_CALLER: f"{self._rid:x} {self._sent} {user.encode().hex()} {proof}"}

    def user_in(self, given: str, method: str, target: str) -> str:
        """The user that a router states.

        Args:
            given: the header.
            method: of the request; routers ask each other for nothing but to read.
            target: path and query of the request.

        Raises:
            StatementRefused: no router of this network has made this statement for this request, or it was used before.
        """
        found = _FORM.fullmatch(given)
        if found is None or method != "GET":
            raise StatementRefused("it is no statement that routers make")
        rid, number = int(found[1], 16), int(found[2])
        secret = self._secrets.of(rid) if self._secrets is not None and self._secrets.knows(rid) else None
        if secret is None:
            raise StatementRefused("no router of this network has made it, as far as etcd has reported")
        try:
            user = bytes.fromhex(found[3]).decode()
        except UnicodeDecodeError:
            raise StatementRefused("the user is no text") from None
        if not hmac.compare_digest(found[4], _proof(secret, rid, self._rid, number, target, user)):
            raise StatementRefused("its proof does not fit")
        if not self._heard_of(rid).take(number):
            raise StatementRefused("it was used before")
        return user

    def _heard_of(self, rid: int) -> _Heard:
        if rid not in self._heard:
            assert self._secrets is not None
            self._heard = {known: heard for known, heard in self._heard.items() if self._secrets.knows(known)}
            self._heard[rid] = _Heard()
        return self._heard[rid]


def _proof(secret: bytes, asks: int, is_asked: int, number: int, target: str, user: str) -> str:
    # No part but the last one can hold a line break.
    text = f"{_LABEL}\n{asks:x}\n{is_asked:x}\n{number}\n{target}\n{user}"
    return hmac.new(secret, text.encode("utf-8", "surrogateescape"), "sha256").hexdigest()
