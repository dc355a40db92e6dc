"""Transactions are not built: work that names one is refused, and nothing of it reaches the owner (AMQP part 4)."""

from __future__ import annotations

import pytest

from oncewire.wire import (
    DeliveryReceived,
    Described,
    Detach,
    Disposition,
    DispositionReceived,
    End,
    Flow,
    LinkDetached,
    LinkFlow,
    SessionEnded,
    Symbol,
    Transfer,
    ULong,
)
from tests.support.engines import RawPeer, condition_of, one

UNKNOWN_ID = "amqp:transaction:unknown-id"
STATES = [
    Described(ULong(0x34), [b"id"]),
    Described(Symbol("amqp:transactional-state:list"), [b"id", Described(ULong(0x24), [])]),
]


def _kinds(peer: RawPeer) -> set[type]:
    return {type(event) for event in peer.heard}


@pytest.mark.parametrize("state", STATES)
def test_a_transfer_under_a_transaction_detaches_its_link_unread(state: Described) -> None:  # 4.4.1
    peer = RawPeer()
    peer.begin()
    peer.attach_as_sender(10)
    assert condition_of(peer.send(Transfer(0, 0, b"t", 0, state=state), b"body"), Detach) == UNKNOWN_ID
    assert not one(peer.heard, LinkDetached).closed, "suspended, not ended"
    assert DeliveryReceived not in _kinds(peer)


def test_a_later_frame_of_a_delivery_may_not_name_a_transaction_either() -> None:  # 4.4.1
    peer = RawPeer()
    peer.begin()
    peer.attach_as_sender(10)
    assert peer.send(Transfer(0, 0, b"t", 0, more=True), b"bo") == []
    assert condition_of(peer.send(Transfer(0, state=STATES[0]), b"dy"), Detach) == UNKNOWN_ID
    assert DeliveryReceived not in _kinds(peer)


@pytest.mark.parametrize("settled", [False, True])
def test_an_outcome_under_a_transaction_ends_the_session_and_settles_nothing(settled: bool) -> None:  # 4.4.2
    peer = RawPeer()
    peer.begin()
    link = peer.attach_as_receiver(0)
    peer.send(Flow(0, 10, 0, 10, 0, 0, 10))
    link.send(b"t", b"body")
    peer.read()
    answers = peer.send(Disposition(True, 0, None, settled, STATES[1]))
    assert condition_of(answers, End) == UNKNOWN_ID
    assert SessionEnded in _kinds(peer)
    assert DispositionReceived not in _kinds(peer)


def test_credit_under_a_transaction_detaches_the_link_and_is_none() -> None:  # 4.4.3
    peer = RawPeer()
    peer.begin()
    link = peer.attach_as_receiver(0)
    flow = Flow(0, 10, 0, 10, 0, 0, 10, properties={Symbol("txn-id"): b"id"})
    assert condition_of(peer.send(flow), Detach) == UNKNOWN_ID
    assert link.credit == 0
    assert LinkFlow not in _kinds(peer)


def test_a_state_of_somebodys_own_is_no_transaction() -> None:
    peer = RawPeer()
    peer.begin()
    peer.attach_as_sender(10)
    assert peer.send(Transfer(0, 0, b"t", 0, state=Described(Symbol("own:state:list"), [])), b"body") == []
    assert DeliveryReceived in _kinds(peer)
