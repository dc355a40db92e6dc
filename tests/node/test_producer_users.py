"""J-13: a journal keeps the producers of each user apart, and continues those that had none."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from bridges.node.errors import StorageError
from bridges.node.producers_core import MAX_PRODUCERS, Identity, Judgement, ProducerLedger, ProducerRow
from oncewire.client.isolation import Isolation
from oncewire.client.transactions.sequence_header import (
    LAST_SEQUENCE,
    Flag,
    Producer,
    ProducerId,
    SequenceHeader,
    final_rollback,
)
from oncewire.wire import Message, Symbol, encode_message
from oncewire.wire.vocabulary import USER
from tests.node.parts import Life

SHOP = ProducerId("shop", 1000)
LEVELS = tuple(Isolation)
NEW, COPY = Judgement.NEW, Judgement.DUPLICATE


def received(user: str, header: SequenceHeader, body: bytes = b"") -> bytes:
    """A message as routers deliver it."""
    stated: dict[Symbol, object] = {USER: user} if user else {}
    return encode_message(Message(body, annotations={**header.annotations(), **stated}))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("attacker", ["mallory", "ann"])
def test_what_another_user_sends_under_a_producers_name_keeps_nothing_out(
    tmp_path: Path, level: Isolation, attacker: str
) -> None:
    life = Life(tmp_path / "flights.journal", level)
    shop = Producer(SHOP)
    forged = [
        SequenceHeader(SHOP, 500, Flag.ALONE, floor=500),
        final_rollback(SHOP, 1),
        SequenceHeader(SHOP, LAST_SEQUENCE - 1, Flag.ALONE, floor=LAST_SEQUENCE - 1),
    ]
    for header in (shop.alone(), shop.pending(), shop.last(), shop.alone()):
        life.append(*(received(attacker, each) for each in forged))
        life.append(received("ann", header, b"%d" % header.sequence))
    # Whoever is ann to the reader is what everybody was before producers had users.
    assert [body for body in life.bodies() if body] == ([b"1", b"2", b"3", b"4"] if attacker == "mallory" else [])


def test_what_a_producer_without_user_has_pending_is_rolled_back_by_its_user(tmp_path: Path) -> None:
    life = Life(tmp_path / "flights.journal", Isolation.READ_COMMITTED)
    shop = Producer(SHOP)
    life.append(received("", shop.pending(), b"1"))
    life.append(received("ann", shop.rollback()))
    life.append(received("ann", shop.alone(), b"3"))
    assert [body for body in life.bodies() if body] == [b"3"]
    connection = sqlite3.connect(life.path)
    assert connection.execute("SELECT count(*) FROM node_waiting").fetchone() == (0,)
    connection.close()


def test_the_quota_of_producers_is_each_users_own() -> None:
    ledger = ProducerLedger(max_producers=2)
    for user in ("mallory", "ann"):
        judged = [ledger.judge(Identity(f"p{number}", 1, 0, user)) for number in range(3)]
        assert judged == [NEW, NEW, Judgement.TOO_MANY_PRODUCERS]
    assert MAX_PRODUCERS == 100_000


def test_the_quota_of_gaps_is_each_users_own() -> None:
    ledger = ProducerLedger(max_user_gaps=3)
    for user in ("mallory", "ann"):
        judged = [ledger.judge(Identity(name, number, 0, user)) for name in "ab" for number in (1, 3)]
        assert judged == [NEW, NEW, NEW, Judgement.TOO_MANY_GAPS]
        assert ledger.judge(Identity("b", 3, 2, user)) is NEW  # its floor closes one
    again = ProducerLedger(ledger.changes(), max_user_gaps=3)
    assert again.judge(Identity("c", 1, 0, "ann")) is Judgement.TOO_MANY_GAPS


def test_a_ledger_that_is_stored_keeps_users_apart() -> None:
    ledger = ProducerLedger([ProducerRow("p", 5, "[]")])  # from before there were users: 0 to 4 are settled
    assert [ledger.judge(Identity("p", 4, 0, user)) for user in ("ann", "bob")] == [COPY, COPY]
    assert ledger.judge(Identity("p", 7, 0, "ann")) is NEW
    again = ProducerLedger([ProducerRow("p", 5, "[]"), *ledger.changes()])
    assert [again.judge(Identity("p", 7, 0, user)) for user in ("ann", "bob", "")] == [COPY, NEW, NEW]


def test_open_transactions_of_one_user_take_no_room_from_another(tmp_path: Path) -> None:
    life = Life(tmp_path / "flights.journal", Isolation.READ_COMMITTED, max_open_bytes=1000)
    large = b"x" * 600
    mallory, ann = Producer(SHOP), Producer(SHOP)
    judged = [life.append(received("mallory", mallory.pending(), large))[0] for _ in range(2)]
    assert judged == [NEW, Judgement.TOO_MUCH_PENDING]
    both = [received("ann", ann.pending(), large), received("ann", ann.ack())]
    assert life.append(*both) == [NEW, NEW]
    assert [body for body in life.bodies() if body] == [large]
    # Without users nobody is distinguished: all wait, and nothing is lost.
    nobody = Producer(replace(SHOP, name="x"))
    with pytest.raises(StorageError, match="takes no more messages of open transactions"):
        life.append(*(received("", nobody.pending(), large) for _ in range(2)))
