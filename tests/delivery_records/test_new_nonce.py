"""K-9 in the record core: what began before the nonce is over, and incarnations of two lives differ."""

from __future__ import annotations

from typing import cast

import pytest

from delivery_records import Records
from delivery_records.model import effects, inputs
from delivery_records.model.outcomes import DeliveryOutcome
from delivery_records.model.tags import ERA_BITS, link_key
from delivery_records.model.view import (
    SESSION_IS_THIS_PUT,
    Change,
    Kind,
    PublisherRecord,
    RouterRecord,
    SubscriptionMode,
    SubscriptionRecord,
)
from tests.delivery_records.harness import Net

RID = 7001
NONCE_REVISION = 50
LINK = 1


def started(entries: list[Change], era: int = 0) -> Records:
    """A router whose view holds these attachments."""
    core = Records(rid=RID, node_id="r0", nonce=b"abcd", era=era, nonce_revision=NONCE_REVISION)
    router = Change(Kind.ROUTER, f"r0.{RID:x}", RouterRecord("r0", RID), 60, 60)
    core.handle([inputs.StoreHealth(True), inputs.ViewSnapshot(60, [router, *entries])], 0.0)
    return core


def answers_to_a_resuming_publisher(session: int, mod_revision: int) -> list[effects.Effect]:
    core = started([])
    attach = inputs.PublisherAttach(LINK, "box", "pub", "orders", {b"t0": None}, True, timeout_s=60.0)
    (read,) = core.handle([attach], 0.0)
    assert isinstance(read, effects.Read)
    record = PublisherRecord("box", "pub", "orders", 6001, "1771.1", session, 60.0)
    return core.handle([inputs.ReadDone(read.nonce, record, mod_revision, mod_revision)], 0.0)


@pytest.mark.parametrize(
    ("session", "mod_revision"), [(49, 49), (SESSION_IS_THIS_PUT, 49), (49, 55)], ids=["named", "this-put", "moved"]
)
def test_a_session_that_began_before_the_nonce_is_refused_as_expired(session: int, mod_revision: int) -> None:
    *_, refused = answers_to_a_resuming_publisher(session, mod_revision)
    assert isinstance(refused, effects.DetachLink)
    assert refused.condition == "oncewire:session-expired"


@pytest.mark.parametrize(("session", "mod_revision"), [(51, 51), (SESSION_IS_THIS_PUT, 51)], ids=["named", "this-put"])
def test_a_session_that_began_after_the_nonce_goes_on(session: int, mod_revision: int) -> None:
    (put,) = answers_to_a_resuming_publisher(session, mod_revision)
    assert isinstance(put, effects.Propose)
    assert isinstance(put.record, PublisherRecord)
    assert put.record.session == 51


def test_one_create_revision_is_reported_as_another_incarnation_in_each_era() -> None:
    reported = set()
    for era in (0, 1, (1 << ERA_BITS) - 1):
        record = SubscriptionRecord(
            "store", "sub", "orders", RID, "n", 60.0, "link-detach", SubscriptionMode.EXACTLY_ONCE
        )
        core = started([Change(Kind.SUBSCRIPTION, link_key("store", "sub"), record, 55, 56)], era)
        (subscription,) = cast("list[dict[str, int]]", core.describe()["subscriptions"])
        reported.add(subscription["incarnation"])
        assert subscription["incarnation"] == core.turn.reported_incarnation(55)
    assert len(reported) == 3
    assert 55 in reported
    assert max(reported) < 2**63


def test_entries_of_before_the_nonce_stay_in_the_map_and_are_no_lag() -> None:
    net = Net()
    publisher = net.publisher(net.nodes[0])
    former = bytes([1]) + b"olds" + (55).to_bytes(6, "big") + b"t0"
    subscriber = net.subscriber(net.nodes[0], unsettled={former: DeliveryOutcome.ACCEPTED})
    publisher.send(b"1")
    (egress,) = net.nodes[0].core.egresses.values()
    assert egress.unsettled == 1
    assert former in egress.sessions[former[1:11]]
    subscriber.accept(b"1")
    publisher.settle(b"1")
    assert egress.unsettled == 0
    assert former in egress.sessions[former[1:11]]
