"""Network tags and link keys."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delivery_records.model.tags import MAX_TAG_BYTES, VERBATIM_BYTES, link_key, network_tag, session_of

NONCES = st.binary(min_size=4, max_size=4)
SESSIONS = st.integers(1, 2**48 - 1)
TAGS = st.binary(min_size=1, max_size=32)


@given(NONCES, SESSIONS, TAGS)
def test_a_network_tag_fits_amqp_and_names_its_session(nonce: bytes, session: int, tag: bytes) -> None:
    whole = network_tag(nonce, session, tag)
    assert len(whole) <= MAX_TAG_BYTES
    assert session_of(whole, nonce) == session


@given(NONCES, NONCES, SESSIONS, TAGS)
def test_a_tag_of_another_cluster_has_no_session_here(nonce: bytes, other: bytes, session: int, tag: bytes) -> None:
    if nonce != other:
        assert session_of(network_tag(nonce, session, tag), other) == 0


@given(NONCES, SESSIONS, SESSIONS, TAGS, TAGS)
def test_different_deliveries_have_different_tags(
    nonce: bytes, session: int, other_session: int, tag: bytes, other_tag: bytes
) -> None:
    same = network_tag(nonce, session, tag) == network_tag(nonce, other_session, other_tag)
    assert same == ((session, tag) == (other_session, other_tag))


def test_a_long_tag_does_not_meet_a_short_one_that_looks_like_its_digest() -> None:
    long = network_tag(b"test", 1, b"x" * 32)
    assert network_tag(b"test", 1, long[11:]) != long
    assert len(long[11:]) == VERBATIM_BYTES


@given(st.binary(max_size=40), NONCES)
def test_any_bytes_are_judged(tag: bytes, nonce: bytes) -> None:
    assert session_of(tag, nonce) >= 0


@pytest.mark.parametrize("tag", [b"", b"\0test", b"\0test" + bytes(5), b"\0test" + bytes(28)])
def test_what_is_too_short_or_too_long_is_nobodys(tag: bytes) -> None:
    assert session_of(tag, b"test") == 0


@given(st.text(max_size=10), st.text(max_size=10), st.text(max_size=10), st.text(max_size=10))
def test_a_key_names_one_identity(container: str, link: str, other_container: str, other_link: str) -> None:
    same = link_key(container, link) == link_key(other_container, other_link)
    assert same == ((container, link) == (other_container, other_link))


def test_a_key_is_40_hex_digits() -> None:
    key = link_key("container", "link")
    assert len(key) == 40
    assert int(key, 16) > 0
