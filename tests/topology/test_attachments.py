"""Values in etcd and the records they stand for: they survive the way there and back, and rubbish is named."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delivery_records.model.tags import link_key
from delivery_records.model.view import (
    Change,
    Kind,
    PublisherRecord,
    Record,
    RouterRecord,
    SubscriptionMode,
    SubscriptionRecord,
    router_key,
)
from topology.etcd.store import EventKind, Stored, WatchEvent
from topology.keys.attachments import (
    ClusterLife,
    MalformedValue,
    change_of_event,
    change_of_stored,
    decode_life,
    decode_record,
    encode_life,
    encode_record,
    new_life,
    readable_changes,
    router_store_key,
    store_key,
)
from topology.keys.epochs import MAX_ORDINAL, epoch_of, last_epoch_of, revision_of

KEY = link_key("container", "link")
ROUTER = RouterRecord("node.a", 0x6F, "127.0.0.1:1", "amqp://127.0.0.1:2", "http://127.0.0.1:3", 1, 2, "0.1")
SUBSCRIPTION = SubscriptionRecord("container", "link", "orders.*", 0x6F, "6f/1", timeout_s=60.0)
PUBLISHER = PublisherRecord("container", "link", "orders", 0x6F, "6f/2", session=12)

texts = st.text(max_size=20)
rids = st.integers(1, 2**63 - 1)
seconds = st.floats(0, 1e9)
routers = st.builds(
    RouterRecord, texts, rids, texts, texts, texts, st.integers(0, 99), st.integers(0, 99), texts, st.booleans()
)
subscriptions = st.builds(
    SubscriptionRecord,
    texts,
    texts,
    texts,
    rids,
    texts,
    seconds,
    texts,
    st.sampled_from(SubscriptionMode),
    st.integers(0, 2**31),
    st.booleans(),
    st.booleans(),
    texts,
)
publishers = st.builds(
    PublisherRecord, texts, texts, texts, rids, texts, st.integers(-1, 2**48), seconds, st.booleans(), texts
)


def kind_of(record: Record) -> tuple[Kind, str]:
    if isinstance(record, RouterRecord):
        return Kind.ROUTER, router_key(record)
    return (Kind.SUBSCRIPTION if isinstance(record, SubscriptionRecord) else Kind.PUBLISHER), KEY


@given(record=routers | subscriptions | publishers)
def test_every_record_survives_the_way_to_etcd_and_back(record: Record) -> None:
    kind, key = kind_of(record)
    assert decode_record(kind, key, encode_record(record)) == record


def test_a_value_reads_well_for_people_and_keeps_64_bit_numbers_out_of_json_numbers() -> None:
    value = json.loads(encode_record(ROUTER))
    assert value["rid"] == "6f"
    assert value["node_id"] == "node.a"
    assert json.loads(encode_record(SUBSCRIPTION))["mode"] == "at-least-once"


def test_fields_of_newer_versions_are_ignored() -> None:
    value = json.loads(encode_record(PUBLISHER)) | {"colour": "blue", "deep": {"er": [1]}}
    assert decode_record(Kind.PUBLISHER, KEY, json.dumps(value).encode()) == PUBLISHER


def test_optional_fields_may_be_left_out() -> None:
    value = {"container_id": "container", "link_name": "link", "topic": "orders", "rid": "6f", "nonce": "6f/2"}
    assert decode_record(Kind.PUBLISHER, KEY, json.dumps(value).encode()) == replace(PUBLISHER, session=0)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"rid": "xyz"}, "rid"),
        ({"rid": 111}, "rid"),
        ({"rid": "0"}, "rid"),
        ({"rid": "ffffffffffffffffff"}, "rid"),
        ({"topic": None}, "topic"),
        ({"timeout_s": -1}, "timeout_s"),
        ({"timeout_s": 1e999}, "timeout_s"),
        ({"timeout_s": 10**400}, "timeout_s"),
        ({"container_id": "half of a pair \ud800"}, "container_id"),
        ({"timeout_s": "60"}, "timeout_s"),
        ({"mode": "exactly-twice"}, "mode"),
        ({"map_bound": 1.5}, "map_bound"),
        ({"map_bound": True}, "map_bound"),
        ({"provisional": "yes"}, "provisional"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], named: str) -> None:
    value = json.loads(encode_record(SUBSCRIPTION)) | change
    with pytest.raises(MalformedValue, match=f"{KEY}: {named} is"):
        decode_record(Kind.SUBSCRIPTION, KEY, json.dumps(value).encode())


@pytest.mark.parametrize("value", [b"", b"{", b"[]", b'"text"', b"\xff\xfe", b"[" * 100_000, b" " * 100_000])
def test_what_is_no_json_object_is_malformed(value: bytes) -> None:
    with pytest.raises(MalformedValue):
        decode_record(Kind.SUBSCRIPTION, KEY, value)


@given(value=st.binary(max_size=200))
def test_any_bytes_are_a_record_or_malformed(value: bytes) -> None:
    with pytest.raises(MalformedValue):
        decode_record(Kind.ROUTER, "a.6f", value)


def test_a_routers_value_must_be_that_of_its_key() -> None:
    with pytest.raises(MalformedValue, match="value is that of"):
        decode_record(Kind.ROUTER, "other.6f", encode_record(ROUTER))


def test_keys_and_events_become_changes_with_their_epochs() -> None:
    stored = Stored(store_key(f"subs/{KEY}"), encode_record(SUBSCRIPTION), 3, 7, 0)
    assert change_of_stored(stored) == Change(Kind.SUBSCRIPTION, KEY, SUBSCRIPTION, epoch_of(3), epoch_of(7))
    gone = WatchEvent(EventKind.DELETE, router_store_key(ROUTER), b"", 0, 9)
    assert change_of_event(gone) == Change(Kind.ROUTER, "node.a.6f", None, 0, epoch_of(9))


@given(revision=st.integers(1, 2**41 - 1), ordinals=st.lists(st.integers(0, MAX_ORDINAL), min_size=2, unique=True))
def test_keys_of_one_transaction_have_epochs_of_their_own(revision: int, ordinals: list[int]) -> None:
    values = [encode_record(SUBSCRIPTION, ordinal) for ordinal in ordinals]
    events = [WatchEvent(EventKind.PUT, store_key(f"subs/{KEY}"), value, revision, revision) for value in values]
    changes = readable_changes(change_of_event, events)
    assert [change.record for change in changes] == [SUBSCRIPTION] * len(ordinals)
    epochs = [change.mod_revision for change in changes]
    assert len(set(epochs)) == len(epochs)
    assert {revision_of(epoch) for epoch in epochs} == {revision}
    # Those of the revisions around it are below and above, and a session has 6 bytes in a tag.
    assert last_epoch_of(revision - 1) < min(epochs) <= max(epochs) <= last_epoch_of(revision) < 2**48


@pytest.mark.parametrize("ordinal", [-1, MAX_ORDINAL + 1, "1", True, None])
def test_an_ordinal_that_no_transaction_has_is_malformed(ordinal: object) -> None:
    value = json.loads(encode_record(SUBSCRIPTION)) | {"ordinal": ordinal}
    with pytest.raises(MalformedValue, match="ordinal is"):
        change_of_stored(Stored(store_key(f"subs/{KEY}"), json.dumps(value).encode(), 3, 7, 0))


def test_kinds_of_newer_versions_are_not_attachments() -> None:
    assert change_of_stored(Stored(store_key("members/x/y"), b"?", 1, 1, 0)) is None
    assert change_of_stored(Stored(store_key("cluster"), b"?", 1, 1, 0)) is None


def test_keys_that_make_no_sense_are_skipped_with_a_log_line(caplog: pytest.LogCaptureFixture) -> None:
    good = Stored(store_key(f"pubs/{KEY}"), encode_record(PUBLISHER), 3, 7, 0)
    bad = [
        Stored(store_key(f"pubs/{KEY}"), b"rubbish", 3, 8, 0),
        Stored(store_key("pubs/short"), encode_record(PUBLISHER), 3, 9, 0),
        Stored(store_key("routers/no-incarnation"), encode_record(ROUTER), 3, 10, 0),
    ]
    with caplog.at_level(logging.ERROR):
        changes = readable_changes(change_of_stored, [bad[0], good, *bad[1:]])
    assert [change.mod_revision for change in changes] == [epoch_of(7)]
    assert len(caplog.records) == len(bad)
    # A deletion of such a key is skipped as well: the core must never see a router key without an incarnation.
    assert readable_changes(change_of_event, [WatchEvent(EventKind.DELETE, bad[2].key, b"", 0, 11)]) == []


def test_the_cluster_nonce_survives_and_rubbish_is_malformed() -> None:
    life = ClusterLife(b"\x00\x01\xfe\xff", 32_767, 2**64 - 1)
    for each in (life, replace(life, log_lead=-7, is_confirmed=False)):
        assert decode_life(encode_life(each)) == each
    # As the first release wrote it.
    assert decode_life(b'{"nonce":"0001feff"}') == ClusterLife(life.nonce, 0, 0)
    good = '"nonce":"0001feff"'
    for value in (
        "",
        "{}",
        '{"nonce":"00"}',
        '{"nonce":"zz"}',
        '{"nonce":5}',
        f'{{{good},"era":32768}}',
        f'{{{good},"era":-1}}',
        f'{{{good},"era":"1"}}',
        f'{{{good},"etcd_id":"zz"}}',
        f'{{{good},"etcd_id":5}}',
        f'{{{good},"log_lead":"1"}}',
        f'{{{good},"confirmed":1}}',
    ):
        with pytest.raises(MalformedValue):
            decode_life(value.encode())


def test_two_new_lives_differ_in_nonce_and_era_and_never_have_the_era_of_the_first_release() -> None:
    lives = [new_life(5, None, is_confirmed=True) for _ in range(200)]
    assert len({life.nonce for life in lives}) == len(lives)
    assert len({life.era for life in lives}) > 100
    assert all(0 < life.era < 1 << 15 and life.etcd_id == 5 for life in lives)
