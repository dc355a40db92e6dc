"""Who the holder of a certificate is: rules of the settings make a user name of what the certificate says."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from oncewire.settings.parsers import NotAllowed
from oncewire.wire import LocalProtocolError
from oncewire.wire.saslprep import verified_name

SOURCES = ("CN", "DNS", "URI", "email")
"""What a rule may look at: common names of the subject, and three kinds of subject alternative names."""
MAX_VALUE = 512
"""Characters of a name that rules look at: the time that a pattern takes may grow fast with them."""
_TEMPLATE = re.compile(r"(?:[^{}]|\{[0-9]\})+")
_PLACE = re.compile(r"\{([0-9])\}")


@dataclass(frozen=True, slots=True)
class CertificateRule:
    """Makes a user name of a certificate's name.

    Attributes:
        take: one of `SOURCES`.
        pattern: regular expression that fits the whole name.
        user: the user's name; `{1}` is what the first group of the pattern has found, `{0}` the whole name.
    """

    take: str
    pattern: str = ".+"
    user: str = "{0}"

    def user_of(self, name: str) -> str | None:
        """The user, None where the pattern does not fit."""
        found = re.fullmatch(self.pattern, name) if len(name) <= MAX_VALUE else None
        return None if found is None else _PLACE.sub(lambda place: found[int(place[1])] or "", self.user)


def certificate_of(tls: ssl.SSLObject | None) -> Mapping[str, object] | None:
    """What the verified certificate of a connection says; None = without TLS, or none was shown."""
    return None if tls is None else tls.getpeercert() or None


def user_of(rules: Sequence[CertificateRule], certificate: Mapping[str, object]) -> str | None:
    """The user whom the first rule that fits names; None = no rule fits, or what it makes is no user name.

    Args:
        rules: in their order.
        certificate: as `ssl.SSLSocket.getpeercert` returns it.
    """
    for rule in rules:
        for name in _names(certificate, rule.take):
            user = rule.user_of(name)
            if user is not None:
                try:
                    return verified_name(user, "user name")
                except LocalProtocolError:
                    return None
    return None


def _names(certificate: Mapping[str, Any], take: str) -> Iterator[str]:
    if take == "CN":
        for part in certificate.get("subject", ()):
            yield from (value for kind, value in part if kind == "commonName")
    else:
        yield from (value for kind, value in certificate.get("subjectAltName", ()) if kind == take)


def certificate_rules(value: object) -> tuple[CertificateRule, ...]:
    """A list of tables {take, pattern, user}; in a text `take pattern user;...`. The last two may be left out."""
    if isinstance(value, str):
        parts = [part.split() for part in value.split(";") if part.strip()]
        if any(len(part) > 3 for part in parts):
            raise NotAllowed("a rule in a text is `take pattern user`, without further blanks")
        value = [dict(zip(("take", "pattern", "user"), part, strict=False)) for part in parts]
    if not isinstance(value, list):
        raise TypeError
    return tuple(_rule(item) for item in value)


def _rule(item: object) -> CertificateRule:
    if not isinstance(item, dict) or not set(item) <= {"take", "pattern", "user"}:
        raise NotAllowed("a rule has take, pattern and user")
    if not all(isinstance(each, str) for each in item.values()) or item.get("take") not in SOURCES:
        raise NotAllowed(f"take is one of {', '.join(SOURCES)}")
    rule = CertificateRule(**cast("dict[str, str]", item))
    try:
        groups = re.compile(rule.pattern).groups
    except re.error as error:
        raise NotAllowed(f"the pattern {rule.pattern!r} cannot be used: {error}") from None
    if not _TEMPLATE.fullmatch(rule.user) or any(int(place) > groups for place in _PLACE.findall(rule.user)):
        raise NotAllowed(f"the user {rule.user!r} needs a group that the pattern lacks, or has other braces than {{0}}")
    return rule
