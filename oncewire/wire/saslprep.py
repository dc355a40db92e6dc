"""SASLprep (RFC 4013): the one spelling of a user name or password, whatever keyboard it was typed on."""

from __future__ import annotations

import stringprep
import unicodedata

from oncewire.wire.errors import LocalProtocolError

MAX_LENGTH = 256
"""Characters of a name or password: more would hold up the event loop that checks a login for over a millisecond."""
_PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
    stringprep.in_table_a1,  # unassigned in Unicode 3.2: their spelling might change
)


def saslprep(text: str, what: str) -> str:
    """The text in the spelling that is compared and hashed.

    Args:
        text: a user name or a password.
        what: what it is, for the error; the text itself is never part of it.

    Raises:
        LocalProtocolError: it is empty, longer than `MAX_LENGTH`, or has a character that SASLprep prohibits.
    """
    if len(text) > MAX_LENGTH:
        raise LocalProtocolError(f"the {what} has more than {MAX_LENGTH} characters")
    if text and text.isascii() and text.isprintable():
        return text  # nothing is mapped or prohibited
    mapped = "".join(
        " " if stringprep.in_table_c12(each) else each for each in text if not stringprep.in_table_b1(each)
    )
    prepared = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    if not prepared:
        raise LocalProtocolError(f"the {what} is empty")
    if any(is_prohibited(each) for each in prepared for is_prohibited in _PROHIBITED):
        raise LocalProtocolError(f"the {what} has a character that SASLprep (RFC 4013) prohibits")
    if any(map(stringprep.in_table_d1, prepared)):  # RFC 3454, 6: right to left from the first to the last character
        ends_are_right_to_left = stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1])
        if any(map(stringprep.in_table_d2, prepared)) or not ends_are_right_to_left:
            raise LocalProtocolError(f"the {what} mixes text from right to left with text from left to right")
    return prepared


def verified_name(name: str, what: str) -> str:
    """A name that somebody else has verified, as a certificate or token states it.

    Who issues those may know two names that SASLprep spells alike, and give one of them to anybody.

    Args:
        name: the name.
        what: what it is, for the error; the name itself is never part of it.

    Raises:
        LocalProtocolError: see `saslprep`; or SASLprep spells the name otherwise, and it would be another user's login.
    """
    if saslprep(name, what) != name:
        raise LocalProtocolError(f"the {what} is not spelled as SASLprep (RFC 4013) spells it")
    return name
