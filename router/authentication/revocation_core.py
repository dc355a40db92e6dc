"""Reads which certificates a list of an authority revokes (X.509 CRLs, RFC 5280, section 5).

OpenSSL checks the list in each handshake. What it does not offer is to look up the certificate of a connection that is
open: for that alone the issuer and the serial numbers are read here. The file is the operator's own.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import NamedTuple

_PEM = re.compile(r"-----BEGIN X509 CRL-----(.*?)-----END X509 CRL-----", re.DOTALL)
_INTEGER, _SEQUENCE, _UTC_TIME, _GENERALIZED_TIME, _VERSION = 0x02, 0x30, 0x17, 0x18, 0xA0


class CertificateId(NamedTuple):
    """What names a certificate: its issuer's name in DER, and the serial number's octets."""

    issuer: bytes
    serial: bytes


class _Element(NamedTuple):
    tag: int
    content: bytes
    whole: bytes


class MalformedDerError(ValueError):
    """It is no certificate, or no list of revoked ones."""


def revoked_in(pem: str) -> frozenset[CertificateId]:
    """All certificates that the lists of a PEM file revoke.

    Raises:
        MalformedDerError: a list cannot be read.
    """
    return frozenset(each for found in _PEM.finditer(pem) for each in _revoked(_octets(found[1])))


def certificate_id(der: bytes) -> CertificateId:
    """What names this certificate.

    Raises:
        MalformedDerError: it is none.
    """
    fields = _inside(_only(_only(der)))
    first = _next(fields)
    serial = _next(fields) if first.tag == _VERSION else first
    _next(fields)  # the algorithm of the signature
    return CertificateId(_next(fields).whole, _expected(serial, _INTEGER).content)


def validity(der: bytes) -> tuple[str, str]:
    """From when to when a certificate is valid, as `YYYYMMDDHHMMSSZ` (RFC 5280, section 4.1.2.5).

    Raises:
        MalformedDerError: it is none.
    """
    fields = _inside(_only(_only(der)))
    if _next(fields).tag == _VERSION:
        _next(fields)  # the serial number
    _next(fields)  # the algorithm of the signature
    _next(fields)  # the issuer
    times = _inside(_expected(_next(fields), _SEQUENCE).content)
    return _whole_year(_next(times)), _whole_year(_next(times))


def _whole_year(element: _Element) -> str:
    text = element.content.decode("ascii", "replace")
    if element.tag == _UTC_TIME:
        return ("19" if text[:2] >= "50" else "20") + text
    return text


def _revoked(der: bytes) -> Iterator[CertificateId]:
    fields = _inside(_only(_only(der)))
    first = _next(fields)
    if first.tag == _INTEGER:  # the version; then the algorithm of the signature, as in a list without one
        _next(fields)
    issuer = _next(fields).whole
    _next(fields)  # when this list was made
    for field in fields:
        if field.tag in (_UTC_TIME, _GENERALIZED_TIME):
            continue
        if field.tag == _SEQUENCE:
            for entry in _inside(field.content):
                yield CertificateId(issuer, _expected(_next(_inside(entry.content)), _INTEGER).content)
        return


def _octets(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error:
        raise MalformedDerError("it is no Base64") from None


def _only(data: bytes) -> bytes:
    """The content of the sequence that `data` begins with."""
    return _expected(_next(_inside(data)), _SEQUENCE).content


def _expected(element: _Element, tag: int) -> _Element:
    if element.tag != tag:
        raise MalformedDerError(f"type {element.tag:#x} where {tag:#x} is due")
    return element


def _next(elements: Iterator[_Element]) -> _Element:
    for element in elements:
        return element
    raise MalformedDerError("it ends too early")


def _inside(data: bytes) -> Iterator[_Element]:
    """The elements of DER, one behind the other (X.690, section 8.1)."""
    at = 0
    while at < len(data):
        head, length = at + 2, data[at + 1] if at + 1 < len(data) else -1
        if length & 0x80 and length >= 0:
            octets = length & 0x7F
            length = int.from_bytes(data[head : head + octets], "big")
            head += octets
        if length < 0 or head + length > len(data):
            raise MalformedDerError("it ends too early")
        yield _Element(data[at], data[head : head + length], data[at : head + length])
        at = head + length
